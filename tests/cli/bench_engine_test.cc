// `lantern bench throughput` and `bench latency`: that their numbers agree with each other.
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json.hpp>

#include "json_outcome.h"
#include "process.h"

namespace lantern::test {
namespace {

namespace json = boost::json;

json::object measured(std::vector<std::string> arguments) {
  arguments.insert(arguments.end(),
                   {"--model", tiny_model().string(), "--kv-cache-memory", "128Mi", "--json", "--quiet"});
  const Outcome outcome = run_lantern(arguments);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  return json_of(outcome);
}
double number(const json::value& of, const char* name) { return of.at(name).to_number<double>(); }

TEST(BenchEngine, ThroughputComesWithWhatTheBytesAllow) {
  const json::object all =
      measured({"bench", "throughput", "--requests", "6", "--output-len", "10", "--input-len", "20", "--threads", "2"});
  EXPECT_EQ(all.at("prompts").as_string(), "random");
  EXPECT_EQ(number(all, "total_input_tokens"), 6 * 20);
  EXPECT_EQ(number(all, "total_output_tokens"), 6 * 10);
  EXPECT_NEAR(number(all, "output_throughput"), 60 / number(all, "duration"), 1e-6 * number(all, "output_throughput"));
  EXPECT_GT(number(all, "engine_overhead_us_per_step"), 0);
  const json::value& one = all.at("decode_of_one");
  const json::value& six = all.at("decode_of_all");
  // Two of eight experts for one token; more, but not more than there are, for six.
  EXPECT_EQ(number(one, "distinct_experts_per_layer"), 2);
  EXPECT_GT(number(six, "distinct_experts_per_layer"), 2);
  EXPECT_LE(number(six, "distinct_experts_per_layer"), 8);
  // The weights of five layers: 256 x 128 in bf16, three times for each expert, in four of them.
  const double expert_bytes = 3.0 * 256 * 128 * 2;
  EXPECT_NEAR(number(six, "weight_bytes_per_step") - number(one, "weight_bytes_per_step"),
              4 * expert_bytes * (number(six, "distinct_experts_per_layer") - 2), 1);
  EXPECT_GT(number(six, "kv_bytes_per_step"), 5 * number(one, "kv_bytes_per_step"));
  EXPECT_NEAR(number(all, "byte_bound_speed_up"), 6 * number(one, "bytes_per_step") / number(six, "bytes_per_step"),
              1e-9);
  EXPECT_NEAR(number(all, "speed_up_ratio"), number(all, "speed_up") / number(all, "byte_bound_speed_up"), 1e-9);
  EXPECT_LT(number(all, "byte_bound_speed_up"), 6);
}

TEST(BenchEngine, DraftsAreCounted) {
  const std::vector<std::string> common = {
      "bench", "throughput", "--requests", "4", "--output-len", "40", "--draft-tokens", "2", "--no-adaptive-drafts"};
  const json::object real = measured(common);
  EXPECT_NE(real.at("prompts").as_string().find("arithmetic.jsonl"), std::string_view::npos);
  EXPECT_GT(number(real, "acceptance"), 0.5) << "the shipped model's MTP layer";
  EXPECT_EQ(real.at("acceptance_by_position").as_array().size(), 2u);
  EXPECT_FALSE(real.contains("speed_up_ratio")) << "the bytes of draft passes are not counted";
  std::vector<std::string> never = common;
  never.insert(never.end(), {"--synthetic-acceptance", "0"});
  const json::object none = measured(never);
  EXPECT_EQ(number(none, "acceptance"), 0);
  EXPECT_GT(number(none, "steps"), number(real, "steps"));
}

TEST(BenchEngine, LatencyIsGivenAsPercentiles) {
  const json::object all = measured({"bench", "latency", "--output-len", "6", "--repetitions", "3", "--requests", "2"});
  for (const std::string name : {"ttft", "tpot", "itl", "e2el"}) {
    const double p50 = number(all, ("p50_" + name + "_ms").c_str());
    EXPECT_GT(p50, 0) << name;
    EXPECT_GE(number(all, ("p90_" + name + "_ms").c_str()), p50) << name;
    EXPECT_GE(number(all, ("p99_" + name + "_ms").c_str()), number(all, ("p90_" + name + "_ms").c_str())) << name;
  }
  EXPECT_GT(number(all, "p50_e2el_ms"), number(all, "p50_ttft_ms"));
}

TEST(BenchEngine, FlagsThatDoNotGoTogetherAreRefused) {
  const auto refusal = [](const std::vector<std::string>& arguments, int exit_code = 2) {
    const Outcome outcome = run_lantern(arguments);
    EXPECT_EQ(outcome.exit_code, exit_code) << outcome.err;
    return outcome.err;
  };
  EXPECT_NE(refusal({"bench", "throughput", "--synthetic-acceptance", "0.5", "--quiet"})
                .find("--synthetic-acceptance goes with --draft-tokens only"),
            std::string::npos);
  EXPECT_NE(
      refusal({"bench", "latency", "--layers", "2", "--quiet"}).find("--layers and --weights go with --dummy only"),
      std::string::npos);
  EXPECT_NE(refusal({"bench", "latency", "--output-len", "3000", "--quiet"}, 1).find("do not fit a context of 2048"),
            std::string::npos);
}

}  // namespace
}  // namespace lantern::test
