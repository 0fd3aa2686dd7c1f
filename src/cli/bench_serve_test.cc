#include "cli/bench_serve.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <cmath>
#include <limits>
#include <numeric>

#include "cli/svg_chart.h"

namespace lantern::cli {
namespace {

namespace json = boost::json;

// Two answers and a failure, whose figures can be had by hand.
ServeRun a_run() {
  ServeRun run;
  run.duration = 4;
  run.records = {
      {.start = 0.5,
       .token_seconds = {1.0, 1.25, 1.5, 2.5},
       .input_tokens = 10,
       .cached_tokens = 4,
       .output_tokens = 7,
       .text = "a \"b\"",
       .error = ""},
      {.start = 1.0,
       .token_seconds = {1.25, 3.25},
       .input_tokens = 20,
       .cached_tokens = 0,
       .output_tokens = 2,
       .text = "<c>",
       .error = ""},
      {.start = 1.0,
       .token_seconds = {1.1},
       .input_tokens = 99,
       .cached_tokens = 9,
       .output_tokens = 9,
       .text = "lost",
       .error = "503: busy <now>"},
      {.start = 2.0,
       .token_seconds = {2.5},
       .input_tokens = 5,
       .cached_tokens = 0,
       .output_tokens = 1,
       .text = "",
       .error = ""},
  };
  return run;
}

TEST(BenchServeTest, SummariesOfAKnownListAreRight) {
  // 10, 20, ... 1000 ms: numpy's percentile and std say the same.
  std::vector<double> seconds(100);
  for (size_t i = 0; i < seconds.size(); ++i) seconds[99 - i] = 0.01 * static_cast<double>(i + 1);
  const LatencySummary of = summary_of(seconds);
  EXPECT_NEAR(of.mean, 505, 1e-9);
  EXPECT_NEAR(of.median, 505, 1e-9);
  EXPECT_NEAR(of.p90, 901, 1e-9);
  EXPECT_NEAR(of.p99, 990.1, 1e-9);
  EXPECT_NEAR(of.std, 288.6607004772212, 1e-6);
  EXPECT_TRUE(std::isnan(summary_of({}).p99));
}

TEST(BenchServeTest, ARunIsSummedUp) {
  const ServeSummary summary = summarise(a_run(), *parse_goodput({"ttft:500,tpot:300", "e2el:2000"}));
  EXPECT_EQ(summary.completed, 3);
  EXPECT_EQ(summary.failed, 1);
  ASSERT_EQ(summary.failures.size(), 1u);
  EXPECT_EQ(summary.failures[0], std::pair(std::string("503: busy <now>"), int64_t{1}));
  EXPECT_EQ(summary.total_input, 35) << "nothing of what failed is counted";
  EXPECT_EQ(summary.total_cached, 4);
  EXPECT_EQ(summary.total_output, 10);
  EXPECT_EQ(summary.pieces, 7);
  EXPECT_DOUBLE_EQ(summary.request_throughput, 0.75);
  EXPECT_DOUBLE_EQ(summary.output_throughput, 2.5);
  EXPECT_DOUBLE_EQ(summary.total_throughput, 45.0 / 4);
  EXPECT_NEAR(summary.ttft.mean, 1e3 * (0.5 + 0.25 + 0.5) / 3, 1e-9);
  EXPECT_NEAR(summary.ttft.median, 500, 1e-9);
  EXPECT_NEAR(summary.e2el.mean, 1e3 * (2 + 2.25 + 0.5) / 3, 1e-9);
  // 1.5 s for the six tokens after the first, 2 s for one; one token alone has none.
  EXPECT_NEAR(summary.tpot.mean, 1e3 * (0.25 + 2) / 2, 1e-9);
  EXPECT_NEAR(summary.itl.mean, 1e3 * (0.25 + 0.25 + 1 + 2) / 4, 1e-9);
  EXPECT_NEAR(summary.itl.p99, 1e3 * (1 + 0.97 * 1), 1e-9);
  // The second is beyond two of the limits; the others just reach them.
  EXPECT_DOUBLE_EQ(summary.request_goodput.value_or(-1), 2 / 4.0);
  EXPECT_FALSE(summarise(a_run(), std::nullopt).request_goodput);
}

TEST(BenchServeTest, TheCourseOfARunIsCountedBySeconds) {
  // Tokens: 7 in four pieces are 1.75 each.
  EXPECT_EQ(tokens_by_second(a_run()), (std::vector<double>{0, 3 * 1.75 + 1, 1.75 + 1, 1, 0}));
  EXPECT_EQ(requests_by_second(a_run()), (std::vector<int64_t>{1, 2, 3, 1, 0}));
  const ServeSummary summary = summarise(a_run(), std::nullopt);
  EXPECT_DOUBLE_EQ(summary.max_output_tokens_per_second, 6.25);
  EXPECT_EQ(summary.max_concurrent_requests, 3);
}

TEST(BenchServeTest, ArrivalsAreThoseOfTheRate) {
  const auto spread = [](const std::vector<double>& times) {
    std::vector<double> intervals;
    for (size_t i = 1; i < times.size(); ++i) intervals.push_back(times[i] - times[i - 1]);
    const double mean =
        std::accumulate(intervals.begin(), intervals.end(), 0.0) / static_cast<double>(intervals.size());
    double squares = 0;
    for (const double interval : intervals) squares += (interval - mean) * (interval - mean);
    return std::pair(mean, std::sqrt(squares / static_cast<double>(intervals.size())) / mean);
  };
  constexpr int64_t kMany = 20000;
  // The coefficient of variation of a gamma distribution is the root of 1/shape.
  for (const double burstiness : {0.25, 1.0, 4.0}) {
    const auto [mean, variation] = spread(arrival_times(kMany, 50, burstiness, 7));
    EXPECT_NEAR(mean, 0.02, 0.02 * 0.06) << burstiness;
    EXPECT_NEAR(variation, 1 / std::sqrt(burstiness), 0.06 / std::sqrt(burstiness)) << burstiness;
  }
  EXPECT_EQ(arrival_times(9, 5, 1, 3), arrival_times(9, 5, 1, 3));
  EXPECT_NE(arrival_times(9, 5, 1, 3), arrival_times(9, 5, 1, 4));
  EXPECT_EQ(arrival_times(3, std::numeric_limits<double>::infinity(), 1, 3), (std::vector<double>{0, 0, 0}));
}

TEST(BenchServeTest, GoodputIsReadOrRefused) {
  const Goodput all = *parse_goodput({"ttft:500 tpot:50.5", "e2el:3000"});
  EXPECT_EQ(all.ttft, 500);
  EXPECT_EQ(all.tpot, 50.5);
  EXPECT_EQ(all.e2el, 3000);
  EXPECT_FALSE(parse_goodput({"ttft:5"})->tpot);
  for (const char* wrong : {"ttft", "ttft:", "ttft:x", "itl:5", "ttft:-1", ":5"}) {
    const Result<Goodput> read = parse_goodput({wrong});
    ASSERT_FALSE(read.ok()) << wrong;
    EXPECT_EQ(read.error().message(), std::string("'") + wrong + "' is none of ttft:MS, tpot:MS and e2el:MS");
  }
}

ServeResult a_result() {
  ServeResult result;
  result.subject = {.date = "20260102-030405",
                    .backend = "openai",
                    .url = "http://h:1",
                    .model = "<m>",
                    .dataset = "random",
                    .request_rate = std::numeric_limits<double>::infinity(),
                    .burstiness = 1,
                    .max_concurrency = 3,
                    .seed = 5};
  result.run = a_run();
  result.summary = summarise(result.run, std::nullopt);
  const auto counters = [](int drafts, int first, int second) {
    return *MetricsSnapshot::parse(
        "vllm:spec_decode_num_drafts_total " + std::to_string(drafts) + "\nvllm:spec_decode_num_draft_tokens_total " +
        std::to_string(2 * drafts) + "\nvllm:spec_decode_num_accepted_tokens_total " + std::to_string(first + second) +
        "\nvllm:spec_decode_num_accepted_tokens_per_pos_total{position=\"0\"} " + std::to_string(first) +
        "\nvllm:spec_decode_num_accepted_tokens_per_pos_total{position=\"1\"} " + std::to_string(second) + "\n");
  };
  EXPECT_FALSE(drafts_between(counters(7, 1, 1), counters(7, 1, 1)));
  result.drafts = drafts_between(counters(100, 50, 40), counters(200, 130, 80));
  return result;
}

// The keys that collectors of `vllm bench serve` results read.
TEST(BenchServeTest, TheResultHasTheKeysOfVllm) {
  const json::object result = json::parse(serve_json(a_result(), false)).as_object();
  for (const char* key : {"date",
                          "backend",
                          "label",
                          "model_id",
                          "tokenizer_id",
                          "num_prompts",
                          "request_rate",
                          "burstiness",
                          "max_concurrency",
                          "duration",
                          "completed",
                          "failed",
                          "total_input_tokens",
                          "total_output_tokens",
                          "request_throughput",
                          "request_goodput",
                          "output_throughput",
                          "total_token_throughput",
                          "mean_ttft_ms",
                          "median_ttft_ms",
                          "std_ttft_ms",
                          "p99_ttft_ms",
                          "mean_tpot_ms",
                          "median_tpot_ms",
                          "std_tpot_ms",
                          "p99_tpot_ms",
                          "mean_itl_ms",
                          "median_itl_ms",
                          "std_itl_ms",
                          "p99_itl_ms",
                          "mean_e2el_ms",
                          "median_e2el_ms",
                          "std_e2el_ms",
                          "p99_e2el_ms",
                          "max_output_tokens_per_s",
                          "max_concurrent_requests",
                          "spec_decode_acceptance_rate",
                          "spec_decode_acceptance_length",
                          "spec_decode_num_drafts",
                          "spec_decode_draft_tokens",
                          "spec_decode_accepted_tokens",
                          "spec_decode_per_position_acceptance_rates"}) {
    EXPECT_TRUE(result.contains(key)) << key;
  }
  EXPECT_EQ(result.at("request_rate"), "inf");
  EXPECT_EQ(result.at("spec_decode_acceptance_rate").to_number<double>(), 60);
  EXPECT_EQ(result.at("spec_decode_acceptance_length").to_number<double>(), 2.2);
  EXPECT_EQ(result.at("spec_decode_per_position_acceptance_rates"), (json::array{0.8, 0.4}));
  EXPECT_EQ(result.at("failures").at(0), (json::object{{"error", "503: busy <now>"}, {"count", 1}}));
  EXPECT_FALSE(result.contains("ttfts"));

  const json::object detailed = json::parse(serve_json(a_result(), true)).as_object();
  EXPECT_EQ(detailed.at("output_lens"), (json::array{7, 2, 0, 1}));
  EXPECT_EQ(detailed.at("ttfts"), (json::array{0.5, 0.25, 0, 0.5}));
  EXPECT_EQ(detailed.at("latencies"), (json::array{2, 2.25, 0, 0.5}));
  EXPECT_EQ(detailed.at("itls").at(0), (json::array{0.25, 0.25, 1}));
  EXPECT_EQ(detailed.at("generated_texts").at(0), "a \"b\"");
  EXPECT_EQ(detailed.at("errors").at(2), "503: busy <now>");
}

TEST(BenchServeTest, TheTableIsThatOfVllm) {
  const std::string table = serve_table(a_result());
  EXPECT_TRUE(table.starts_with("============ Serving Benchmark Result ============\n")) << table;
  EXPECT_NE(table.find("\nSuccessful requests:                     3         \n"), std::string::npos) << table;
  EXPECT_NE(table.find("\nOutput token throughput (tok/s):         2.50      \n"), std::string::npos) << table;
  EXPECT_NE(table.find("\n---------------Time to First Token----------------\n"), std::string::npos) << table;
  EXPECT_NE(table.find("\nMedian TTFT (ms):                        500.00    \n"), std::string::npos) << table;
  EXPECT_NE(table.find("\nAcceptance rate (%):                     60.00     \n"), std::string::npos) << table;
  EXPECT_NE(table.find("\n     1 x 503: busy <now>\n"), std::string::npos) << table;
}

TEST(BenchServeTest, ThePageEscapesAndLoadsNothing) {
  const std::string page = serve_html(a_result());
  EXPECT_EQ(page.find("<m>"), std::string::npos) << "the model's name is text";
  EXPECT_NE(page.find("&lt;m&gt;"), std::string::npos);
  EXPECT_NE(page.find("503: busy &lt;now&gt;"), std::string::npos);
  for (const char* outside : {"src=", "href=", "url(", "@import", "<script"})
    EXPECT_EQ(page.find(outside), std::string::npos) << outside;
  size_t bars = 0;
  for (size_t at = 0; (at = page.find("<rect ", at)) != std::string::npos; ++at) ++bars;
  EXPECT_EQ(bars, 3 * 2 + 1u) << "two for each answer, one for the failure";
  size_t charts = 0;
  for (size_t at = 0; (at = page.find("<polyline", at)) != std::string::npos; ++at) ++charts;
  EXPECT_EQ(charts, 6u);
  EXPECT_EQ(page.find("nan"), std::string::npos);
}

TEST(SvgChartTest, TicksAreRoundNumbers) {
  EXPECT_DOUBLE_EQ(tick_distance(10, 5), 2);
  EXPECT_DOUBLE_EQ(tick_distance(11, 5), 5);
  EXPECT_DOUBLE_EQ(tick_distance(0.03, 5), 0.01);
  EXPECT_DOUBLE_EQ(tick_distance(4700, 5), 1000);
  EXPECT_DOUBLE_EQ(tick_distance(0, 5), 1);
  const std::string svg =
      svg_chart({.title = "t", .x_label = "x", .y_label = "y", .series = {{"s", {{0, 0}, {10, 5}}}}});
  EXPECT_NE(svg.find("points=\"64.0,218.0 548.0,48.0 \""), std::string::npos) << svg;
}

}  // namespace
}  // namespace lantern::cli
