// `lantern chat --url`: the conversation of `lantern chat`, held with a server.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <filesystem>

#include "process.h"
#include "server_process.h"
#include "socket_client.h"
#include "terminal.h"
#include "tiny_server.h"

namespace lantern::test {
namespace {

namespace json = boost::json;
namespace fs = std::filesystem;

TEST(ChatUrlTest, SaysWhatTheModelSaysHere) {
  ServerProcess server;
  const std::string input =
      "What is 6 times 7?\n/think on\nSearch for cow.\n/system Answer briefly.\nWhat is 2 times 3?\n";
  const Outcome here = run_lantern({"chat", "--temperature", "0", "--quiet", "--threads", "1"}, {.input = input});
  const Outcome there = run_lantern({"chat", "--temperature", "0", "--quiet", "--url", server.url()}, {.input = input});
  EXPECT_EQ(there.exit_code, 0) << there.err;
  EXPECT_NE(there.out.find("The answer is 42."), std::string::npos) << there.out;
  EXPECT_EQ(there.out, here.out);
  EXPECT_EQ(there.err, "");
}

TEST(ChatUrlTest, AtATerminalThinkingIsDimAndStatisticsAreKept) {
  ServerProcess server;
  Terminal terminal({"chat", "--temperature", "0", "--url", server.url()});
  ASSERT_TRUE(terminal.shows(fmt::format("tiny at {}; /help lists the commands", server.url()))) << terminal.screen();
  ASSERT_TRUE(terminal.shows_prompt()) << terminal.screen();
  terminal.type("/think on\n");
  ASSERT_TRUE(terminal.shows_prompt()) << terminal.screen();
  terminal.type("Search for cow.\n");
  ASSERT_TRUE(terminal.shows("\033[2m")) << terminal.screen();
  ASSERT_TRUE(terminal.shows("\033[0m")) << terminal.screen();
  ASSERT_TRUE(terminal.shows("cow</")) << terminal.screen();
  ASSERT_TRUE(terminal.shows_prompt()) << terminal.screen();
  terminal.type("/stats\n");
  ASSERT_TRUE(
      terminal.shows(fmt::format("1 turn; prompts {} tokens", metric(server.port(), "vllm:prompt_tokens_total"))))
      << terminal.screen();
  ASSERT_TRUE(terminal.shows(fmt::format("answers {} tokens", metric(server.port(), "vllm:generation_tokens_total"))))
      << terminal.screen();
  ASSERT_TRUE(terminal.shows_prompt()) << terminal.screen();
  terminal.type(Terminal::kCtrlD);
  EXPECT_EQ(terminal.wait(), 0) << terminal.screen();
}

TEST(ChatUrlTest, CtrlCStopsTheAnswerAndTheServersWork) {
  ServerProcess server;
  Terminal terminal({"chat", "--temperature", "5", "--seed", "3", "--url", server.url()});
  ASSERT_TRUE(terminal.shows_prompt()) << terminal.screen();
  terminal.type("Hello\n");
  ASSERT_TRUE(terminal.shows("Hello\r\n")) << terminal.screen();
  ASSERT_TRUE(terminal.shows(" ")) << "no answer begins: " << terminal.screen();
  terminal.type(Terminal::kCtrlC);
  ASSERT_TRUE(terminal.shows("(stopped)")) << terminal.screen();
  ASSERT_TRUE(terminal.shows_prompt()) << terminal.screen();
  EXPECT_TRUE(eventually([&] { return metric(server.port(), "vllm:num_requests_running") == 0; }));
  const fs::path file = fs::path(::testing::TempDir()) / "lantern_chat_url_test.json";
  fs::remove(file);
  terminal.type("/save " + file.string() + "\n");
  ASSERT_TRUE(terminal.shows("written to")) << terminal.screen();
  const json::array kept = json::parse(read_file(file)).as_array();
  ASSERT_EQ(kept.size(), 2u) << "what was said stays";
  EXPECT_NE(kept.at(1).at("content").as_string(), "");
  ASSERT_TRUE(terminal.shows_prompt()) << terminal.screen();
  terminal.type(Terminal::kCtrlC);
  EXPECT_EQ(terminal.wait(), 130) << terminal.screen();
}

TEST(ChatUrlTest, WhatGoesWrongIsSaidAndTheMessageTakenBack) {
  ServerProcess server({"--api-key", "secret"});
  std::string too_long;
  for (int i = 0; i < 3000; ++i) too_long += "apple ";
  const fs::path file = fs::path(::testing::TempDir()) / "lantern_chat_url_fault.json";
  const Outcome outcome =
      run_lantern({"chat", "--temperature", "0", "--quiet", "--url", server.url(), "--api-key", "secret"},
                  {.input = too_long + "\nWhat is 6 times 7?\n/save " + file.string() + "\n"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_NE(outcome.err.find("/v1/chat/completions: 400: "), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.out.find("The answer is 42."), std::string::npos) << outcome.out;
  EXPECT_EQ(json::parse(read_file(file)).as_array().size(), 2u);

  const auto refusal = [](const std::vector<std::string>& arguments, int exit_code = 1) {
    const Outcome refused = run_lantern(arguments);
    EXPECT_EQ(refused.exit_code, exit_code);
    return refused.err;
  };
  EXPECT_NE(refusal({"chat", "--url", server.url()}).find("/v1/models: 401: "), std::string::npos);
  EXPECT_NE(refusal({"chat", "--url", "127.0.0.1:1"}).find("Connection refused"), std::string::npos);
  EXPECT_NE(refusal({"chat", "--url", server.url(), "--draft-tokens", "2"}, 2)
                .find("--draft-tokens is for a model in this process, and with --url a server has it"),
            std::string::npos);
  // What the environment says of models here has nothing to do with a server.
  EXPECT_EQ(
      run_lantern({"chat", "--url", server.url(), "--quiet"},
                  {.environment = {"LANTERN_MODEL=/nonexistent", "LANTERN_THREADS=1", "LANTERN_API_KEY=secret,other"}})
          .exit_code,
      0);
}

}  // namespace
}  // namespace lantern::test
