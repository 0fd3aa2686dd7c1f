#include "cli/metrics_snapshot.h"

#include <gtest/gtest.h>

#include <cmath>

namespace lantern::cli {
namespace {

constexpr std::string_view kText =
    "# HELP vllm:x_total Something.\n"
    "# TYPE vllm:x_total counter\n"
    "vllm:x_total{engine=\"0\",model_name=\"a \\\"b\\\" \\\\ \\n{c}\"} 3\n"
    "vllm:x_total{engine=\"1\",model_name=\"z\"} 4.5 1700000000000\n"
    "plain 1e3\n"
    "odd NaN\n"
    "\n"
    "h_bucket{engine=\"0\",le=\"0.1\"} 1\n"
    "h_bucket{engine=\"0\",le=\"0.5\"} 3\n"
    "h_bucket{engine=\"0\",le=\"1\"} 3\n"
    "h_bucket{engine=\"0\",le=\"+Inf\"} 4\n"
    "h_bucket{engine=\"1\",le=\"0.1\"} 0\n"
    "h_bucket{engine=\"1\",le=\"0.5\"} 4\n"
    "h_bucket{engine=\"1\",le=\"1\"} 6\n"
    "h_bucket{engine=\"1\",le=\"+Inf\"} 6\n";

TEST(MetricsSnapshotTest, SamplesAreReadBack) {
  const Result<MetricsSnapshot> read = MetricsSnapshot::parse(kText);
  ASSERT_TRUE(read.ok()) << read.error().message();
  EXPECT_EQ(read->sum("vllm:x_total"), 7.5);
  EXPECT_EQ(read->sum("plain"), 1000);
  EXPECT_TRUE(std::isnan(read->sum("odd")));
  EXPECT_EQ(read->sum("missing"), 0);
  EXPECT_FALSE(read->has("missing"));
  EXPECT_EQ(read->label_of("vllm:x_total", "model_name"), "a \"b\" \\ \n{c}");
  const std::map<std::string, double> engines = {{"0", 3}, {"1", 4.5}};
  EXPECT_EQ(read->by_label("vllm:x_total", "engine"), engines);
  for (const char* wrong : {"x", "x{a=\"b\" 1\n", "x{a=b} 1\n", " 1\n", "x one\n", "x{a=\"b\n"})
    EXPECT_FALSE(MetricsSnapshot::parse(wrong).ok()) << wrong;
}

TEST(MetricsSnapshotTest, QuantilesAreThoseOfPrometheus) {
  const HistogramCounts all = MetricsSnapshot::parse(kText)->histogram("h");
  EXPECT_EQ(all.counts, (std::vector<double>{1, 7, 9, 10}));
  // By hand: rank 5 lies 4/6 into the bucket from 0.1 to 0.5; rank 8 half way from 0.5 to 1.
  EXPECT_NEAR(all.quantile(0.5), 0.1 + 0.4 * 4 / 6, 1e-12);
  EXPECT_NEAR(all.quantile(0.8), 0.75, 1e-12);
  EXPECT_NEAR(all.quantile(0.05), 0.05, 1e-12);
  EXPECT_EQ(all.quantile(0.99), 1) << "above the last finite bound";
  EXPECT_TRUE(std::isnan(HistogramCounts().quantile(0.5)));
  // Empty buckets below the first one with something in it move its lower end.
  const HistogramCounts late{.bounds = {1, 2, 4, INFINITY}, .counts = {0, 0, 8, 8}};
  EXPECT_EQ(late.quantile(0.5), 3);
}

TEST(MetricsSnapshotTest, ADifferenceIsWhatCameSince) {
  const HistogramCounts before{.bounds = {1, 2, INFINITY}, .counts = {1, 2, 2}};
  const HistogramCounts after{.bounds = {1, 2, INFINITY}, .counts = {1, 6, 7}};
  EXPECT_EQ(after.since(before).counts, (std::vector<double>{0, 4, 5}));
  EXPECT_EQ(before.since(after).counts, before.counts) << "the server began anew";
  EXPECT_EQ(after.since({}).counts, after.counts);
}

}  // namespace
}  // namespace lantern::cli
