// What clients, the network and the system do to a server all at once. After each storm nothing is left of it, and a
// fresh request gets its answer.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <random>
#include <thread>

#include "failing_memory.h"
#include "process_state.h"
#include "server_process.h"
#include "socket_client.h"
#include "tiny_server.h"

namespace lantern::test {
namespace {

namespace json = boost::json;
using std::chrono::milliseconds;

const std::string kShort = R"({"prompt":"Question: What is 6 times 7?","max_tokens":24,"temperature":0})";

std::string completion(const std::string& prompt, int tokens, bool stream) {
  json::object body{{"prompt", prompt}, {"max_tokens", tokens}, {"ignore_eos", true}, {"stream", stream}};
  return post_text("/v1/completions", json::serialize(body));
}

enum class Leave { kClose, kReset, kHalfClose };
void leave(Client& client, Leave how) {
  if (how == Leave::kClose) client.close();
  if (how == Leave::kReset) client.reset();
  if (how == Leave::kHalfClose) client.half_close();
}

class StormTest : public ::testing::Test {
 protected:
  void start(int32_t max_num_seqs) {
    TinyServerOptions options;
    options.gate = gate_;
    options.max_num_seqs = max_num_seqs;
    options.http.idle_timeout = milliseconds(2000);
    server_.emplace(std::move(options));
    expected_ = server_->greedy("Question: What is 6 times 7?", 24);
  }
  // After all.
  void TearDown() override {
    gate_->set_open(true);
    EXPECT_TRUE(server_->wait_until_quiet());
    EXPECT_TRUE(eventually([&] { return server_->http().stats().connections == 0; }));
    EXPECT_EQ(server_->http().stats().body_bytes, 0);
    const Answer answer = post(server_->port(), "/v1/completions", kShort);
    ASSERT_EQ(answer.status, 200) << answer.body;
    EXPECT_EQ(text_of(answer.json()["choices"].at(0).at("text")), expected_);
    server_.reset();
  }
  EngineReport report() { return server_->engine().report(); }
  int64_t cancelled() { return report().choices_ended[static_cast<size_t>(EndReason::kCancelled)]; }

  std::shared_ptr<Gate> gate_ = std::make_shared<Gate>();
  std::optional<TinyServer> server_;
  std::string expected_;
};

// Steps stand still while the client leaves, so that the moment is the one that is meant.
TEST_F(StormTest, LeavingInEveryPhase) {
  start(1);
  std::string prompt;
  for (int i = 0; i < 250; ++i) prompt += fmt::format(" word{}", i);
  for (int round = 0; round < 12; ++round) {
    const auto how = static_cast<Leave>(round % 3);
    const bool stream = round % 2 == 0;
    const int64_t before = cancelled();
    const int64_t gone = server_->http().stats().gone;
    {  // in the head, in the body
      const std::string text = completion("Hello", 50, stream);
      Client in_head(server_->port());
      in_head.send(text.substr(0, 40));
      Client in_body(server_->port());
      in_body.send(text.substr(0, text.size() - 5));
      leave(in_head, how);
      leave(in_body, how);
    }
    gate_->set_open(false);
    Client runs(server_->port());  // in its first step, which runs the prompt
    ASSERT_TRUE(runs.send(completion(fmt::format("{}{}", round, prompt), 50, stream)));
    ASSERT_TRUE(eventually([&] { return report().num_running + report().num_waiting == 1; }));
    Client queued(server_->port());
    ASSERT_TRUE(queued.send(completion("Hello", 50, stream)));
    ASSERT_TRUE(eventually([&] { return server_->api().requests_in_work({}).size() == 2; }));
    leave(runs, how);
    leave(queued, how);
    ASSERT_TRUE(eventually([&] { return server_->http().stats().gone >= gone + 2; }));
    gate_->set_open(true);
    ASSERT_TRUE(server_->wait_until_quiet());
    EXPECT_GE(cancelled(), before + 2) << "round " << round << ": one ran to its end";

    Client decodes(server_->port());
    ASSERT_TRUE(decodes.send(completion("Hello", 1900, true)));
    ASSERT_NE(decodes.read_some(), "");
    gate_->set_open(false);
    leave(decodes, how);
    gate_->set_open(true);
    ASSERT_TRUE(server_->wait_until_quiet());
    EXPECT_GE(cancelled(), before + 3) << "round " << round << ": one ran to its end";

    const int64_t accepted = server_->http().stats().accepted;
    Client at_last_token(server_->port());  // it ends, or is cancelled: either is right
    ASSERT_TRUE(at_last_token.send(completion("Hello", 1, stream)));
    std::this_thread::sleep_for(std::chrono::microseconds(500 * round));
    leave(at_last_token, how);
    ASSERT_TRUE(eventually([&] {
      const HttpStats stats = server_->http().stats();
      return stats.accepted > accepted && stats.connections == 0;
    }));
    ASSERT_TRUE(server_->wait_until_quiet());
  }
}

// What the network does to the bytes of many requests, at random but for its seed.
TEST_F(StormTest, EveryKindOfClientAtOnce) {
  start(4);
  std::atomic<int> wrong = 0;
  const auto client = [&](uint32_t seed) {
    std::mt19937 random(seed);
    const auto below = [&](uint32_t n) { return random() % n; };
    for (int i = 0; i < 25; ++i) {
      Client one(server_->port());
      switch (below(6)) {
        case 0: one.send(std::string(below(3000), static_cast<char>(below(256)))); break;
        case 1: {
          const std::string text = completion("Hello", 20, true);
          one.send(text.substr(0, below(static_cast<uint32_t>(text.size()))));
          break;
        }
        case 2:
          one.send(completion("Hello", 200, below(2) == 0));
          std::this_thread::sleep_for(milliseconds(below(40)));
          break;
        case 3:
          one.send(completion("Hello", 20, true));
          one.read_some();
          break;
        case 4:
          for (const char byte : get_text("/health")) one.send({&byte, 1});
          wrong += one.read_answer().value_or(Answer{}).status == 200 ? 0 : 1;
          break;
        default:
          one.send(post_text("/v1/completions", kShort));
          const Answer answer = one.read_answer().value_or(Answer{});
          wrong += answer.status == 200 && text_of(answer.json()["choices"].at(0).at("text")) == expected_ ? 0 : 1;
      }
      leave(one, static_cast<Leave>(below(3)));
    }
  };
  std::vector<std::thread> clients;
  clients.reserve(8);
  for (uint32_t seed = 0; seed < 8; ++seed) clients.emplace_back(client, seed);
  for (std::thread& thread : clients) thread.join();
  EXPECT_EQ(wrong, 0) << "whoever asked properly got another answer";
}

// CVE-2026-9540: what a connection or a request takes is given back, again and again.
TEST_F(StormTest, Cve_2026_9540_NothingIsLeftOfClients) {
  start(4);
  const auto storm = [&](int clients) {
    for (int i = 0; i < clients; ++i) {
      Client one(server_->port());
      one.send(completion(fmt::format("Hello {}", i), 30, i % 2 == 0));
      if (i % 4 == 0) one.read_some();
      leave(one, static_cast<Leave>(i % 3));
    }
    ASSERT_TRUE(server_->wait_until_quiet());
    ASSERT_TRUE(eventually([&] { return server_->http().stats().connections == 0; }));
  };
  storm(100);
  const int64_t descriptors = open_descriptors();
  const int64_t threads = running_threads();
  const int64_t memory = resident_bytes();
  for (int round = 0; round < 4; ++round) storm(150);
  EXPECT_EQ(open_descriptors(), descriptors);
  EXPECT_EQ(running_threads(), threads);
  if (kMemoryIsPlain) {
    EXPECT_LT(resident_bytes() - memory, int64_t{24} << 20) << "600 clients";
  }
}

TEST_F(StormTest, OneByteWritesAndReads) {
  start(4);
  Client client(server_->port());
  const int small = 1;  // the system makes it as small as it can
  setsockopt(client.socket(), SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
  for (const char byte : completion("Hello", 30, true)) ASSERT_TRUE(client.send({&byte, 1}));
  std::string all;
  char byte = 0;
  while (!all.ends_with("\r\n0\r\n\r\n") && recv(client.socket(), &byte, 1, 0) == 1) all += byte;
  EXPECT_NE(all.find("data: [DONE]\n\n"), std::string::npos) << all;
}

// Allocations that fail: the request that needed them is refused, the next one is served.
TEST_F(StormTest, NoMemoryForARequestIsNoEndOfTheServer) {
  start(4);
  json::object body{{"prompt", std::string(size_t{3} << 20, 'x')}, {"max_tokens", 2}};
  const std::string text = json::serialize(body);
  for (const size_t most : {size_t{64} << 10, size_t{1} << 20, size_t{2} << 20, size_t{4} << 20}) {
    for (const char* path : {"/v1/completions", "/tokenize", "/v1/messages/count_tokens"}) {
      Client client(server_->port());
      const std::string request = post_text(path, text);
      const FailingMemory failing(most);
      client.send(request);
      const Answer answer = client.read_answer().value_or(Answer{});
      if (failing.failed() == 0) continue;
      EXPECT_TRUE(answer.status == 503 || answer.status == 529) << path << " " << most << ": " << answer.body;
      EXPECT_NE(answer.body.find("no memory is left"), std::string::npos) << path << " " << most << answer.body;
    }
  }
  // Of a body in chunks nobody knows how long it will be: its connection is closed.
  {
    Client client(server_->port());
    const std::string chunk = fmt::format("{:x}\r\n{}\r\n", size_t{1} << 20, std::string(size_t{1} << 20, ' '));
    const FailingMemory failing(size_t{2} << 20);
    client.send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n");
    for (int i = 0; i < 4 && client.send(chunk); ++i) continue;
    EXPECT_TRUE(client.is_closed());
    EXPECT_GT(failing.failed(), 0);
  }
  // An answer too long for what is left.
  json::object wide{{"prompt", "Hello"}, {"max_tokens", 400}, {"n", 4}, {"ignore_eos", true}, {"logprobs", 20}};
  const std::string request = post_text("/v1/completions", json::serialize(wide));
  Client client(server_->port());
  const FailingMemory failing(size_t{256} << 10);
  client.send(request);
  const Answer answer = client.read_answer().value_or(Answer{});
  EXPECT_GT(failing.failed(), 0);
  EXPECT_EQ(answer.status, 503) << answer.body.substr(0, 300);
}

// A server that may open no more files serves those that it has, and the others as soon as it can.
TEST(ProcessStormTest, NoDescriptorIsLeft) {
  if (!kMemoryIsPlain) GTEST_SKIP() << "a sanitizer that finds no descriptor for its own checks reports faults";
  ServerProcess server;
  Client stream(server.port());
  ASSERT_TRUE(stream.send(completion("Hello", 1500, true)));
  ASSERT_NE(stream.read_some(), "");
  server.limit_descriptors(static_cast<uint64_t>(server.open_descriptors()) + 20);
  std::vector<Client> crowd;
  int answered = 0;
  for (int i = 0; i < 60; ++i) {
    crowd.emplace_back(server.port());
    ASSERT_TRUE(crowd.back().send(get_text("/health")));
  }
  for (int i = 0; i < 15; ++i) answered += crowd[static_cast<size_t>(i)].read_answer() ? 1 : 0;
  EXPECT_EQ(answered, 15) << "there was room for them";
  EXPECT_FALSE(crowd.back().read_answer(milliseconds(300))) << "there is none for this one";
  EXPECT_TRUE(eventually([&] { return server.err().find("no descriptor left") != std::string::npos; })) << server.err();
  // Those that were let in leave: the others come in.
  for (int i = 0; i < 50; ++i) crowd[static_cast<size_t>(i)].close();
  EXPECT_EQ(crowd.back().read_answer().value_or(Answer{}).status, 200);
  crowd.clear();
  std::string rest;
  for (std::string more; !rest.ends_with("\r\n0\r\n\r\n") && !(more = stream.read_some()).empty();) rest += more;
  EXPECT_NE(rest.find("data: [DONE]"), std::string::npos) << "whoever was served before went on being served";
  EXPECT_EQ(post(server.port(), "/v1/completions", kShort).status, 200);
}

// SIGTERM while clients come and go: an answer that begins is whole, whoever comes too late is told so.
TEST(ProcessStormTest, StoppingUnderLoadTruncatesNothing) {
  ServerProcess server({"--shutdown-timeout", "60"});
  std::atomic<int> whole = 0;
  std::atomic<int> refused = 0;
  std::atomic<int> truncated = 0;
  std::atomic<bool> stopping = false;
  const auto client = [&](int number) {
    for (int i = 0; i < 200; ++i) {
      const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_port = htons(server.port());
      address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      if (connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
        ::close(socket);
        return;  // it listens no more
      }
      const std::string text = completion(fmt::format("Hello {}", number), 40, i % 2 == 0);
      ::send(socket, text.data(), text.size(), MSG_NOSIGNAL);
      std::string answer;
      char bytes[4096];
      const auto complete = [&] {
        return answer.ends_with("\r\n0\r\n\r\n") ||
               (answer.ends_with("}") && answer.find("\r\n\r\n{") != std::string::npos);
      };
      for (ssize_t got = 0; !complete() && (got = recv(socket, bytes, sizeof(bytes), 0)) > 0;)
        answer.append(bytes, static_cast<size_t>(got));
      ::close(socket);
      if (answer.empty()) {
        if (stopping) return;  // closed unread when all was over
        ++truncated;
      } else if (answer.starts_with("HTTP/1.1 503 ") && answer.find("\"draining\"") != std::string::npos) {
        ++refused;
        return;
      } else if (answer.starts_with("HTTP/1.1 200 ") && complete() && answer.find("\"error\"") == std::string::npos) {
        ++whole;
      } else {
        ++truncated;
      }
    }
  };
  std::vector<std::thread> clients;
  clients.reserve(8);
  for (int number = 0; number < 8; ++number) clients.emplace_back(client, number);
  // They must be at it for a while before it is stopped.
  EXPECT_TRUE(eventually([&] { return whole >= 16; }));
  stopping = true;
  server.signal(SIGTERM);
  for (std::thread& thread : clients) thread.join();
  EXPECT_EQ(server.wait_for_end(), 0) << server.err();
  EXPECT_EQ(truncated, 0);
  EXPECT_GE(whole, 16);
}

}  // namespace
}  // namespace lantern::test
