#include "cli/server_view.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <cmath>

namespace lantern::cli {
namespace {

struct Counters {
  int generation = 0;
  int prompt = 0;
  int hits = 0;
  int drafts = 0;
  int accepted = 0;
  int stopped = 0;
  int running = 0;
  int waiting = 0;
  double kv_use = 0;
  int fast = 0;  // first tokens within 10 ms
  int slow = 0;  // and within 100 ms
};

MetricsSnapshot snapshot(const Counters& of) {
  const std::string text = fmt::format(
      "vllm:num_requests_running{{model_name=\"m\"}} {}\nvllm:num_requests_waiting {}\nvllm:kv_cache_usage_perc {}\n"
      "vllm:generation_tokens_total {}\nvllm:prompt_tokens_total {}\nvllm:prefix_cache_queries_total {}\n"
      "vllm:prefix_cache_hits_total {}\nvllm:spec_decode_num_drafts_total {}\n"
      "vllm:spec_decode_num_draft_tokens_total {}\nvllm:spec_decode_num_accepted_tokens_total {}\n"
      "vllm:request_success_total{{finished_reason=\"stop\"}} {}\n"
      "vllm:time_to_first_token_seconds_bucket{{le=\"0.01\"}} {}\n"
      "vllm:time_to_first_token_seconds_bucket{{le=\"0.1\"}} {}\n"
      "vllm:time_to_first_token_seconds_bucket{{le=\"+Inf\"}} {}\n",
      of.running, of.waiting, of.kv_use, of.generation, of.prompt, of.prompt, of.hits, of.drafts, 2 * of.drafts,
      of.accepted, of.stopped, of.fast, of.fast + of.slow, of.fast + of.slow);
  Result<MetricsSnapshot> read = MetricsSnapshot::parse(text);
  EXPECT_TRUE(read.ok());
  return *read;
}

const Counters kBegin = {
    .generation = 100, .prompt = 50, .hits = 10, .drafts = 10, .accepted = 5, .stopped = 3, .fast = 2};
const Counters kLast = {
    .generation = 200, .prompt = 90, .hits = 10, .drafts = 20, .accepted = 15, .stopped = 4, .fast = 2};
const Counters kNow = {.generation = 500,
                       .prompt = 150,
                       .hits = 40,
                       .drafts = 110,
                       .accepted = 135,
                       .stopped = 7,
                       .running = 4,
                       .waiting = 1,
                       .kv_use = 0.25,
                       .fast = 6,
                       .slow = 4};

TEST(ServerViewTest, RatesAreOfTheIntervalAndSharesOfTheWindow) {
  const ServerView view = server_view(snapshot(kBegin), snapshot(kLast), snapshot(kNow), 2);
  EXPECT_EQ(view.model, "m");
  EXPECT_EQ(view.generation_rate, 150);
  EXPECT_EQ(view.prompt_rate, 30);
  EXPECT_EQ(view.request_rate, 1.5);
  EXPECT_EQ(view.running, 4);
  EXPECT_EQ(view.waiting, 1);
  EXPECT_EQ(view.state, "HEALTHY");
  EXPECT_DOUBLE_EQ(view.prefix_hit_rate, 0.3);
  EXPECT_DOUBLE_EQ(view.draft_acceptance, 0.65);
  EXPECT_DOUBLE_EQ(view.acceptance_length, 2.3);
  EXPECT_EQ(view.ended.at("stop"), 4);
  // Four within 10 ms, four within 100 ms: rank 4 ends the first bucket, 7.2 lies four fifths into the second.
  EXPECT_NEAR(view.ttft.p50, 10, 1e-9);
  EXPECT_NEAR(view.ttft.p90, 10 + 90 * 0.8, 1e-9);
  EXPECT_TRUE(std::isnan(view.itl.p50));
}

TEST(ServerViewTest, AServerThatBeganAnewCountsFromZero) {
  const ServerView view = server_view(snapshot(kNow), snapshot(kNow), snapshot(kBegin), 1);
  EXPECT_EQ(view.generation_rate, 100);
  EXPECT_EQ(view.ended.at("stop"), 3);
  EXPECT_NEAR(view.ttft.p50, 5, 1e-9);
}

TEST(ServerViewTest, TheStateIsAWord) {
  const auto state = [](Counters of) { return server_view({}, snapshot({}), snapshot(of), 1).state; };
  EXPECT_EQ(state({}), "IDLE");
  EXPECT_EQ(state({.running = 8, .waiting = 3}), "HEALTHY");
  EXPECT_EQ(state({.running = 8, .waiting = 9}), "QUEUE BUILDING");
  EXPECT_EQ(state({.running = 8, .waiting = 9, .kv_use = 0.95}), "KV PRESSURE");
}

TEST(ServerViewTest, LinesFitTheTerminal) {
  const ServerView view = server_view(snapshot(kBegin), snapshot(kLast), snapshot(kNow), 2);
  const std::vector<std::string> lines = view_lines(view, "http://h:1", {0, 50, 100}, 120);
  std::string all;
  for (const std::string& line : lines) all += line + "\n";
  for (const char* part :
       {"lantern top   http://h:1   m   HEALTHY\n", "tokens/s      150.0 out   30.0 in   ▁▅█\n",
        "requests      4 running   1 waiting   1.5/s ended (stop 4)\n", "[########......................] 25.0 %\n",
        "prefix cache  30.0 % of prompt tokens\n", "drafts        65.0 % accepted, 2.30 tokens a step\n",
        "first token   p50 10.0 ms   p90 82.0 ms   p99 98.2 ms\n", "each token    -\n"}) {
    EXPECT_NE(all.find(part), std::string::npos) << part << " is not in\n" << all;
  }
  EXPECT_EQ(view_lines(view, "http://h:1", {0, 50, 100}, 37)[2], "tokens/s      150.0 out   30.0 in   ▁")
      << "no half of a character";
}

TEST(ServerViewTest, JsonHasNullForWhatIsNotKnown) {
  const boost::json::object json =
      boost::json::parse(view_json(server_view({}, snapshot({}), snapshot({}), 1), "http://h:1")).as_object();
  EXPECT_EQ(json.at("state"), "IDLE");
  EXPECT_EQ(json.at("generation_tokens_per_s").to_number<double>(), 0);
  for (const char* unknown :
       {"prefix_cache_hit_rate", "draft_acceptance_rate", "draft_acceptance_length", "p50_ttft_ms", "p99_itl_ms"})
    EXPECT_TRUE(json.at(unknown).is_null()) << unknown;
}

}  // namespace
}  // namespace lantern::cli
