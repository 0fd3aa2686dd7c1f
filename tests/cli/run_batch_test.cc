// `lantern run-batch` as a user runs it: what the results hold, and that nothing that was finished is ever lost.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <chrono>
#include <csignal>
#include <fstream>
#include <map>
#include <thread>

#include "process.h"

namespace lantern::test {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

const char* const kQuestion =
    "Question: Tom has 12 apples. He buys 3 bags with 5 apples each. How many apples does he have now?";

class RunBatchTest : public ::testing::Test {
 protected:
  RunBatchTest() {
    std::string name = (fs::temp_directory_path() / "lantern_batch_XXXXXX").string();
    dir_ = mkdtemp(name.data());
  }
  ~RunBatchTest() override { fs::remove_all(dir_); }

  std::string path(const char* name) const { return (dir_ / name).string(); }
  void write(const char* name, const std::string& text) const { std::ofstream(dir_ / name, std::ios::binary) << text; }

  std::vector<std::string> command(std::vector<std::string> more = {}) const {
    std::vector<std::string> all = {"run-batch",      "-i", path("in.jsonl"),    "-o",   path("out.jsonl"),
                                    "--max-num-seqs", "8",  "--kv-cache-memory", "128Mi"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  // By custom_id; the id where there is none.
  std::map<std::string, json::object> results() const {
    std::map<std::string, json::object> all;
    std::ifstream file(dir_ / "out.jsonl");
    for (std::string line; std::getline(file, line);) {
      json::error_code failure;
      json::value document = json::parse(line, failure);
      if (failure || !document.is_object()) {
        ADD_FAILURE() << "not a result: " << line;
        continue;
      }
      json::object& object = document.get_object();
      const json::value& key = object.at(object.at("custom_id").is_string() ? "custom_id" : "id");
      const std::string name = json::value_to<std::string>(key);
      EXPECT_TRUE(all.emplace(name, object).second) << name << " is there twice";
    }
    return all;
  }

  fs::path dir_;
};

std::string line_of(const std::string& custom_id, const std::string& body, bool chat = false) {
  return R"({"custom_id": ")" + custom_id + R"(", "method": "POST", "url": ")" +
         (chat ? "/v1/chat/completions" : "/v1/completions") + R"(", "body": )" + body + "}\n";
}

const json::object& body_of(const json::object& result, int status) {
  EXPECT_EQ(result.at("response").at("status_code").to_number<int>(), status) << json::serialize(result);
  EXPECT_TRUE(result.at("error").is_null());
  return result.at("response").at("body").get_object();
}
std::string text(const json::value& value) { return json::value_to<std::string>(value); }
std::string first_text(const json::object& result) { return text(body_of(result, 200).at("choices").at(0).at("text")); }

TEST_F(RunBatchTest, CompletionsAreWhatGenerateSays) {
  const std::string prompt = json::serialize(json::string(kQuestion));
  write("in.jsonl",
        line_of("plain", R"({"model": "tiny", "temperature": 0, "max_tokens": 40, "prompt": )" + prompt + "}") +
            line_of("twice",
                    R"({"temperature": 0, "max_tokens": 12, "n": 2, "prompt": [)" + prompt + ", " + prompt + "]}") +
            line_of("echo", R"({"temperature": 0, "max_tokens": 40, "echo": true, "prompt": )" + prompt + "}") +
            line_of("seed 1", R"({"temperature": 2, "seed": 5, "max_tokens": 20, "ignore_eos": true, "prompt": )" +
                                  prompt + "}") +
            line_of("seed 2", R"({"temperature": 2, "seed": 5, "max_tokens": 20, "ignore_eos": true, "prompt": )" +
                                  prompt + "}") +
            line_of("ids", R"({"temperature": 0, "max_tokens": 5, "prompt": [[0, 50, 60], [0, 70]]})"));
  const Outcome outcome = run_lantern(command());
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_NE(outcome.err.find("6 answered, 0 errors"), std::string::npos) << outcome.err;
  const auto all = results();
  ASSERT_EQ(all.size(), 6u);

  Outcome generated =
      run_lantern({"generate", "--prompt", kQuestion, "--max-tokens", "40", "--temperature", "0", "--json", "--quiet"});
  const json::object said = json::parse(generated.out).get_object();
  EXPECT_EQ(first_text(all.at("plain")), text(said.at("text")));
  const json::object& body = body_of(all.at("plain"), 200);
  EXPECT_EQ(text(body.at("object")), "text_completion");
  EXPECT_EQ(text(body.at("model")), "tiny");
  EXPECT_EQ(text(body.at("choices").at(0).at("finish_reason")), text(said.at("finish_reason")));
  EXPECT_TRUE(body.at("choices").at(0).at("stop_reason").is_null()) << "the model's own end";
  EXPECT_EQ(body.at("usage").at("prompt_tokens"), said.at("prompt_tokens"));
  // The end-of-sequence token counts.
  EXPECT_EQ(body.at("usage").at("completion_tokens").to_number<int>(),
            said.at("completion_tokens").to_number<int>() + (text(said.at("finish_reason")) == "stop" ? 1 : 0));

  EXPECT_EQ(first_text(all.at("echo")), kQuestion + text(said.at("text")));
  const json::array& twice = body_of(all.at("twice"), 200).at("choices").get_array();
  ASSERT_EQ(twice.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(twice[i].at("index").to_number<size_t>(), i);
    EXPECT_EQ(text(twice[i].at("text")), text(said.at("text")).substr(0, text(twice[i].at("text")).size()));
  }
  EXPECT_EQ(first_text(all.at("seed 1")), first_text(all.at("seed 2")));
  EXPECT_EQ(body_of(all.at("ids"), 200).at("choices").get_array().size(), 2u);
}

TEST_F(RunBatchTest, ChatsAreEncodedAndSplit) {
  write("in.jsonl",
        line_of("chat",
                R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "What is 6 times 7?"}]}], )"
                R"("temperature": 0, "max_completion_tokens": 64})",
                true) +
            line_of("other",
                    R"({"messages": [{"role": "user", "content": "What is 6 times 7?"}], "temperature": 0, )"
                    R"("max_tokens": 64, "user": "x", "unknown_field": 1})",
                    true));
  const Outcome outcome = run_lantern(command({"--quiet"}));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  const auto all = results();
  ASSERT_EQ(all.size(), 2u);
  const json::object& body = body_of(all.at("chat"), 200);
  EXPECT_EQ(text(body.at("object")), "chat.completion");
  const json::object& message = body.at("choices").at(0).at("message").get_object();
  EXPECT_EQ(text(message.at("role")), "assistant");
  EXPECT_NE(text(message.at("content")), "");
  EXPECT_EQ(text(message.at("content")).find("<｜"), std::string::npos) << "control tokens are no content";
  EXPECT_EQ(message, body_of(all.at("other"), 200).at("choices").at(0).at("message").get_object());
}

// The numbers are those of `lantern score` for the same text.
TEST_F(RunBatchTest, LogprobsOfCompletions) {
  const std::string prompt = json::serialize(json::string(kQuestion));
  write(
      "in.jsonl",
      line_of("echo", R"({"temperature": 0, "max_tokens": 1, "echo": true, "logprobs": 2, "prompt": )" + prompt + "}") +
          line_of("only", R"({"max_tokens": 0, "echo": true, "logprobs": 2, "prompt": )" + prompt + "}") +
          line_of("out", R"({"temperature": 0, "max_tokens": 16, "logprobs": 0, "prompt": )" + prompt + "}") +
          line_of("list", R"({"max_tokens": 1, "echo": true, "logprobs": 1, "prompt": [[0, 50, 60], [0, 70]]})") +
          line_of("vllm", R"({"max_tokens": 1, "prompt_logprobs": 1, "prompt": [0, 50, 60]})"));
  const Outcome outcome = run_lantern(command({"--draft-tokens", "2"}));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const auto all = results();
  const Outcome scored = run_lantern({"score", "--text", kQuestion, "--top-logprobs", "2", "--json", "--quiet"});
  const json::object scores = json::parse(scored.out).get_object();
  const json::array& expected = scores.at("logprobs").get_array();
  const auto lists = [&](const char* name, size_t choice = 0) -> const json::object& {
    return body_of(all.at(name), 200).at("choices").at(choice).at("logprobs").get_object();
  };

  for (const char* name : {"echo", "only"}) {
    const json::object& logprobs = lists(name);
    const json::array& values = logprobs.at("token_logprobs").get_array();
    const size_t length = expected.size() + (std::string_view(name) == "echo" ? 1 : 0);
    for (const char* list : {"tokens", "token_logprobs", "top_logprobs", "text_offset"})
      ASSERT_EQ(logprobs.at(list).get_array().size(), length) << name << ", " << list;
    EXPECT_TRUE(values[0].is_null() && logprobs.at("top_logprobs").at(0).is_null());
    std::string whole;
    for (size_t t = 0; t < length; ++t) {
      const std::string token = text(logprobs.at("tokens").at(t));
      EXPECT_EQ(logprobs.at("text_offset").at(t).to_number<size_t>(), whole.size()) << "the text is ASCII";
      if (t > 0 || token != "<｜begin▁of▁sentence｜>") whole += token;
      if (t == 0) continue;
      const json::object& top = logprobs.at("top_logprobs").at(t).get_object();
      EXPECT_EQ(top.at(token), values[t]);
      EXPECT_TRUE(top.size() == 2 || top.size() == 3) << json::serialize(top);
      if (t < expected.size()) {
        EXPECT_NEAR(values[t].to_number<double>(), expected[t].to_number<double>(), 1e-6) << "token " << t;
      }
    }
    EXPECT_TRUE(whole.starts_with(kQuestion)) << whole;
    EXPECT_EQ(whole, first_text(all.at(name)));
  }
  EXPECT_EQ(body_of(all.at("only"), 200).at("usage").at("completion_tokens"), 0);
  EXPECT_EQ(text(body_of(all.at("only"), 200).at("choices").at(0).at("finish_reason")), "length");

  // Greedy: the chosen token is the only one of its dictionary.
  for (const json::value& top : lists("out").at("top_logprobs").get_array()) EXPECT_EQ(top.get_object().size(), 1u);
  EXPECT_EQ(lists("out").at("text_offset").at(0), 0);
  // Ids are echoed as they were given: no token is added.
  EXPECT_EQ(lists("list", 0).at("tokens").get_array().size(), 4u);
  EXPECT_EQ(lists("list", 1).at("tokens").get_array().size(), 3u);
  const json::array& of_prompt = body_of(all.at("vllm"), 200).at("choices").at(0).at("prompt_logprobs").get_array();
  ASSERT_EQ(of_prompt.size(), 3u);
  EXPECT_TRUE(of_prompt[0].is_null());
  EXPECT_TRUE(of_prompt[2].at("60").at("rank").to_number<int>() >= 1);
  EXPECT_EQ(of_prompt[2].at("60").at("logprob"), lists("list", 0).at("token_logprobs").at(2));
}

TEST_F(RunBatchTest, LogprobsOfChats) {
  const std::string start = R"({"messages": [{"role": "user", "content": "What is 6 times 7?"}], "max_tokens": 24, )";
  write("in.jsonl", line_of("with", start + R"("temperature": 0, "logprobs": true, "top_logprobs": 3})", true) +
                        line_of("own", start + R"("temperature": 0, "logprobs": true})", true) +
                        line_of("none", start + R"("temperature": 0, "logprobs": false, "top_logprobs": 0})", true) +
                        line_of("no bool", start + R"("logprobs": 3})", true) +
                        line_of("alone", start + R"("top_logprobs": 3})", true) +
                        line_of("many", start + R"("logprobs": true, "top_logprobs": 21})", true) +
                        line_of("bool", R"({"prompt": "Hello", "logprobs": true})") +
                        line_of("all", R"({"prompt": "Hello", "logprobs": -1})"));
  const Outcome outcome = run_lantern(command({"--quiet"}));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const auto all = results();
  const auto choice = [&](const char* name) { return body_of(all.at(name), 200).at("choices").at(0).get_object(); };
  const json::array content = choice("with").at("logprobs").at("content").get_array();
  const int64_t tokens = body_of(all.at("with"), 200).at("usage").at("completion_tokens").to_number<int64_t>();
  ASSERT_EQ(static_cast<int64_t>(content.size()), tokens);
  for (size_t t = 0; t < content.size(); ++t) {
    const json::object& token = content[t].get_object();
    const json::array& top = token.at("top_logprobs").get_array();
    ASSERT_EQ(top.size(), 3u);
    EXPECT_EQ(top[0].at("token"), token.at("token")) << "greedy";
    EXPECT_EQ(top[0].at("logprob"), token.at("logprob"));
    std::string bytes;
    for (const json::value& byte : token.at("bytes").get_array()) bytes += static_cast<char>(byte.to_number<int>());
    EXPECT_EQ(bytes, text(token.at("token"))) << "ASCII, or a control token";
    EXPECT_EQ(choice("own").at("logprobs").at("content").at(t).at("logprob"), token.at("logprob"));
    EXPECT_TRUE(choice("own").at("logprobs").at("content").at(t).at("top_logprobs").get_array().empty());
  }
  EXPECT_TRUE(choice("none").at("logprobs").is_null());
  EXPECT_EQ(choice("none").at("message"), choice("with").at("message"));
  const auto fault = [&](const char* name) { return text(body_of(all.at(name), 400).at("error").at("message")); };
  EXPECT_EQ(fault("no bool"), "logprobs must be true or false, not a number");
  EXPECT_EQ(fault("alone"), "top_logprobs needs logprobs; set that to true");
  EXPECT_EQ(fault("many"), "top_logprobs must be a whole number from 0 to 20, not 21");
  EXPECT_EQ(fault("bool"), "logprobs must be a whole number from 0 to 20, not true or false");
  EXPECT_EQ(fault("all"), "logprobs must be a whole number from 0 to 20, not -1");
}

TEST_F(RunBatchTest, WhatIsWrongIsSaidLineByLine) {
  const std::string good = R"({"prompt": "Hello", "max_tokens": 2})";
  write("in.jsonl",
        line_of("good", good) + "this is not JSON\n\n" + R"({"method": "POST", "url": "/v1/completions", "body": {}})" +
            "\n" + line_of("good", good) +
            R"({"custom_id": "get", "method": "GET", "url": "/v1/completions", "body": {}})" + "\n" +
            R"({"custom_id": "url", "method": "POST", "url": "/v1/embeddings", "body": {}})" + "\n" +
            R"({"custom_id": "no body", "method": "POST", "url": "/v1/completions"})" + "\n" +
            line_of("hot", R"({"prompt": "Hello", "temperature": "hot"})") +
            line_of("model", R"({"prompt": "Hello", "model": "gpt-4"})") +
            line_of("stream", R"({"prompt": "Hello", "stream": true})") +
            line_of("long", R"({"prompt": "Hello", "max_tokens": 5000})") + line_of("id", R"({"prompt": [2048]})") +
            line_of("none", R"({})") + line_of("role", R"({"messages": [{"role": "robot", "content": "x"}]})", true) +
            line_of("tools", R"({"messages": [{"role": "user", "content": "x"}], "tools": [{"type": "function"}]})",
                    true) +
            line_of("penalty", R"({"prompt": "Hello", "presence_penalty": 3})") +
            line_of("bias", R"({"prompt": "Hello", "logit_bias": {"x": 1}})"));
  const Outcome outcome = run_lantern(command());
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_NE(outcome.err.find("1 answered, 16 errors"), std::string::npos) << outcome.err;
  const auto all = results();
  EXPECT_EQ(all.size(), 15u + 2u);
  const auto line_fault = [&](const std::string& name) {
    const json::object& result = all.at(name);
    EXPECT_TRUE(result.at("response").is_null());
    return text(result.at("error").at("message"));
  };
  EXPECT_EQ(line_fault("get"), "line 6: method is 'GET'; use POST");
  EXPECT_EQ(line_fault("url"), "line 7: url is '/v1/embeddings'; use /v1/completions or /v1/chat/completions");
  EXPECT_EQ(line_fault("no body"), "line 8: body is missing; it is a JSON object");
  std::vector<std::string> nameless;
  for (const auto& [name, result] : all) {
    if (result.at("custom_id").is_null()) nameless.push_back(text(result.at("error").at("message")));
  }
  std::ranges::sort(nameless);
  ASSERT_EQ(nameless.size(), 3u);
  EXPECT_TRUE(nameless[0].starts_with("line 2: is not JSON: ")) << nameless[0];
  EXPECT_EQ(nameless[1], "line 4: custom_id is missing; give every request a name of its own");
  EXPECT_EQ(nameless[2], "line 5: custom_id 'good' is that of line 1 already");

  const auto fault = [&](const std::string& name, int status = 400) {
    const json::value& error = body_of(all.at(name), status).at("error");
    return text(error.at("message"));
  };
  EXPECT_EQ(fault("hot"), "temperature must be a number from 0 to 100, not a string");
  EXPECT_EQ(fault("model", 404), "the model 'gpt-4' is not served here; ask for 'tiny'");
  EXPECT_EQ(fault("stream"), "stream is not supported: a batch has no streams");
  EXPECT_NE(fault("long").find("the context holds 2048"), std::string::npos) << fault("long");
  EXPECT_EQ(fault("id"), "prompt must be a list of token ids from 0 to 2047, but item 0 is 2048");
  EXPECT_EQ(fault("none"), "prompt is missing; give a string, a list of strings, or lists of token ids");
  EXPECT_EQ(fault("role"), "messages[0]: role is 'robot'; use system, developer, user, assistant or tool");
  EXPECT_EQ(fault("tools").find("tools[0] must be {\"type\": \"function\""), 0u) << fault("tools");
  EXPECT_EQ(fault("penalty"), "presence_penalty must be a number from -2 to 2, not 3");
  EXPECT_EQ(fault("bias"), "logit_bias has the key 'x', but keys are token ids from 0 to 2047");

  // The same again runs nothing, faults included.
  const std::string before = read_file(path("out.jsonl"));
  const Outcome again = run_lantern(command());
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_NE(again.err.find("0 answered, 0 errors, 17 of 17 done before"), std::string::npos) << again.err;
  EXPECT_EQ(read_file(path("out.jsonl")), before);
}

std::string batch_of(const std::vector<int32_t>& lengths) {
  std::string lines;
  for (size_t i = 0; i < lengths.size(); ++i) {
    lines +=
        line_of(fmt::format("r{}", i),
                fmt::format(R"({{"prompt": "Question {}", "max_tokens": {}, "ignore_eos": true, "temperature": 0}})", i,
                            lengths[i]));
  }
  return lines;
}

// Starts the command, waits until `lines` results are there, and sends the signal. Returns how it ended.
int run_and_signal(const std::vector<std::string>& arguments, const fs::path& output, int64_t lines, int signal) {
  const pid_t child = fork();
  if (child == 0) {
    std::freopen("/dev/null", "w", stderr);
    execute_lantern(arguments, {});
  }
  int status = 0;
  bool ended = false;
  for (int32_t i = 0; i < 30'000 && !ended; ++i) {  // five minutes, on a machine with other work
    std::ifstream file(output);
    const std::string all(std::istreambuf_iterator<char>(file), {});
    if (std::ranges::count(all, '\n') >= lines) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    ended = waitpid(child, &status, WNOHANG) == child;
  }
  if (!ended) {
    kill(child, signal);
    waitpid(child, &status, 0);
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

TEST_F(RunBatchTest, AnInterruptedRunGoesOnWhereItWas) {
  // Short ones that are there when it is interrupted, and long ones that are not.
  constexpr int64_t kShort = 12;
  std::vector<int32_t> lengths(kShort, 24);
  lengths.insert(lengths.end(), 2, 300);
  const auto count = static_cast<int64_t>(lengths.size());
  write("in.jsonl", batch_of(lengths));
  std::string before;
  int64_t finished = 0;
  for (const int signal : {SIGINT, SIGKILL}) {
    EXPECT_EQ(run_and_signal(command(), path("out.jsonl"), std::min(finished + 3, kShort), signal),
              signal == SIGINT ? 130 : 128 + SIGKILL);
    const std::string now = read_file(path("out.jsonl"));
    EXPECT_TRUE(now.starts_with(before)) << "what was finished stays";
    before = now.substr(0, now.rfind('\n') + 1);
    finished = std::ranges::count(before, '\n');
    EXPECT_GE(finished, 3);
    ASSERT_LT(finished, count);
  }
  // A line that was being written when the machine went down.
  std::ofstream(path("out.jsonl"), std::ios::app) << R"({"id": "batch_req_7", "custom_id": "r13", "respo)";
  const Outcome rest = run_lantern(command());
  ASSERT_EQ(rest.exit_code, 0) << rest.err;
  const std::string all = read_file(path("out.jsonl"));
  EXPECT_TRUE(all.starts_with(before));
  EXPECT_EQ(results().size(), lengths.size());
  for (const auto& [name, result] : results()) {
    EXPECT_EQ(body_of(result, 200).at("usage").at("completion_tokens"),
              lengths[static_cast<size_t>(std::stoi(name.substr(1)))])
        << name;
  }

  // The same as a run that nobody disturbed, but for names and times.
  fs::rename(path("out.jsonl"), path("disturbed.jsonl"));
  const auto disturbed = [&] {
    fs::copy_file(path("disturbed.jsonl"), path("out.jsonl"));
    auto read = results();
    fs::remove(path("out.jsonl"));
    return read;
  }();
  ASSERT_EQ(run_lantern(command({"--quiet"})).exit_code, 0);
  for (const auto& [name, result] : results()) EXPECT_EQ(first_text(result), first_text(disturbed.at(name))) << name;
}

// A script sees by the exit code that a file was not for this model, in a later run as well.
TEST_F(RunBatchTest, ABatchWithoutAnAnswerFails) {
  const std::string wrong = "not JSON\n" + line_of("model", R"({"prompt": "Hello", "model": "gpt-4"})");
  write("in.jsonl", wrong);
  for (const char* run : {"first", "again"}) {
    const Outcome outcome = run_lantern(command({"--quiet"}));
    EXPECT_EQ(outcome.exit_code, 1) << run;
    EXPECT_NE(outcome.err.find("none of the 2 requests of " + path("in.jsonl") + " has an answer"), std::string::npos)
        << outcome.err;
  }
  EXPECT_EQ(results().size(), 2u);
  write("in.jsonl", wrong + line_of("good", R"({"prompt": "Hello", "max_tokens": 2})"));
  for (const char* run : {"with an answer", "which was there before"}) {
    const Outcome outcome = run_lantern(command({"--quiet"}));
    EXPECT_EQ(outcome.exit_code, 0) << run << ": " << outcome.err;
    EXPECT_EQ(outcome.err, "");
  }
}

// A pipeline that had nothing to ask goes on, and reads why there are no results; no model is loaded for it.
TEST_F(RunBatchTest, AFileWithoutRequestsIsNoError) {
  for (const char* nothing : {"", "\n \n"}) {
    write("in.jsonl", nothing);
    const Outcome outcome = run_lantern(command());
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_TRUE(outcome.err.starts_with(path("in.jsonl") + " has no requests: no model was loaded")) << outcome.err;
    EXPECT_EQ(std::ranges::count(outcome.err, '\n'), 1) << outcome.err;
    EXPECT_EQ(read_file(path("out.jsonl")), "");
  }
  EXPECT_EQ(run_lantern(command({"--quiet"})).err, "");
}

TEST_F(RunBatchTest, FilesThatMakeNoSenseAreRefused) {
  const auto refusal = [&](const std::vector<std::string>& arguments, int exit_code = 1) {
    const Outcome outcome = run_lantern(arguments);
    EXPECT_EQ(outcome.exit_code, exit_code);
    EXPECT_EQ(std::ranges::count(outcome.err, '\n'), 1) << outcome.err;
    return outcome.err;
  };
  EXPECT_NE(refusal(command()).find("in.jsonl: cannot be read: No such file"), std::string::npos);
  write("in.jsonl", batch_of({150, 150}));
  EXPECT_NE(refusal({"run-batch", "-i", path("in.jsonl"), "-o", path("in.jsonl")}).find("both --input and --output"),
            std::string::npos);
  write("out.jsonl", "{\"something\": \"else\"}\n");
  EXPECT_NE(refusal(command()).find("line 1 is no result of a batch"), std::string::npos);
  write("out.jsonl", "a letter without an end");
  EXPECT_NE(refusal(command()).find("line 1 is no result of a batch"), std::string::npos);
  EXPECT_EQ(read_file(path("out.jsonl")), "a letter without an end");
  // A device has no earlier results, and reading it would not end.
  EXPECT_NE(refusal({"run-batch", "-i", path("in.jsonl"), "-o", "/dev/full", "--quiet"}).find("No space left"),
            std::string::npos);
  EXPECT_NE(refusal({"run-batch", "-i", path("in.jsonl"), "-o", "/nonexistent/out.jsonl"}).find("cannot be written"),
            std::string::npos);
  EXPECT_NE(refusal({"run-batch", "-i", path("in.jsonl")}, 2).find("needs --input FILE and --output FILE"),
            std::string::npos);
}

}  // namespace
}  // namespace lantern::test
