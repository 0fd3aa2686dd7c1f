// `lantern bench kernels` on a CPU: every case runs, and its numbers agree with each other.
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json.hpp>
#include <set>

#include "process.h"

namespace lantern::test {
namespace {

namespace json = boost::json;

Outcome run_kernels(std::vector<std::string> arguments) {
  std::vector<std::string> all = {"bench", "kernels", "--device", "cpu", "--threads", "2", "--quiet"};
  all.insert(all.end(), arguments.begin(), arguments.end());
  return run_lantern(all);
}
double number(const json::value& of, const char* name) { return of.at(name).to_number<double>(); }

TEST(BenchKernels, EveryCaseRunsAndItsNumbersAgree) {
  const Outcome outcome = run_kernels({"--repetitions", "1", "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  const json::value all = json::parse(outcome.out);
  EXPECT_NE(all.at("device").as_string().find("cpu"), std::string_view::npos);
  EXPECT_EQ(number(all, "repetitions"), 1);
  const double read = number(all, "read_gb_per_second");
  EXPECT_GT(read, 0.1);
  EXPECT_GE(number(all, "flush_bytes"), 32 << 20);
  EXPECT_TRUE(all.at("refused").as_array().empty());
  std::set<std::string> ops;
  for (const json::value& one : all.at("cases").as_array()) {
    const std::string name(one.at("name").as_string());
    ops.insert(name.substr(0, name.find(' ')));
    EXPECT_GT(number(one, "us"), 0) << name;
    EXPECT_GT(number(one, "bytes"), 0) << name;
    EXPECT_NEAR(number(one, "gb_per_second") * number(one, "us") * 1e3 / number(one, "bytes"), 1, 1e-9) << name;
    EXPECT_NEAR(number(one, "floor_us") * read * 1e3 / number(one, "bytes"), 1, 1e-9) << name;
    EXPECT_NEAR(number(one, "ratio") * number(one, "us") / number(one, "floor_us"), 1, 1e-9) << name;
    EXPECT_NEAR(number(one, "tflops") * number(one, "us") * 1e6, number(one, "flops"), 1 + 1e-9 * number(one, "flops"))
        << name;
    EXPECT_EQ(one.as_object().contains("goal_us"), false) << name << ": goals are for a GPU";
  }
  EXPECT_EQ(ops, (std::set<std::string>{"absorb_query+project_value", "add_rms_norm", "fill", "index_select", "linear",
                                        "mla_decode", "moe", "process_logits", "router", "sample"}));
}

TEST(BenchKernels, PrintsTheChosenCasesAsATable) {
  const Outcome text = run_kernels({"--repetitions", "2", "--filter", "router"});
  ASSERT_EQ(text.exit_code, 0) << text.err;
  EXPECT_EQ(std::count(text.out.begin(), text.out.end(), '\n'), 3) << text.out;
  EXPECT_NE(text.out.find("floor us"), std::string::npos);
  EXPECT_NE(text.out.find("\nrouter 256 experts tokens 64 "), std::string::npos) << text.out;
  const Outcome markdown = run_kernels({"--repetitions", "2", "--filter", "tokens 64", "--markdown"});
  ASSERT_EQ(markdown.exit_code, 0) << markdown.err;
  EXPECT_NE(markdown.out.find("| case | us | GB/s | TFLOP/s | floor us | ratio | goal us |  |\n|---|---|"),
            std::string::npos)
      << markdown.out;
  EXPECT_NE(markdown.out.find("\n| moe fp8 16x448x128 tokens 64 | "), std::string::npos) << markdown.out;
  EXPECT_EQ(markdown.out.find("tokens 1 "), std::string::npos) << markdown.out;
}

TEST(BenchKernels, SaysWhatItDoesNotKnow) {
  const Outcome unknown = run_kernels({"--filter", "softmax"});
  EXPECT_EQ(unknown.exit_code, 1);
  EXPECT_EQ(unknown.out, "");
  EXPECT_NE(
      unknown.err.find("--filter 'softmax' is in the name of no case; cases begin with absorb_query+project_value, "
                       "add_rms_norm, fill, index_select, linear, mla_decode, moe, process_logits, router, sample"),
      std::string::npos)
      << unknown.err;
  EXPECT_EQ(std::count(unknown.err.begin(), unknown.err.end(), '\n'), 1) << unknown.err;
  const Outcome both = run_kernels({"--json", "--markdown"});
  EXPECT_EQ(both.exit_code, 2);
  EXPECT_NE(both.err.find("--json and --markdown are two forms of one table"), std::string::npos) << both.err;
}

}  // namespace
}  // namespace lantern::test
