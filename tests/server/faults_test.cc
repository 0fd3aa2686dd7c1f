// Clients that leave, read slowly or come in crowds: the request that nobody waits for ends, everything else goes on.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <thread>

#include "socket_client.h"
#include "tiny_server.h"

namespace lantern::test {
namespace {

using std::chrono::milliseconds;

std::string long_request(bool stream, int tokens = 1900) {
  return post_text("/v1/completions",
                   fmt::format(R"({{"prompt":"Hello","max_tokens":{},"ignore_eos":true,"temperature":0,"stream":{}}})",
                               tokens, stream));
}
int32_t running(TinyServer& server) { return server.engine().report().num_running; }
int64_t cancelled(TinyServer& server) {
  return server.engine().report().choices_ended[static_cast<size_t>(EndReason::kCancelled)];
}
void expect_still_works(TinyServer& server) {
  EXPECT_TRUE(server.wait_until_quiet());
  const Answer answer = post(server.port(), "/v1/completions",
                             R"({"prompt":"Question: What is 6 times 7?","max_tokens":24,"temperature":0})");
  ASSERT_EQ(answer.status, 200);
  EXPECT_EQ(text_of(answer.json()["choices"].at(0).at("text")), server.greedy("Question: What is 6 times 7?", 24));
}

TEST(FaultsTest, WhoeverLeavesEndsTheirRequest) {
  TinyServer server;
  int64_t before = 0;
  for (const bool stream : {true, false}) {
    for (const char* how : {"close", "reset", "half-close"}) {
      Client client(server.port());
      ASSERT_TRUE(client.send(long_request(stream)));
      ASSERT_TRUE(eventually([&] { return running(server) == 1; })) << how << stream;
      if (std::string_view(how) == "close") client.close();
      if (std::string_view(how) == "reset") client.reset();
      if (std::string_view(how) == "half-close") client.half_close();
      EXPECT_TRUE(eventually([&] { return running(server) == 0; })) << how << stream;
      EXPECT_TRUE(server.wait_until_quiet());
      EXPECT_EQ(cancelled(server), before + 1) << how << " of " << stream << ": it ended by itself";
      before = cancelled(server);
    }
  }
  EXPECT_EQ(metric(server.port(), "lantern:client_disconnects_total"), 6);
  EXPECT_EQ(metric(server.port(), "vllm:request_success_total{finished_reason=\"abort\"}"), 6);
  expect_still_works(server);
}

// A connection whose first request is on its way when the server begins to stop.
TEST(FaultsTest, WhoeverHasJustComeIsAnsweredWhileTheServerStops) {
  TinyServer server;
  Client client(server.port());
  ASSERT_TRUE(eventually([&] { return server.http().stats().connections == 1; }));
  server.http().drain();
  std::this_thread::sleep_for(milliseconds(50));
  ASSERT_TRUE(client.send(get_text("/health")));
  EXPECT_EQ(client.read_answer().value_or(Answer{}).status, 200);
  EXPECT_TRUE(client.is_closed()) << "and has no reason to stay";
}

// Behind the request that runs another one waits unread; that the client has left shows nevertheless.
TEST(FaultsTest, WhoeverLeavesWithARequestInTheSocketEndsTheirs) {
  TinyServer server;
  Client client(server.port());
  ASSERT_TRUE(client.send(long_request(true)));
  ASSERT_TRUE(eventually([&] { return running(server) == 1; }));
  ASSERT_TRUE(client.send(get_text("/health")));
  std::this_thread::sleep_for(milliseconds(50));
  client.half_close();
  EXPECT_TRUE(eventually([&] { return running(server) == 0; }));
  EXPECT_EQ(cancelled(server), 1);
}

TEST(FaultsTest, AHalfCloseIsAllowedWhereAskedFor) {
  TinyServerOptions options;
  options.http.allow_half_close = true;
  TinyServer server(std::move(options));
  Client client(server.port());
  ASSERT_TRUE(client.send(long_request(false, 50)));
  client.half_close();
  EXPECT_EQ(client.read_answer().value_or(Answer{}).status, 200);
}

TEST(FaultsTest, LeavingWhileABodyComesCostsNothing) {
  TinyServer server;
  for (int i = 0; i < 50; ++i) {
    Client client(server.port());
    const std::string text = long_request(true);
    client.send(text.substr(0, text.size() * static_cast<size_t>(i) / 50));
    if (i % 2 == 0) client.reset();
  }
  EXPECT_TRUE(eventually([&] { return server.http().stats().connections == 0; }));
  EXPECT_EQ(server.http().stats().body_bytes, 0);
  expect_still_works(server);
}

// Cancelled at every moment of its life.
TEST(FaultsTest, AStormOfCancellationsLeavesNothingBehind) {
  TinyServer server;
  for (int i = 0; i < 200; ++i) {
    Client client(server.port());
    client.send(post_text(
        "/v1/completions",
        fmt::format(R"({{"prompt":["Hello {}","Good day"],"n":2,"max_tokens":30,"stream":{}}})", i, i % 2 == 0)));
    std::this_thread::sleep_for(std::chrono::microseconds(i * 97 % 20'000));
    if (i % 3 == 0) client.reset();
  }
  EXPECT_TRUE(eventually([&] { return server.http().stats().connections == 0; }));
  expect_still_works(server);
}

TEST(FaultsTest, ASlowReaderIsDropped) {
  TinyServerOptions options;
  options.http.max_unsent_bytes = 20'000;
  TinyServer server(std::move(options));
  Client client(server.port());
  const int small = 4096;
  setsockopt(client.socket(), SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
  // Twenty log-probabilities a token fill every buffer on the way soon.
  for (int tries = 0; tries < 3 && cancelled(server) == 0; ++tries) {
    Client reader(server.port());
    setsockopt(reader.socket(), SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
    ASSERT_TRUE(reader.send(post_text(
        "/v1/chat/completions",
        R"({"messages":[{"role":"user","content":"x"}],"max_tokens":1900,"ignore_eos":true,"stream":true,"n":8,"logprobs":true,"top_logprobs":20})")));
    EXPECT_TRUE(eventually([&] { return cancelled(server) > 0; }));
  }
  EXPECT_GT(cancelled(server), 0);
  expect_still_works(server);
}

TEST(FaultsTest, AFullQueueIsSaidBeforeAnythingIsSpent) {
  TinyServerOptions options;
  options.max_num_seqs = 1;
  options.api.admission.max_requests = 2;
  TinyServer server(std::move(options));
  std::vector<Client> clients;
  for (int i = 0; i < 3; ++i) {
    clients.emplace_back(server.port());
    ASSERT_TRUE(clients.back().send(long_request(true)));
    if (i == 0) {
      ASSERT_NE(clients.back().read_some(), "");  // it has its first token
    }
  }
  ASSERT_TRUE(eventually([&] { return server.engine().report().num_waiting == 2; }));
  const int64_t submitted = server.engine().report().choices_submitted;
  // Not even JSON: nobody looks at it.
  const Answer answer = post(server.port(), "/v1/completions", "not JSON");
  EXPECT_EQ(answer.status, 503);
  EXPECT_EQ(text_of(answer.json()["error"].at("code")), "queue_full");
  const int wait = std::stoi(answer.fields.at("retry-after"));
  EXPECT_GE(wait, 1);
  EXPECT_LE(wait, 120);
  EXPECT_EQ(server.engine().report().choices_submitted, submitted);
  EXPECT_EQ(metric(server.port(), "vllm:admission_rejections_total{reason=\"reqs\"}"), 1);
  EXPECT_EQ(get(server.port(), "/health").status, 200);
  clients.clear();
  expect_still_works(server);
}

TEST(FaultsTest, AThousandIdleConnectionsAndOneTooMany) {
  TinyServerOptions options;
  options.http.max_connections = 1000;
  TinyServer server(std::move(options));
  ASSERT_TRUE(reserve_descriptors(2 * 1000 + 300).ok()) << "both ends are in this process";
  std::vector<Client> idle;
  for (int i = 0; i < 999; ++i) {
    idle.emplace_back(server.port());
    if (i % 10 != 0) continue;
    ASSERT_TRUE(idle.back().send(get_text("/health")));
    ASSERT_EQ(idle.back().read_answer().value_or(Answer{}).status, 200) << i;
  }
  ASSERT_TRUE(eventually([&] { return server.http().stats().connections == 999; }));
  EXPECT_EQ(get(server.port(), "/v1/models").status, 200);
  ASSERT_TRUE(eventually([&] { return server.http().stats().connections == 999; }));
  idle.emplace_back(server.port());
  ASSERT_TRUE(eventually([&] { return server.http().stats().connections == 1000; }));
  Client one_more(server.port());
  const Answer answer = one_more.read_answer().value_or(Answer{});
  EXPECT_EQ(answer.status, 503);
  EXPECT_TRUE(one_more.is_closed());
  idle.clear();
  EXPECT_TRUE(eventually([&] { return server.http().stats().connections == 0; }));
  expect_still_works(server);
}

TEST(FaultsTest, LoadingIsTold) {
  TinyServerOptions options;
  options.with_model = false;
  TinyServer server(std::move(options));
  EXPECT_EQ(get(server.port(), "/health").status, 200) << "it lives";
  EXPECT_EQ(get(server.port(), "/ready").status, 503);
  const Answer answer = post(server.port(), "/v1/completions", "{}");
  EXPECT_EQ(answer.status, 503);
  EXPECT_EQ(text_of(answer.json()["error"].at("code")), "loading_model");
  EXPECT_TRUE(answer.fields.contains("retry-after"));
  EXPECT_EQ(get(server.port(), "/metrics").status, 200);
}

TEST(FaultsTest, SilentStreamsGetComments) {
  TinyServerOptions options;
  options.max_num_seqs = 1;
  options.http.ping_interval = milliseconds(100);
  TinyServer server(std::move(options));
  Client first(server.port());
  ASSERT_TRUE(first.send(long_request(true, 400)));
  ASSERT_TRUE(eventually([&] { return running(server) == 1; }));
  Client waits(server.port());
  ASSERT_TRUE(waits.send(long_request(true, 3)));
  const Answer answer = waits.read_answer().value_or(Answer{});
  ASSERT_FALSE(answer.chunks.empty());
  EXPECT_EQ(answer.chunks.front(), ": ping\n\n");
  EXPECT_EQ(json_events_of(answer).size(), 3u);
}

}  // namespace
}  // namespace lantern::test
