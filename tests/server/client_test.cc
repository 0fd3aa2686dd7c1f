// HttpClient against the server, and against sockets that behave badly.
#include "server/http_client.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <future>
#include <thread>

#include "server/sse_reader.h"
#include "tiny_server.h"

namespace lantern::test {
namespace {

using std::chrono::milliseconds;

std::unique_ptr<HttpClient> client_of(uint16_t port, const std::string& path = "") {
  Result<HttpUrl> url = parse_http_url(fmt::format("http://127.0.0.1:{}{}", port, path));
  CHECK(url.ok(), "no URL");
  Result<std::unique_ptr<HttpClient>> client = HttpClient::create(*url);
  CHECK(client.ok(), "{}", client.error().message());
  return std::move(*client);
}

// Answers one connection with fixed bytes after the request's head, then closes it.
class FixedServer {
 public:
  explicit FixedServer(std::string answer, milliseconds before_closing = milliseconds(0))
      : listener_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    CHECK(bind(listener_, reinterpret_cast<const sockaddr*>(&address), size) == 0 && listen(listener_, 4) == 0,
          "no port");
    getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this, answer = std::move(answer), before_closing] {
      const int socket = accept(listener_, nullptr, nullptr);
      std::array<char, 4096> bytes{};
      const ssize_t got = recv(socket, bytes.data(), bytes.size(), 0);
      request_.assign(bytes.data(), static_cast<size_t>(std::max<ssize_t>(got, 0)));
      CHECK(send(socket, answer.data(), answer.size(), MSG_NOSIGNAL) >= 0, "not sent");
      std::this_thread::sleep_for(before_closing);
      ::close(socket);
    });
  }
  ~FixedServer() {
    thread_.join();
    ::close(listener_);
  }
  FixedServer(const FixedServer&) = delete;
  FixedServer& operator=(const FixedServer&) = delete;

  uint16_t port() const { return port_; }
  // After the connection.
  const std::string& request() const { return request_; }

 private:
  int listener_;
  uint16_t port_ = 0;
  std::string request_;
  std::thread thread_;
};

TEST(HttpUrlTest, IsReadOrRefusedWithAReason) {
  const HttpUrl plain = *parse_http_url("http://localhost:8000/");
  EXPECT_EQ(plain.host, "localhost");
  EXPECT_EQ(plain.port, "8000");
  EXPECT_EQ(plain.path, "");
  EXPECT_EQ(parse_http_url("10.0.0.1")->authority(), "10.0.0.1:80");
  const HttpUrl v6 = *parse_http_url("HTTP://[::1]:9/base//");
  EXPECT_EQ(v6.host, "::1");
  EXPECT_EQ(v6.authority(), "[::1]:9");
  EXPECT_EQ(v6.path, "/base");
  for (const char* wrong : {"", "http://", "ftp://h", "http://h:", "http://h:x", "http://h:99999", "http://a@h",
                            "http://h/?q", "http://a b", "http://h/a b", "h/\r\nX: y"}) {
    EXPECT_FALSE(parse_http_url(wrong).ok()) << wrong;
  }
  EXPECT_NE(parse_http_url("https://h").error().message().find("TLS is not spoken here"), std::string::npos);
}

TEST(HttpClientTest, WholeAnswersAndStreamsOnKeptConnections) {
  TinyServer server;
  const std::unique_ptr<HttpClient> client = client_of(server.port());
  for (int i = 0; i < 5; ++i) {
    const Result<HttpAnswer> health = client->fetch({.path = "/health"});
    ASSERT_TRUE(health.ok()) << health.error().message();
    EXPECT_EQ(health->status, 200);
  }
  const HttpCall call{
      .method = "POST",
      .path = "/v1/completions",
      .fields = {{"Content-Type", "application/json"}},
      .body = fmt::format(R"({{"prompt":"{}","max_tokens":16,"temperature":0,"stream":true}})", kQuestion)};
  const Result<HttpAnswer> whole = client->fetch(call);
  ASSERT_TRUE(whole.ok()) << whole.error().message();

  std::vector<std::string> events;
  size_t parts = 0;
  SseReader reader;
  std::promise<Status> over;
  client->start(call, {.data =
                           [&](std::string_view part) {
                             ++parts;
                             return reader.push(part, [&](std::string_view data) { events.emplace_back(data); });
                           },
                       .end = [&](Status status) { over.set_value(std::move(status)); }});
  EXPECT_TRUE(over.get_future().get().ok());
  ASSERT_GE(events.size(), 3u);
  EXPECT_EQ(events.back(), "[DONE]");
  EXPECT_GE(parts, 3u) << "it comes as it is made";
  EXPECT_NE(whole->body.find("data: [DONE]\n\n"), std::string::npos);
  EXPECT_EQ(server.http().stats().accepted, 1) << "seven calls, one connection";

  const Result<HttpAnswer> refused = client->fetch({.path = "/nothing"});
  ASSERT_TRUE(refused.ok()) << "an answer all the same";
  EXPECT_EQ(refused->status, 404);
}

TEST(HttpClientTest, ManyCallsAtATimeHaveTheirOwnAnswers) {
  TinyServer server;
  const std::unique_ptr<HttpClient> client = client_of(server.port());
  std::array<std::promise<std::string>, 24> answers;
  std::array<std::string, 24> bodies;
  for (size_t i = 0; i < answers.size(); ++i) {
    client->start({.method = "POST",
                   .path = "/tokenize",
                   .fields = {{"Content-Type", "application/json"}},
                   .body = fmt::format(R"({{"prompt":"{}","add_special_tokens":false}})", std::string(i + 1, 'z'))},
                  {.data =
                       [&bodies, i](std::string_view part) {
                         bodies[i] += part;
                         return true;
                       },
                   .end = [&, i](const Status& status) { answers[i].set_value(status.ok() ? bodies[i] : "failed"); }});
  }
  for (size_t i = 0; i < answers.size(); ++i) {
    const Result<HttpAnswer> again = client->fetch(
        {.method = "POST",
         .path = "/tokenize",
         .fields = {{"Content-Type", "application/json"}},
         .body = fmt::format(R"({{"prompt":"{}","add_special_tokens":false}})", std::string(i + 1, 'z'))});
    EXPECT_EQ(answers[i].get_future().get(), again->body) << i;
  }
}

TEST(HttpClientTest, CancellingEndsTheRequestOnTheServer) {
  TinyServer server;
  const std::unique_ptr<HttpClient> client = client_of(server.port());
  std::promise<void> began;
  std::promise<Status> over;
  bool first = true;
  const uint64_t call =
      client->start({.method = "POST",
                     .path = "/v1/completions",
                     .fields = {{"Content-Type", "application/json"}},
                     .body = R"({"prompt":"Hello","max_tokens":1900,"ignore_eos":true,"temperature":0,"stream":true})"},
                    {.data =
                         [&](std::string_view) {
                           if (std::exchange(first, false)) began.set_value();
                           return true;
                         },
                     .end = [&](Status status) { over.set_value(std::move(status)); }});
  began.get_future().wait();
  client->cancel(call);
  const Status status = over.get_future().get();
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().message(), "the call was cancelled");
  EXPECT_TRUE(server.wait_until_quiet());
  client->cancel(call);  // nothing
  EXPECT_EQ(client->fetch({.path = "/health"})->status, 200);
}

TEST(HttpClientTest, EndingTheClientEndsItsCalls) {
  TinyServer server;
  std::unique_ptr<HttpClient> client = client_of(server.port());
  std::promise<Status> over;
  client->start({.method = "POST",
                 .path = "/v1/completions",
                 .fields = {{"Content-Type", "application/json"}},
                 .body = R"({"prompt":"Hello","max_tokens":1900,"ignore_eos":true,"stream":true})"},
                {.end = [&](Status status) { over.set_value(std::move(status)); }});
  client.reset();
  EXPECT_FALSE(over.get_future().get().ok());
  EXPECT_TRUE(server.wait_until_quiet());
}

TEST(HttpClientTest, WhatGoesWrongIsOneSentence) {
  uint16_t closed = 0;
  {
    FixedServer cut("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf");
    closed = cut.port();
    const Result<HttpAnswer> answer = client_of(cut.port(), "/base")->fetch({.path = "/v1/x", .fields = {{"A", "b"}}});
    ASSERT_FALSE(answer.ok());
    EXPECT_NE(answer.error().message().find("the connection ended before the answer was complete"), std::string::npos)
        << answer.error().message();
    EXPECT_EQ(cut.request(), fmt::format("GET /base/v1/x HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nA: b\r\n\r\n", cut.port()));
  }
  const Result<HttpAnswer> refused = client_of(closed)->fetch({.path = "/"});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message(), fmt::format("127.0.0.1:{}: Connection refused", closed));
  {
    FixedServer silent("", milliseconds(400));
    const Result<HttpAnswer> answer = client_of(silent.port())->fetch({.timeout = milliseconds(100)});
    ASSERT_FALSE(answer.ok());
    EXPECT_NE(answer.error().message().find("no complete answer within 0.1 s"), std::string::npos)
        << answer.error().message();
  }
  {
    FixedServer other("SSH-2.0-OpenSSH_9.2\r\n");
    EXPECT_FALSE(client_of(other.port())->fetch({}).ok());
  }
  {
    FixedServer closes("HTTP/1.0 200 OK\r\n\r\nall of it");
    const Result<HttpAnswer> answer = client_of(closes.port())->fetch({});
    ASSERT_TRUE(answer.ok()) << answer.error().message();
    EXPECT_EQ(answer->body, "all of it");
  }
  const Result<HttpUrl> nowhere = parse_http_url("http://no-such-host.invalid:1");
  EXPECT_NE(HttpClient::create(*nowhere).error().message().find("no address of that name"), std::string::npos);
}

}  // namespace
}  // namespace lantern::test
