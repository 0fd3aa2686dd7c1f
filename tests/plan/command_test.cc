// `lantern plan` as a user runs it.
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <filesystem>
#include <fstream>

#include "../cli/process.h"

namespace lantern::test {
namespace {

namespace json = boost::json;

std::string case_path(const std::string& name) {
  return std::string(LANTERN_SOURCE_DIR) + "/tests/plan/cases/" + name + ".json";
}

json::value parsed(const Outcome& outcome) {
  boost::system::error_code failure;
  json::value value = json::parse(outcome.out, failure);
  EXPECT_FALSE(failure) << outcome.out << outcome.err;
  return value;
}

std::string text(const json::value& value) { return json::serialize(value); }

// Plans a batch given as text.
Outcome plan(const std::string& batch, bool as_json = true) {
  std::vector<std::string> arguments = {"plan", "--input", "-"};
  if (as_json) arguments.push_back("--json");
  RunOptions options;
  options.input = batch;
  return run_lantern(arguments, options);
}

// The shipped case with one field set to the JSON text `value`, or taken away where it is empty.
std::string with(const std::string& field, const std::string& value, const std::string& inside = "") {
  json::value document = json::parse(read_file(case_path("mixed_decode")));
  json::object& object = inside.empty() ? document.get_object() : document.at(inside).get_object();
  if (value.empty()) {
    object.erase(field);
  } else {
    object[field] = json::parse(value);
  }
  return text(document);
}

TEST(PlanCommand, MixedDecode) {
  const Outcome outcome = run_lantern({"plan", "--input", case_path("mixed_decode"), "--json"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  const json::value plan = parsed(outcome);
  EXPECT_EQ(text(plan.at("token_context_len")), "[8,9,10,7,9,10,11,12,0,0,0,0]");
  EXPECT_EQ(text(plan.at("token_request")), "[0,0,0,1,2,2,2,2,-1,-1,-1,-1]");
  EXPECT_EQ(text(plan.at("slot_mapping")), "[199,200,201,326,136,137,138,139,-1,-1,-1,-1]");
  EXPECT_EQ(text(plan.at("views").at("per_request").at("context_lens")),
            "[[8,9,10,10],[7,7,7,7],[9,10,11,12],[0,0,0,0]]");
  EXPECT_EQ(text(plan.at("errors")), "[]");
  EXPECT_EQ(plan.as_object().if_contains("schedules"), nullptr);
  EXPECT_EQ(plan.as_object().if_contains("draft"), nullptr);
  EXPECT_EQ(plan.as_object().if_contains("compressed"), nullptr);
}

TEST(PlanCommand, EverySectionOfAFullCase) {
  const Outcome outcome = run_lantern({"plan", "--input", case_path("everything"), "--json"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  const json::value plan = parsed(outcome);
  for (const char* name : {"num_decodes", "num_prefills", "num_decode_tokens", "num_prefill_tokens", "token_request",
                           "token_context_len", "slot_mapping", "compressed", "local_context_lens", "views",
                           "schedules", "prefill_chunks", "draft", "errors"}) {
    EXPECT_NE(plan.as_object().if_contains(name), nullptr) << name;
  }
  EXPECT_EQ(text(plan.at("num_decodes")), "2");
  EXPECT_EQ(text(plan.at("num_prefills")), "1");
  EXPECT_EQ(text(plan.at("token_context_len")), "[297,298,299,300,999,1000,5,6,7,8,9,0]");
  EXPECT_EQ(text(plan.at("compressed").at("context_lens")), "[74,74,74,75,249,250,1,1,1,2,2,0]");
  EXPECT_EQ(text(plan.at("compressed").at("slot_mapping")), "[-1,-1,-1,74,-1,377,-1,-1,-1,65,-1,-1]");
  EXPECT_EQ(text(plan.at("local_context_lens")), "[149,149,150,150,500,500,3,3,4,4,5,0]");
  EXPECT_EQ(
      text(plan.at("prefill_chunks")),
      R"([{"requests":[2,3],"tokens":[6,8]},{"requests":[2,3],"tokens":[8,10]},{"requests":[2,3],"tokens":[10,11]}])");
  EXPECT_EQ(text(plan.at("draft").at(0).at("seq_lens")), "[299,1001,10]");
  EXPECT_EQ(text(plan.at("draft").at(1).at("positions")), "[299,1001,10]");
  EXPECT_EQ(text(plan.at("draft").at(0).at("token_indices")), "[1,5,10]");
  EXPECT_EQ(plan.at("draft").as_array().size(), 2u);
  EXPECT_EQ(plan.at("schedules").at("paged_mqa_sm90").as_array().size(), 5u);
  EXPECT_EQ(plan.at("schedules").at("mla").at("num_splits").as_array().size(), 4u);
}

TEST(PlanCommand, AListComesOutAsAList) {
  const std::string batch = read_file(case_path("mixed_decode"));
  const json::value plans = parsed(plan("[" + batch + "," + batch + "]"));
  ASSERT_EQ(plans.as_array().size(), 2u);
  EXPECT_EQ(plans.at(0), plans.at(1));
  EXPECT_EQ(text(parsed(plan("[]"))), "[]");
}

TEST(PlanCommand, PoisonChangesNothing) {
  EXPECT_EQ(plan(with("poison", "true")).out, plan(with("poison", "false")).out);
}

TEST(PlanCommand, WhatLiesBeyondTheCountsIsNotLookedAt) {
  const std::string plain = plan(read_file(case_path("mixed_decode"))).out;
  EXPECT_EQ(plan(with("seq_lens", R"([10, 7, 12, 0, -9, "x", null])")).out, plain);
  EXPECT_EQ(plan(with("query_start_loc", "[0, 3, 4, 8, 8, 2, 99999999999, {}]")).out, plain);
  EXPECT_EQ(plan(with("block_table", R"([[3, 0, "x"], [5, 0], [2, 0], [0, 0], 7])")).out, plain);
}

TEST(PlanCommand, AFaultyBatchIsPlannedNamedAndExitsWithOne) {
  const Outcome outcome = plan(with("seq_lens", "[10, 7, 3, 0]"));
  EXPECT_EQ(outcome.exit_code, 1);
  const json::value result = parsed(outcome);
  EXPECT_EQ(text(result.at("token_context_len")), "[8,9,10,7,0,0,0,0,0,0,0,0]");
  ASSERT_EQ(result.at("errors").as_array().size(), 1u);
  const json::value& error = result.at("errors").at(0);
  EXPECT_EQ(text(error.at("request")), "2");
  EXPECT_EQ(error.at("code").as_string(), "seq_len_below_query_len");
  EXPECT_NE(error.at("message").as_string().find("request 2 has tokens 4 to 8 and length 3"), std::string::npos);
  // As tables, the same.
  const Outcome tables = plan(with("seq_lens", "[10, 7, 3, 0]"), false);
  EXPECT_EQ(tables.exit_code, 1);
  EXPECT_NE(tables.out.find("error seq_len_below_query_len"), std::string::npos) << tables.out;
}

TEST(PlanCommand, NumbersBeyond32BitsAreFaultsAndNotWrapped) {
  const json::value result = parsed(plan(with("seq_lens", "[4294967306, 7, 12, 0]")));
  EXPECT_EQ(result.at("errors").at(0).at("code").as_string(), "seq_len_above_max_model_len");
}

TEST(PlanCommand, WrongInputIsOneSentenceThatNamesTheField) {
  const std::pair<std::string, std::string> cases[] = {
      {"", "not JSON"},
      {"{", "not JSON"},
      {"7", "a batch must be a JSON object"},
      {"[7]", "batch 0: a batch must be a JSON object"},
      {"{}", "\"limits\" is missing"},
      {with("limits", "5"), "\"limits\" must be an object"},
      {with("max_tokens", "", "limits"), "\"limits.max_tokens\" is missing"},
      {with("max_tokens", "1.5", "limits"), "\"limits.max_tokens\" must be a whole number"},
      {with("max_tokens", "\"16\"", "limits"), "\"limits.max_tokens\" must be a whole number"},
      {with("max_tokens", "8", "limits"), "limits: max_tokens is 8, but"},
      {with("block_size", "0", "limits"), "limits: block_size is 0"},
      {with("num_requests", "5"), "\"num_requests\" must be between 0 and limits.max_requests, 4"},
      {with("num_requests", "-1"), "\"num_requests\" must be between"},
      {with("num_tokens", "17"), "\"num_tokens\" must be between 0 and limits.max_tokens, 16"},
      {with("query_start_loc", "[0, 3]"), "\"query_start_loc\" has 2 entries, but the batch needs 5"},
      {with("seq_lens", ""), "\"seq_lens\" is missing"},
      {with("seq_lens", "[10, 7, true, \"x\"]"), "\"seq_lens[3]\" must be a whole number"},
      {with("block_table", "[[1]]"), "\"block_table\" has 1 rows, but the batch needs 4"},
      {with("block_table", "[1, 2, 3, 4]"), "\"block_table[0]\" must be an array"},
      {with("tokens", "17", "bucket"), "bucket tokens is 17"},
      {with("query_width", "0", "bucket"), "bucket query_width is 0"},
      {with("dcp", R"({"world": 2, "rank": 2})"), "dcp rank is 2"},
      {with("dcp", R"({"world": 2})"), "\"dcp.rank\" is missing"},
      {with("compress_ratio", "0"), "\"compress_ratio\" must be at least 1"},
      {with("workers", "-2"), "\"workers\" must be at least 1"},
      {with("mla", R"({"heads": 128})"), "\"mla.parts\" is missing"},
      {with("mla", R"({"parts": 0})"), "mla parts is 0"},
      {with("mla", R"({"parts": 1025})"), "mla parts is 1025, but must be from 1 to 1024"},
      {with("prefill", R"({"workspace_tokens": 10})"), "\"prefill.logits_bytes\" is missing"},
      {with("accepted", "[1]"), "\"accepted\" has 1 entries"},
      {with("poison", "1"), "\"poison\" must be true or false"},
  };
  for (const auto& [batch, sentence] : cases) {
    const Outcome outcome = plan(batch);
    EXPECT_EQ(outcome.exit_code, 1) << batch;
    EXPECT_EQ(outcome.out, "") << batch;
    EXPECT_TRUE(outcome.err.starts_with("lantern: error: ")) << outcome.err;
    EXPECT_NE(outcome.err.find(sentence), std::string::npos) << "wanted: " << sentence << "\ngot: " << outcome.err;
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  }
  EXPECT_EQ(run_lantern({"plan", "--input", "/nonexistent.json"}).exit_code, 1);
  EXPECT_EQ(run_lantern({"plan"}).exit_code, 2);
}

TEST(PlanCommand, UnknownFieldsAreSaidToBeLeftOut) {
  const Outcome outcome = plan(with("seqlens", "[1]"));
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_NE(outcome.err.find("seqlens is not a field"), std::string::npos) << outcome.err;
}

// Every prefix of a good file, and every file with one byte changed, ends in a plan or a sentence, never in a crash.
TEST(PlanCommand, DamagedFilesNeverCrash) {
  const std::string good = read_file(case_path("everything"));
  for (size_t cut = 0; cut < good.size(); cut += 37) {
    const Outcome outcome = plan(good.substr(0, cut));
    EXPECT_EQ(outcome.exit_code, 1) << cut << outcome.err;
  }
  for (size_t at = 5; at < good.size(); at += 23) {
    std::string damaged = good;
    damaged[at] = "9-}"[at % 3];
    const Outcome outcome = plan(damaged);
    EXPECT_TRUE(outcome.exit_code == 0 || outcome.exit_code == 1 || outcome.exit_code == 3)
        << at << " exit " << outcome.exit_code << outcome.err;
  }
}

// The examples of the guide are what the tool prints.
TEST(PlanCommand, TheGuideShowsWhatTheToolPrints) {
  const std::string guide = read_file(std::string(LANTERN_SOURCE_DIR) + "/docs/plan.md");
  const Outcome tables = run_lantern({"plan", "--input", case_path("mixed_decode")});
  EXPECT_NE(guide.find(tables.out), std::string::npos) << tables.out;
  const Outcome faulty = run_lantern({"plan", "--input", case_path("decode_after_prefill")});
  EXPECT_EQ(faulty.exit_code, 1);
  EXPECT_NE(guide.find(faulty.out), std::string::npos) << faulty.out;
}

}  // namespace
}  // namespace lantern::test
