// `lantern serve` as a user starts and stops it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <thread>

#include "server_process.h"
#include "socket_client.h"
#include "tiny_server.h"

namespace lantern::test {
namespace {

namespace json = boost::json;

std::string long_stream(int tokens) {
  return fmt::format(R"({{"prompt":"Hello","max_tokens":{},"ignore_eos":true,"temperature":0,"stream":true}})", tokens);
}

TEST(ServeTest, StartUpTextNamesAllThatMattersAndItsCurlWorks) {
  ServerProcess server;
  const std::string text = server.out();
  for (const char* part : {"model        tiny", "backend", "context      2,048 tokens", "KV cache",
                           "tokens per request", "memory", "weights", "listens on   http://127.0.0.1:"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " is not in\n" << text;
  }
  const std::string curl = text.substr(text.find("\ncurl ") + 1);
  const size_t begin = curl.find(" -d '") + 5;
  const Answer answer = post(server.port(), "/v1/chat/completions", curl.substr(begin, curl.rfind('\'') - begin));
  EXPECT_EQ(answer.status, 200);
  EXPECT_NE(text_of(answer.json()["choices"].at(0).at("message").at("content")), "");
  server.signal(SIGTERM);
  EXPECT_EQ(server.wait_for_end(), 0);
  EXPECT_NE(server.err().find("POST /v1/chat/completions\" 200"), std::string::npos) << server.err();
  EXPECT_EQ(server.err().find("6 times 7"), std::string::npos) << "nothing of a prompt is logged";
}

// SIGTERM with streams running: every one ends as if nothing had happened, and new work is refused.
TEST(ServeTest, StopsWhenRunningStreamsHaveEnded) {
  // Steps of a build with a sanitizer take long on a machine that has other work too.
  constexpr auto kAllTheTime = std::chrono::seconds(500);
  ServerProcess server({"--shutdown-timeout", fmt::format("{}", kAllTheTime.count())});
  std::vector<Client> clients;
  for (int i = 0; i < 3; ++i) {
    clients.emplace_back(server.port());
    ASSERT_TRUE(clients.back().send(post_text("/v1/completions", long_stream(300))));
  }
  // It runs on until it is given up below: the server may not have ended before all has been asked of it.
  Client longest(server.port());
  ASSERT_TRUE(longest.send(
      post_text("/v1/completions",
                R"({"prompt":"Hello","n":2,"max_tokens":2000,"ignore_eos":true,"temperature":0,"stream":true})")));
  Client idle(server.port());
  ASSERT_TRUE(idle.send(get_text("/health")));
  ASSERT_TRUE(idle.read_answer());
  ASSERT_TRUE(eventually([&] { return metric(server.port(), "vllm:num_requests_running") == 5; }));
  server.signal(SIGTERM);
  EXPECT_TRUE(idle.is_closed()) << "a connection without a request has no reason to stay";
  const Answer refused = post(server.port(), "/v1/completions", R"({"prompt":"Hello"})");
  EXPECT_EQ(refused.status, 503) << refused.body;
  EXPECT_EQ(text_of(refused.json()["error"].at("code")), "draining");
  EXPECT_EQ(refused.fields.at("connection"), "close");
  EXPECT_EQ(get(server.port(), "/ready").status, 503);
  EXPECT_EQ(get(server.port(), "/health").status, 200);
  for (Client& client : clients) {
    const std::vector<json::object> events = json_events_of(client.read_answer(kAllTheTime).value_or(Answer{}));
    ASSERT_FALSE(events.empty());
    ASSERT_TRUE(events.back().contains("choices")) << json::serialize(events.back());
    EXPECT_EQ(text_of(events.back().at("choices").at(0).at("finish_reason")), "length");
  }
  longest.close();
  EXPECT_EQ(server.wait_for_end(), 0) << server.err();
}

TEST(ServeTest, WhatTakesLongerThanTheShutdownTimeoutEndsWithAnError) {
  ServerProcess server({"--shutdown-timeout", "0.2"});
  Client stream(server.port());
  ASSERT_TRUE(stream.send(post_text("/v1/completions", long_stream(2000))));
  ASSERT_NE(stream.read_some(), "");
  Client whole(server.port());
  ASSERT_TRUE(whole.send(post_text("/v1/completions", R"({"prompt":"Hello","max_tokens":2000,"ignore_eos":true})")));
  ASSERT_TRUE(eventually([&] { return metric(server.port(), "vllm:num_requests_running") == 2; }));
  server.signal(SIGINT);
  std::string rest;
  for (std::string more; !(more = stream.read_some()).empty();) rest += more;
  EXPECT_NE(rest.find("\"error\":{\"message\":\"the server is shutting down"), std::string::npos) << rest;
  EXPECT_NE(rest.find("data: [DONE]\n\n\r\n0\r\n\r\n"), std::string::npos) << "the stream is not cut off";
  const Answer answer = whole.read_answer().value_or(Answer{});
  EXPECT_EQ(answer.status, 503);
  EXPECT_EQ(server.wait_for_end(), 0) << server.err();
}

TEST(ServeTest, ASecondSignalEndsItAtOnce) {
  ServerProcess server;
  Client stream(server.port());
  ASSERT_TRUE(stream.send(post_text("/v1/completions", long_stream(2000))));
  ASSERT_NE(stream.read_some(), "");
  server.signal(SIGTERM);
  ASSERT_TRUE(eventually([&] { return server.err().find("stopping") != std::string::npos; }));
  server.signal(SIGTERM);
  EXPECT_EQ(server.wait_for_end(), 128 + SIGTERM);
}

// Loading looks at no flag, and may take minutes: one signal is enough.
TEST(ServeTest, ASignalEndsItWhileItLoads) {
  for (const int number : {SIGTERM, SIGINT}) {
    ServerProcess server({}, false, {}, {LANTERN_FAULTY_SERVER, "hang-load", "0"});
    ASSERT_TRUE(eventually([&] { return server.err().find("loading hangs") != std::string::npos; }));
    server.signal(number);
    EXPECT_EQ(server.wait_for_end(), 128 + number);
    EXPECT_NE(server.err().find("ended by a signal while the model was loading"), std::string::npos) << server.err();
  }
}

TEST(ServeTest, WhatCannotWorkIsSaidInOneLine) {
  ServerProcess first;
  const auto refusal = [](const std::vector<std::string>& arguments) {
    ServerProcess server(arguments, false);
    const int code = server.wait_for_end();
    EXPECT_EQ(std::ranges::count(server.err(), '\n'), 1) << server.err();
    return std::pair(code, server.err());
  };
  for (const std::string flag : {"--api-key", "--admin-api-key"}) {
    const auto [code, text] = refusal({flag, ""});
    EXPECT_EQ(code, 2);
    EXPECT_NE(text.find(flag + " is empty"), std::string::npos) << text;
  }
  const auto in_use = refusal({"--port", fmt::format("{}", first.port())});
  EXPECT_EQ(in_use.first, 1);
  EXPECT_NE(in_use.second.find("cannot be listened on: Address already in use; choose another --host or --port"),
            std::string::npos)
      << in_use.second;
  for (const std::vector<std::string>& absurd :
       {std::vector<std::string>{"--kv-cache-memory", "10000G"}, {"--max-num-batched-tokens", "2000000000"}}) {
    const auto [code, text] = refusal(absurd);
    EXPECT_EQ(code, 3) << text;
    for (const char* part :
         {"GiB for the caches, ", "GiB for a step's activations, ", "GiB for the tokens of 64 sequences), but only ",
          "GiB are free; lower --kv-cache-memory, --max-num-seqs, --max-num-batched-tokens or --max-model-len"})
      EXPECT_NE(text.find(part), std::string::npos) << text;
  }
  const auto [code, text] = refusal({"--kv-cache-memory", "1000000G"});
  EXPECT_EQ(code, 1);
  EXPECT_NE(text.find("blocks of 64 tokens, but tokens in the caches are numbered up to 2147483647; lower "
                      "--kv-cache-memory"),
            std::string::npos)
      << text;
  EXPECT_EQ(refusal({"--host", "999.1.1.1"}).first, 1);
  EXPECT_EQ(refusal({"--api-key-file", "/nonexistent"}).first, 1);
  EXPECT_EQ(refusal({"--model", "/nonexistent"}).first, 2) << "two models";
  EXPECT_EQ(refusal({"--prot", "1"}).first, 2);
}

TEST(ServeTest, KeysComeFromFlagsFilesAndTheEnvironment) {
  const std::string path = ::testing::TempDir() + "lantern_keys";
  std::ofstream(path) << "# ours\nfile-key\n\n";
  ServerProcess server({"--api-key-file", path, "--log-format", "json"}, true, {"LANTERN_API_KEY=first,second"});
  const auto status = [&](const std::string& key) {
    return get(server.port(), "/v1/models", "Authorization: Bearer " + key + "\r\n").status;
  };
  EXPECT_EQ(get(server.port(), "/v1/models").status, 401);
  EXPECT_EQ(status("first"), 200);
  EXPECT_EQ(status("second"), 200);
  EXPECT_EQ(status("file-key"), 200);
  EXPECT_EQ(status("first,second"), 401);
  EXPECT_EQ(status("firs"), 401);
  EXPECT_EQ(get(server.port(), "/v1/models", "x-api-key: second\r\n").status, 200);
  server.signal(SIGTERM);
  EXPECT_EQ(server.wait_for_end(), 0);
  EXPECT_EQ(server.err().find("first"), std::string::npos) << "keys are not logged";
  EXPECT_NE(server.err().find(R"("path":"/v1/models","status":401)"), std::string::npos) << server.err();
}

}  // namespace
}  // namespace lantern::test
