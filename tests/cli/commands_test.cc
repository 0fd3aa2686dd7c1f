// What the commands print when all is well.
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <cmath>
#include <fstream>

#include "json_outcome.h"
#include "process.h"

namespace lantern::test {
namespace {

const char* const kQuestion =
    "Question: Tom has 12 apples. He buys 3 bags with 5 apples each. How many apples does he have now?";

boost::json::object object_of(const Outcome& outcome) {
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(std::count(outcome.out.begin(), outcome.out.end(), '\n'), 1) << "one object, one line";
  return json_of(outcome);
}

std::string text(const boost::json::object& object, const char* name) {
  return boost::json::value_to<std::string>(object.at(name));
}

Outcome generate(std::vector<std::string> more, const RunOptions& options = {}) {
  std::vector<std::string> arguments = {"generate", "--prompt", kQuestion};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return run_lantern(arguments, options);
}

TEST(GenerateTest, TheShippedModelAnswersTheExample) {
  const Outcome outcome = generate({"--max-tokens", "64", "--temperature", "0"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("27"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.err.find("finished by stop"), std::string::npos) << outcome.err;
}

TEST(GenerateTest, JsonHoldsTheSameText) {
  const Outcome plain = generate({"--max-tokens", "24", "--temperature", "0", "--quiet"});
  const boost::json::object json = object_of(generate({"--max-tokens", "24", "--temperature", "0", "--json"}));
  std::string said = text(json, "text");
  if (!said.ends_with('\n')) said += '\n';
  EXPECT_EQ(said, plain.out);
  EXPECT_EQ(plain.err, "");
  EXPECT_EQ(json.at("completion_tokens").to_number<int>(), static_cast<int>(json.at("tokens").get_array().size()));
}

TEST(GenerateTest, RulesForTokensAreKept) {
  const auto answer = [](std::vector<std::string> more) {
    more.insert(more.end(), {"--max-tokens", "64", "--temperature", "0", "--json"});
    return object_of(generate(more));
  };
  const auto ids_of = [](const boost::json::object& object) {
    return boost::json::value_to<std::vector<int32_t>>(object.at("tokens"));
  };
  const boost::json::object plain = answer({});
  const std::vector<int32_t> ids = ids_of(plain);
  ASSERT_GT(ids.size(), 8u);
  ASSERT_LT(ids.size(), 60u);
  ASSERT_NE(text(plain, "text").find("27"), std::string::npos);

  const std::vector<int32_t> long_ids = ids_of(answer({"--min-tokens", "60"}));
  EXPECT_GE(long_ids.size(), 60u);
  EXPECT_EQ(text(answer({"--bad-words", "27"}), "text").find("27"), std::string::npos);
  EXPECT_NE(ids_of(answer({"--logit-bias", std::to_string(ids[0]) + "=-100"})).at(0), ids[0]);
  EXPECT_NE(ids_of(answer({"--repetition-penalty", "20"})), ids);
  EXPECT_NE(ids_of(answer({"--presence-penalty", "2", "--min-tokens", "60"})), long_ids);
  EXPECT_NE(ids_of(answer({"--frequency-penalty", "2", "--min-tokens", "60"})), long_ids);

  const boost::json::object stopped = answer({"--stop-token-ids", std::to_string(ids[6])});
  const auto first = std::find(ids.begin(), ids.end(), ids[6]);
  EXPECT_EQ(ids_of(stopped), std::vector<int32_t>(ids.begin(), first));
  EXPECT_EQ(text(stopped, "finish_reason"), "stop");
}

TEST(GenerateTest, StopStringsEndTheTextAndAreNotPrinted) {
  const boost::json::object whole = object_of(generate({"--max-tokens", "40", "--temperature", "0", "--json"}));
  const std::string said = text(whole, "text");
  ASSERT_GT(said.size(), 12u);
  const std::string stop = said.substr(said.size() / 2, 5);
  const boost::json::object cut =
      object_of(generate({"--max-tokens", "40", "--temperature", "0", "--json", "--stop", "never", "--stop", stop}));
  EXPECT_EQ(text(cut, "text"), said.substr(0, said.find(stop)));
  EXPECT_EQ(text(cut, "stop"), stop);
  EXPECT_EQ(text(cut, "finish_reason"), "stop");
  EXPECT_LT(cut.at("completion_tokens").to_number<int>(), whole.at("completion_tokens").to_number<int>());
}

TEST(GenerateTest, ASeedFixesTheText) {
  const std::vector<std::string> flags = {"--max-tokens", "32", "--temperature", "1.5", "--ignore-eos", "--json"};
  const auto with_seed = [&](const char* seed) {
    std::vector<std::string> all = flags;
    all.insert(all.end(), {"--seed", seed});
    return text(object_of(generate(all)), "text");
  };
  EXPECT_EQ(with_seed("7"), with_seed("7"));
  EXPECT_NE(with_seed("7"), with_seed("8"));
}

TEST(GenerateTest, MaxTokensIsTheLength) {
  const boost::json::object json =
      object_of(generate({"--max-tokens", "9", "--ignore-eos", "--temperature", "0", "--json"}));
  EXPECT_EQ(json.at("completion_tokens").to_number<int>(), 9);
  EXPECT_EQ(text(json, "finish_reason"), "length");
}

TEST(GenerateTest, APromptMayComeFromStandardInput) {
  RunOptions options;
  options.input = kQuestion;
  const Outcome piped =
      run_lantern({"generate", "--prompt-file", "-", "--max-tokens", "16", "--temperature", "0", "--quiet"}, options);
  EXPECT_EQ(piped.out, generate({"--max-tokens", "16", "--temperature", "0", "--quiet"}).out);
}

TEST(GenerateTest, CtrlCKeepsWhatThereIs) {
  RunOptions options;
  options.interrupt_after_output_bytes = 1;
  const Outcome outcome = generate({"--max-tokens", "1900", "--ignore-eos", "--temperature", "0"}, options);
  EXPECT_EQ(outcome.exit_code, 130) << outcome.err;
  EXPECT_NE(outcome.out, "");
  EXPECT_NE(outcome.err.find("finished by cancelled"), std::string::npos) << outcome.err;
}

TEST(GenerateTest, AClosedPipeEndsIt) {
  RunOptions options;
  options.close_output_after_first_byte = true;
  const Outcome outcome = generate({"--max-tokens", "1900", "--ignore-eos", "--temperature", "0"}, options);
  EXPECT_LT(outcome.exit_code, 128) << outcome.err;
}

TEST(GenerateTest, TheEnvironmentNamesTheModel) {
  RunOptions options;
  options.environment = {"LANTERN_MODEL=/nonexistent/model"};
  EXPECT_EQ(generate({}, options).exit_code, 1);
}

TEST(TokenizeTest, ThereAndBack) {
  const std::string original = "Tom has 12 apples. \xe6\x97\xa5\xe6\x9c\xac <think>";
  const boost::json::object json = object_of(run_lantern({"tokenize", "--text", original, "--no-bos", "--json"}));
  EXPECT_EQ(text(json, "text"), original);
  std::string ids;
  for (const boost::json::value& id : json.at("tokens").get_array()) ids += boost::json::serialize(id) + " ";
  EXPECT_EQ(run_lantern({"tokenize", "--decode", ids}).out, original + "\n");
  const boost::json::object plain =
      object_of(run_lantern({"tokenize", "--text", original, "--no-bos", "--no-special-tokens", "--json"}));
  EXPECT_GT(plain.at("count").to_number<int>(), json.at("count").to_number<int>());
}

// Half a character is shown by its bytes: as U+FFFD all such tokens would look alike.
TEST(TokenizeTest, TokensThatAreNoCharactersAreShownByTheirBytes) {
  const std::string table = run_lantern({"tokenize", "--text", "\xc3\xa9!", "--no-bos"}).out;
  EXPECT_NE(table.find("\"\\xC3\"\n"), std::string::npos) << table;
  EXPECT_NE(table.find("\"\\xA9\"\n"), std::string::npos) << table;
  EXPECT_NE(table.find("\"!\"\n"), std::string::npos) << table;
}

TEST(ScoreTest, LogProbabilitiesAgreeWithTheirAlternatives) {
  const boost::json::object json =
      object_of(run_lantern({"score", "--text", kQuestion, "--top-logprobs", "2048", "--json"}).exit_code == 2
                    ? run_lantern({"score", "--text", kQuestion, "--top-logprobs", "20", "--json"})
                    : Outcome{.exit_code = -1, .out = "", .err = "2048 alternatives were taken"});
  const boost::json::array& tokens = json.at("tokens").get_array();
  const boost::json::array& logprobs = json.at("logprobs").get_array();
  const boost::json::array& top = json.at("top_logprobs").get_array();
  ASSERT_EQ(logprobs.size(), tokens.size());
  ASSERT_EQ(top.size(), tokens.size());
  EXPECT_TRUE(logprobs[0].is_null());
  double sum = 0;
  for (size_t i = 1; i < tokens.size(); ++i) {
    const double logprob = logprobs[i].to_number<double>();
    EXPECT_LE(logprob, 0);
    sum += logprob;
    double total = 0;
    double previous = 0;
    for (const boost::json::value& alternative : top[i].get_array()) {
      const double value = alternative.at("logprob").to_number<double>();
      EXPECT_LE(value, previous);
      previous = value;
      total += std::exp(value);
      if (alternative.at("token") == tokens[i]) {
        EXPECT_EQ(value, logprob);
      }
    }
    EXPECT_LE(total, 1.0001);
  }
  EXPECT_NEAR(json.at("sum").to_number<double>(), sum, 1e-4 * std::abs(sum));
}

TEST(ChatTest, TakesTurnsAndCommandsFromAPipe) {
  const auto saved = std::filesystem::temp_directory_path() / "lantern_chat_test.json";
  std::filesystem::remove(saved);
  RunOptions options;
  options.input = "Hello\n/nonsense\n/stats\n/save " + saved.string() + "\n/clear\n/quit\nnever said\n";
  const Outcome outcome =
      run_lantern({"chat", "--system", "Be brief.", "--max-tokens", "8", "--temperature", "0"}, options);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_NE(outcome.err.find("there is no /nonsense"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.out.find("1 turn;"), std::string::npos) << outcome.out;
  const boost::json::value conversation = boost::json::parse(read_file(saved));
  ASSERT_EQ(conversation.as_array().size(), 3u);
  EXPECT_EQ(conversation.as_array().at(0).at("role"), "system");
  EXPECT_EQ(conversation.as_array().at(1).at("content"), "Hello");
  EXPECT_EQ(conversation.as_array().at(2).at("role"), "assistant");
}

TEST(ChatTest, AnEmptyInputEndsIt) {
  const Outcome outcome = run_lantern({"chat"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "");
}

TEST(EvalTest, CountsWhatIsRight) {
  const auto task = std::filesystem::temp_directory_path() / "lantern_eval_test.jsonl";
  // The second answer is wrong on purpose.
  std::ofstream(task) << R"({"id": "a", "prompt": ")" << kQuestion
                      << R"(", "answer": "27", "extract": "([0-9]+)\\D*$", "max_tokens": 64, "stop": ["\nQuestion:"]})"
                      << "\n\n"
                      << R"({"id": "b", "prompt": ")" << kQuestion
                      << R"(", "answer": "28", "extract": "([0-9]+)\\D*$", "max_tokens": 64, "stop": ["\nQuestion:"]})"
                      << "\n";
  const auto items = std::filesystem::temp_directory_path() / "lantern_eval_test.out";
  const boost::json::object json =
      object_of(run_lantern({"eval", task.string(), "--json", "--output", items.string()}));
  EXPECT_EQ(text(json, "task"), "lantern_eval_test");
  EXPECT_EQ(json.at("items").to_number<int>(), 2);
  EXPECT_EQ(json.at("exact_match").to_number<double>(), 0.5);
  EXPECT_GT(json.at("seconds").to_number<double>(), 0);
  const std::string lines = read_file(items);
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 2);
  EXPECT_NE(lines.find("\"correct\": true, \"answer\": \"27\""), std::string::npos) << lines;
}

TEST(EvalTest, GraphsChangeNoAnswer) {
  const auto items = std::filesystem::temp_directory_path() / "lantern_eval_graphs_test.out";
  const auto eval = [&](std::vector<std::string> more) {
    std::vector<std::string> arguments = {
        "eval",        (std::filesystem::path(LANTERN_SOURCE_DIR) / "models/tiny/eval/arithmetic.jsonl").string(),
        "--limit",     "3",
        "--json",      "--output",
        items.string()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return object_of(run_lantern(arguments));
  };
  const boost::json::object eager = eval({});
  const std::string expected = read_file(items);
  EXPECT_EQ(text(eager, "graphs"), "none") << "auto on a CPU";
  EXPECT_EQ(eager.at("steps_replayed").to_number<int>(), 0);
  for (const char* const graphs : {"piecewise", "full", "full_and_piecewise", "verify"}) {
    for (const char* const drafts : {"0", "2"}) {
      const boost::json::object json = eval({"--graphs", graphs, "--draft-tokens", drafts});
      EXPECT_EQ(text(json, "graphs"), graphs);
      EXPECT_GT(json.at("num_graphs").to_number<int>(), 0);
      EXPECT_GT(json.at("steps_replayed").to_number<int>(), 3);
      EXPECT_EQ(read_file(items), expected) << graphs << ", " << drafts << " drafts";
    }
  }
}

TEST(ReferenceTest, TheCommandLineReferenceIsUpToDate) {
  const Outcome made = run_lantern({"help", "--markdown"});
  EXPECT_EQ(made.out, read_file(std::filesystem::path(LANTERN_SOURCE_DIR) / "docs" / "cli.md"))
      << "run: build/release/lantern help --markdown > docs/cli.md";
}

TEST(DoctorTest, FindsTheModelInOrder) {
  const boost::json::object json = object_of(run_lantern({"doctor", "--json"}));
  EXPECT_TRUE(json.at("ok").get_bool());
}

// The choice that a machine has no say in: FP8 and bf16 weights go to whatever the CPU has, exact products to Highway.
TEST(DispatchTest, IsExplainedByTheDoctor) {
  const boost::json::object json =
      object_of(run_lantern({"doctor", "--device", "cpu", "--explain-dispatch", "--json"}));
  EXPECT_TRUE(json.at("ok").get_bool());
  bool router = false;
  for (const boost::json::value& entry : json.at("dispatch").as_array()) {
    const boost::json::object& choice = entry.as_object();
    if (!choice.at("subject").as_string().starts_with("router")) continue;
    router = true;
    EXPECT_EQ(choice.at("op").as_string(), "linear");
    EXPECT_EQ(choice.at("chosen").as_string(), "linear.cpu.highway");
    EXPECT_EQ(choice.at("layers"), boost::json::value({1, 2, 3, 4, 5}));
    for (const boost::json::value& passed : choice.at("passed_over").as_array()) {
      EXPECT_FALSE(passed.as_object().at("reason").as_string().empty());
    }
  }
  EXPECT_TRUE(router);
  const Outcome text = run_lantern({"doctor", "--device", "cpu", "--explain-dispatch"});
  EXPECT_NE(text.out.find("linear: router, BF16 8 x 256, layers 1-5\n  rows 1-512: linear.cpu.highway\n"),
            std::string::npos)
      << text.out;
}

TEST(DispatchTest, IsExplainedBesideAnAnswer) {
  const Outcome outcome = run_lantern({"generate", "--device", "cpu", "--prompt", "Question:", "--max-tokens", "1",
                                       "--temperature", "0", "--explain-dispatch", "--require-impl", "linear.cpu.*"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_NE(outcome.err.find("linear: q_a_proj, BF16 128 x 256, layers 0-5\n"), std::string::npos) << outcome.err;
  EXPECT_EQ(outcome.out.find("linear"), std::string::npos) << outcome.out;
}

TEST(DispatchTest, WhatIsRequiredAndNotChosenEndsTheStart) {
  const std::vector<std::string> generate = {"generate", "--device",     "cpu", "--prompt",
                                             "x",        "--max-tokens", "1",   "--require-impl"};
  const auto requiring = [&](const char* patterns) {
    std::vector<std::string> line = generate;
    line.emplace_back(patterns);
    return run_lantern(line);
  };
  // Highway stands before it and takes everything.
  const Outcome fallback = requiring("linear.cpu.simple");
  EXPECT_EQ(fallback.exit_code, 1);
  EXPECT_NE(fallback.err.find("but linear.cpu.simple is required"), std::string::npos) << fallback.err;
  EXPECT_EQ(fallback.out, "");
  const Outcome unknown = requiring("linear.sm90a.*");
  EXPECT_EQ(unknown.exit_code, 1);
  EXPECT_NE(unknown.err.find("no implementation is called 'linear.sm90a.*'"), std::string::npos) << unknown.err;
  const Outcome empty = requiring("linear.*,");
  EXPECT_EQ(empty.exit_code, 2);
  EXPECT_NE(empty.err.find("--require-impl"), std::string::npos) << empty.err;
}

TEST(DoctorTest, ReplaysPlanGraphs) {
  const boost::json::object json =
      object_of(run_lantern({"doctor", "--check-graphs", "--device", "cpu", "--replays", "300", "--json"}));
  EXPECT_TRUE(json.at("ok").get_bool());
  EXPECT_EQ(json.at("device").get_string(), "cpu (1 threads)");
  EXPECT_EQ(json.at("buckets").to_number<int>(), 19);
  EXPECT_EQ(json.at("replays").to_number<int>(), 300);
  EXPECT_EQ(json.at("mismatches").to_number<int>(), 0);
  EXPECT_GT(json.at("graph_bytes").to_number<int>(), 19 * 1000);
  EXPECT_GT(json.at("seconds").to_number<double>(), json.at("capture_seconds").to_number<double>());
  EXPECT_TRUE(json.at("first_mismatch").is_null());
  const Outcome text = run_lantern({"doctor", "--check-graphs", "--device", "cpu", "--replays", "10"});
  EXPECT_EQ(text.exit_code, 0);
  EXPECT_NE(text.out.find("mismatches 0"), std::string::npos) << text.out;
}

TEST(HelpTest, EveryKindOfHelp) {
  EXPECT_NE(run_lantern({"--help"}).out.find("  generate         Continue a prompt\n"), std::string::npos);
  EXPECT_NE(run_lantern({"--help"}).out.find("  bench throughput Speed of"), std::string::npos);
  EXPECT_NE(run_lantern({"bench", "step", "--help"}).out.find("--dummy"), std::string::npos);
  EXPECT_NE(run_lantern({"help", "bench", "step"}).out.find("--dummy"), std::string::npos);
  EXPECT_EQ(run_lantern({"--version"}).out.rfind("lantern ", 0), 0u);
}

}  // namespace
}  // namespace lantern::test
