// `lantern bench step` by graphs: that its numbers agree with each other.
#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "process.h"

namespace lantern::test {
namespace {

namespace json = boost::json;

double number(const json::value& of, const char* name) { return of.at(name).to_number<double>(); }

TEST(BenchStep, GraphsComeWithTheirKernelsAndTheHostsTime) {
  const Outcome outcome =
      run_lantern({"bench", "step", "--model", tiny_model(), "--device", "cpu", "--graphs", "full", "--context", "200",
                   "--repetitions", "6", "--threads", "2", "--json", "--quiet"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  const json::value all = json::parse(outcome.out);
  EXPECT_EQ(all.at("graphs").as_string(), "full");
  EXPECT_EQ(number(all, "context"), 200);
  // A step of five layers has dozens of launches, and not one for each expert.
  EXPECT_GT(number(all, "kernels_per_token"), 5 * 8);
  EXPECT_LT(number(all, "kernels_per_token"), 5 * 50);
  const double seconds = number(all, "seconds_per_token");
  EXPECT_GT(seconds, 0);
  EXPECT_GT(number(all, "host_seconds_per_token"), 0);
  EXPECT_NEAR(number(all, "tokens_per_second") * seconds, 1, 1e-9);
  const double bytes = number(all, "bytes_per_token");
  EXPECT_EQ(bytes, number(all, "weight_bytes_per_token") + number(all, "kv_bytes_per_token"));
  // Five layers of at most 214 rows of a latent.
  EXPECT_GT(number(all, "kv_bytes_per_token"), 0);
  EXPECT_NEAR(number(all, "gb_per_second") * seconds * 1e9 / bytes, 1, 1e-9);
  EXPECT_NEAR(number(all, "floor_seconds_per_token") * number(all, "read_gb_per_second") * 1e9 / bytes, 1, 1e-9);
  EXPECT_NEAR(number(all, "times_floor") * number(all, "floor_seconds_per_token") / seconds, 1, 1e-9);
  EXPECT_NEAR(number(all, "times_floor") * number(all, "bandwidth_ratio"), 1, 1e-9);
  EXPECT_GT(number(all, "prefill_tokens_per_second"), 0);

  // The same bytes as without graphs.
  const Outcome eager = run_lantern({"bench", "step", "--model", tiny_model(), "--device", "cpu", "--context", "200",
                                     "--prefill", "0", "--repetitions", "1", "--threads", "2", "--json", "--quiet"});
  ASSERT_EQ(eager.exit_code, 0) << eager.err;
  EXPECT_EQ(number(json::parse(eager.out), "weight_bytes_per_token"), number(all, "weight_bytes_per_token"));
}

TEST(BenchStep, PrintsText) {
  const Outcome outcome = run_lantern({"bench", "step", "--model", tiny_model(), "--device", "cpu", "--graphs", "full",
                                       "--context", "40", "--repetitions", "2", "--threads", "2", "--quiet"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  for (const char* part : {" kernels in graphs\n", "a step takes ", "host ", "prefill "}) {
    EXPECT_NE(outcome.out.find(part), std::string::npos) << outcome.out;
  }
}

TEST(BenchStep, SaysWhatDoesNotGoTogether) {
  const auto refusal = [](std::vector<std::string> more) {
    std::vector<std::string> all = {"bench", "step", "--model", tiny_model(), "--quiet", "--graphs", "full"};
    if (more.front() == "--graphs") all.resize(all.size() - 2);
    all.insert(all.end(), more.begin(), more.end());
    const Outcome outcome = run_lantern(all);
    EXPECT_EQ(outcome.exit_code, 2);
    return outcome.err;
  };
  EXPECT_NE(refusal({"--prefill", "64"}).find("--prefill goes with --graphs none only"), std::string::npos);
  EXPECT_NE(refusal({"--layers", "2"}).find("--layers and --weights go with --dummy only"), std::string::npos);
  EXPECT_NE(refusal({"--graphs", "verify"}).find("--graphs verify runs every step several times"), std::string::npos);
  const Outcome none =
      run_lantern({"bench", "step", "--model", tiny_model(), "--device", "cuda", "--graphs", "none", "--quiet"});
  EXPECT_NE(none.err.find("--graphs none: bench step compares launches without graphs"), std::string::npos) << none.err;
}

}  // namespace
}  // namespace lantern::test
