#include "server/metrics_text.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <thread>

#include "server/access_log.h"

namespace lantern {
namespace {

TEST(MetricsTextTest, SamplesAndLabels) {
  MetricsText text(MetricLabels{{"model_name", "a\"b\\c\nd"}});
  text.family("x_total", "counter", "Things.");
  text.sample(3, {{"why", "so"}});
  EXPECT_EQ(text.take(),
            "# HELP x_total Things.\n# TYPE x_total counter\n"
            "x_total{model_name=\"a\\\"b\\\\c\\nd\",why=\"so\"} 3\n");
}

TEST(MetricsTextTest, HistogramsAreCumulative) {
  Histogram histogram({0.1, 1});
  for (const double value : {0.05, 0.1, 0.5, 7.0}) histogram.observe(value);
  histogram.observe(0.2, 2);
  MetricsText text(MetricLabels{});
  text.family("t", "histogram", "Times.");
  histogram.write(text);
  EXPECT_EQ(text.take(),
            "# HELP t Times.\n# TYPE t histogram\nt_bucket{le=\"0.1\"} 2\nt_bucket{le=\"1\"} 5\n"
            "t_bucket{le=\"+Inf\"} 6\nt_sum 8.05\nt_count 6\n")
      << "a bound belongs to its bucket";
  EXPECT_EQ(bounds_1_2_5(20), (std::vector<double>{1, 2, 5, 10, 20}));
}

// Whoever writes to a full pipe waits for its reader: a server whose log nobody reads would answer nobody.
TEST(AccessLogTest, ALogThatNobodyReadsHoldsUpNobody) {
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe(ends.data()), 0);
  AccessLog log(AccessLog::Format::kText, ends[1]);
  std::atomic<int> written = 0;
  std::thread writer([&] {
    for (; written < 100'000; ++written)
      log.write({.method = "GET", .path = std::string(70'000, 'x'), .client = "1.2.3.4:5", .request_id = "id"});
  });
  for (int i = 0; i < 600 && written < 100'000; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_EQ(written, 100'000);
  // What was written are whole lines.
  std::string text(size_t{1} << 20, '\0');
  text.resize(static_cast<size_t>(std::max<ssize_t>(0, read(ends[0], text.data(), text.size()))));
  EXPECT_TRUE(text.ends_with(" id=id\n")) << text.size();
  close(ends[0]);  // whoever still writes gets an error
  writer.join();
  close(ends[1]);
}

TEST(AccessLogTest, ALineIsALine) {
  AccessRecord record{
      .method = "POST", .path = "/x\ny", .client = "1.2.3.4:5", .request_id = "id", .status = 200, .seconds = 1.5};
  EXPECT_EQ(AccessLog::line(record, AccessLog::Format::kText, 1'764'000'000'123),
            "2025-11-24T16:00:00.123Z 1.2.3.4:5 \"POST /x?y\" 200 1500 ms id=id\n");
  record.generated = true;
  record.usage = {.prompt_tokens = 3, .completion_tokens = 4, .cached_tokens = 1};
  record.outcome = "stop";
  EXPECT_EQ(AccessLog::line(record, AccessLog::Format::kJson, 0),
            "{\"time\":\"1970-01-01T00:00:00.000Z\",\"client\":\"1.2.3.4:5\",\"method\":\"POST\",\"path\":\"/x\\ny\","
            "\"status\":200,\"seconds\":1.5,\"request_id\":\"id\",\"prompt_tokens\":3,\"cached_tokens\":1,"
            "\"completion_tokens\":4,\"first_token_seconds\":null,\"finish_reason\":\"stop\"}\n");
}

}  // namespace
}  // namespace lantern
