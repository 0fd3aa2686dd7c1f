// Streams by the HTTP server alone: a handler writes from threads of its own, and what arrives is what was written, by
// whichever thread it was sent.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "server/http.h"
#include "socket_client.h"
#include "tiny_server.h"

namespace lantern::test {
namespace {

using std::chrono::milliseconds;

constexpr const char* kComment = ": ping\n\n";

// Keeps the exchanges that it is given, each as a stream that has begun.
class Streams final : public HttpHandler {
 public:
  explicit Streams(const HttpLimits& limits) {
    Result<std::unique_ptr<HttpServer>> http = HttpServer::listen("127.0.0.1", 0, limits, *this);
    EXPECT_TRUE(http.ok());
    http_ = std::move(*http);
    http_->start();
  }
  std::optional<HttpResponse> check_head(const HttpRequest&) override { return std::nullopt; }
  void handle(std::shared_ptr<HttpExchange> exchange) override {
    exchange->start({.status = 200, .fields = {{"Content-Type", "text/event-stream"}}});
    const std::lock_guard lock(mutex_);
    exchanges_.push_back(std::move(exchange));
  }
  HttpResponse fault(int32_t status, std::string message) override { return {.status = status, .body = message}; }

  HttpServer& http() { return *http_; }
  // A stream that a client has asked for; null where none comes.
  std::shared_ptr<HttpExchange> take() {
    std::shared_ptr<HttpExchange> found;
    eventually([&] {
      const std::lock_guard lock(mutex_);
      if (exchanges_.empty()) return false;
      found = std::move(exchanges_.back());
      exchanges_.pop_back();
      return true;
    });
    return found;
  }
  std::shared_ptr<HttpExchange> begin(Client& client) {
    EXPECT_TRUE(client.send(get_text("/")));
    return take();
  }

 private:
  std::mutex mutex_;
  std::vector<std::shared_ptr<HttpExchange>> exchanges_;
  std::unique_ptr<HttpServer> http_;
};

std::string piece_of(int32_t number, size_t bytes) {
  std::string piece = std::to_string(number) + " ";
  piece.resize(std::max(bytes, piece.size()), static_cast<char>('a' + number % 26));
  return piece;
}

// A reader that stops fills the socket; what it refuses waits for it, and what is written once it reads again must not
// come before that.
TEST(HttpStreamTest, WhatASlowReaderGetsIsInOrder) {
  HttpLimits limits;
  limits.max_unsent_bytes = size_t{1} << 30;
  Streams server(limits);
  Client client(server.http().port());
  const int small = 1 << 16;
  setsockopt(client.socket(), SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
  const std::shared_ptr<HttpExchange> exchange = server.begin(client);
  ASSERT_NE(exchange, nullptr);
  constexpr int32_t kPieces = 1000;
  constexpr size_t kBytes = 20'000;  // half of them are more than sockets hold
  std::atomic<int32_t> written = 0;
  std::jthread writer([&] {
    for (int32_t i = 0; i < kPieces; ++i) {
      EXPECT_TRUE(exchange->write(piece_of(i, kBytes)));
      written = i + 1;
      if (i >= kPieces / 2) std::this_thread::sleep_for(std::chrono::microseconds(50));  // while it is read
    }
    exchange->finish();
  });
  ASSERT_TRUE(eventually([&] { return written >= kPieces / 2; }));
  const Answer answer = client.read_answer().value_or(Answer{});
  ASSERT_EQ(answer.chunks.size(), static_cast<size_t>(kPieces));
  for (int32_t i = 0; i < kPieces; ++i) ASSERT_EQ(answer.chunks[static_cast<size_t>(i)], piece_of(i, kBytes)) << i;
}

// Comments come from a thread of the server, pieces from the handler's: neither lies within the other, none is lost.
TEST(HttpStreamTest, CommentsComeBetweenPieces) {
  HttpLimits limits;
  limits.ping_interval = milliseconds(1);
  Streams server(limits);
  constexpr int32_t kPieces = 400;
  constexpr int32_t kClients = 4;
  std::vector<std::jthread> clients;
  clients.reserve(kClients);
  std::atomic<int32_t> comments = 0;
  for (int32_t c = 0; c < kClients; ++c) {
    clients.emplace_back([&, c] {
      Client client(server.http().port());
      client.send(get_text("/"));
      const Answer answer = client.read_answer().value_or(Answer{});
      int32_t next = 0;
      for (const std::string& chunk : answer.chunks) {
        if (chunk == kComment) {
          ++comments;
        } else {
          ASSERT_EQ(chunk, piece_of(next, 100)) << "of client " << c;
          ++next;
        }
      }
      EXPECT_EQ(next, kPieces);
    });
  }
  std::vector<std::jthread> writers;
  writers.reserve(kClients);
  for (int32_t c = 0; c < kClients; ++c) {
    const std::shared_ptr<HttpExchange> exchange = server.take();
    ASSERT_NE(exchange, nullptr);
    writers.emplace_back([exchange, c] {
      std::mt19937 random(static_cast<uint32_t>(c));
      for (int32_t i = 0; i < kPieces; ++i) {
        EXPECT_TRUE(exchange->write(piece_of(i, 100)));
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 2500));
      }
      exchange->finish();
    });
  }
  writers.clear();
  clients.clear();
  EXPECT_GT(comments, 0);
}

// A stream that is written to needs no comments, however long it lasts.
TEST(HttpStreamTest, NoCommentsWherePiecesCome) {
  HttpLimits limits;
  limits.ping_interval = milliseconds(500);
  Streams server(limits);
  Client client(server.http().port());
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  const std::shared_ptr<HttpExchange> exchange = server.begin(client);
  ASSERT_NE(exchange, nullptr);
  auto last = begin;  // the silence before the first piece counts as well
  auto longest = Clock::duration::zero();
  int32_t pieces = 0;
  for (; last - begin < 4 * limits.ping_interval; ++pieces) {
    EXPECT_TRUE(exchange->write(piece_of(pieces, 100)));
    std::this_thread::sleep_for(milliseconds(20));
    longest = std::max(longest, Clock::now() - last);
    last = Clock::now();
  }
  exchange->finish();
  const Answer answer = client.read_answer().value_or(Answer{});
  if (longest > limits.ping_interval / 2) GTEST_SKIP() << "the machine held the writer up, and a comment may have come";
  EXPECT_EQ(answer.chunks.size(), static_cast<size_t>(pieces));
}

// Whoever stops the server, or leaves, while pieces are written: the writer is told, and writes into nobody else's
// file.
TEST(HttpStreamTest, WritersOutliveTheConnection) {
  for (const bool client_leaves : {false, true}) {
    Streams server(HttpLimits{});
    Client client(server.http().port());
    const std::shared_ptr<HttpExchange> exchange = server.begin(client);
    ASSERT_NE(exchange, nullptr);
    std::atomic<bool> told = false;
    exchange->on_gone([&] { told = true; });
    std::jthread writer([&] {
      while (exchange->write(piece_of(0, 100))) std::this_thread::yield();
    });
    ASSERT_NE(client.read_some(), "");
    if (client_leaves) {
      client.reset();
    } else {
      server.http().stop();
    }
    writer.join();
    EXPECT_TRUE(eventually([&] { return told.load(); }));
    EXPECT_TRUE(exchange->gone());
    EXPECT_FALSE(exchange->write("more"));
  }
}

}  // namespace
}  // namespace lantern::test
