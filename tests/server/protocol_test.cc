// HTTP as it should not be, and as it may be: over raw sockets.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <thread>

#include "process_state.h"
#include "socket_client.h"
#include "tiny_server.h"

namespace lantern::test {
namespace {

using std::chrono::milliseconds;

const std::string kSmall = R"({"prompt":"Hello","max_tokens":2,"temperature":0})";

class ProtocolTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    TinyServerOptions options;
    options.http.header_timeout = milliseconds(1000);
    options.http.body_timeout = milliseconds(1000);
    options.http.idle_timeout = milliseconds(1500);
    options.http.max_body_bytes = 100'000;
    server_ = new TinyServer(std::move(options));
  }
  static void TearDownTestSuite() {
    delete server_;
    server_ = nullptr;
  }
  // Whatever a test did: the next request is answered.
  void TearDown() override { EXPECT_EQ(post(port(), "/v1/completions", kSmall).status, 200); }
  static uint16_t port() { return server_->port(); }

  // The answer to these bytes, and that the connection ends with it.
  static int refused(const std::string& bytes) {
    Client client(port());
    client.send(bytes);
    const std::optional<Answer> answer = client.read_answer();
    EXPECT_TRUE(answer) << bytes.substr(0, 100);
    EXPECT_TRUE(client.is_closed()) << bytes.substr(0, 100);
    if (!answer) return 0;
    EXPECT_NE(text_of(answer->json().at("error").at("message")), "");
    return answer->status;
  }

  static TinyServer* server_;
};
TinyServer* ProtocolTest::server_ = nullptr;

TEST_F(ProtocolTest, OneByteAtATime) {
  Client client(port());
  for (const char byte : post_text("/v1/completions", kSmall)) ASSERT_TRUE(client.send({&byte, 1}));
  const std::optional<Answer> answer = client.read_answer();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status, 200);
}

TEST_F(ProtocolTest, ManyRequestsOnOneConnection) {
  Client client(port());
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(client.send(post_text("/v1/completions", kSmall)));
    ASSERT_EQ(client.read_answer().value_or(Answer{}).status, 200) << i;
    ASSERT_TRUE(client.send(get_text("/health")));
    ASSERT_EQ(client.read_answer().value_or(Answer{}).status, 200) << i;
  }
  // A stream too leaves the connection open.
  ASSERT_TRUE(client.send(post_text("/v1/completions", R"({"prompt":"Hello","max_tokens":3,"stream":true})")));
  json_events_of(client.read_answer().value_or(Answer{}));
  ASSERT_TRUE(client.send(get_text("/version", "Connection: close\r\n")));
  EXPECT_EQ(client.read_answer().value_or(Answer{}).fields["connection"], "close");
  EXPECT_TRUE(client.is_closed());
}

TEST_F(ProtocolTest, PipelinedRequestsAreAnsweredInOrder) {
  Client client(port());
  ASSERT_TRUE(client.send(post_text("/v1/completions", kSmall) + get_text("/version") +
                          post_text("/v1/completions", R"({"prompt":"Hello","max_tokens":40,"stream":true})") +
                          get_text("/v1/models")));
  EXPECT_EQ(text_of(client.read_answer().value_or(Answer{}).json()["object"]), "text_completion");
  EXPECT_EQ(text_of(client.read_answer().value_or(Answer{}).json()["version"]), "test");
  EXPECT_FALSE(json_events_of(client.read_answer().value_or(Answer{})).empty());
  EXPECT_EQ(text_of(client.read_answer().value_or(Answer{}).json()["object"]), "list");
}

TEST_F(ProtocolTest, ChunkedBodies) {
  Client client(port());
  const std::string head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n";
  ASSERT_TRUE(client.send(head + "a;ignored=1\r\n" + kSmall.substr(0, 10) + "\r\n27\r\n" + kSmall.substr(10) +
                          "\r\n0\r\n\r\n"));
  EXPECT_EQ(client.read_answer().value_or(Answer{}).status, 200);
  EXPECT_EQ(refused(head + "zz\r\n" + kSmall), 400);
  EXPECT_EQ(refused(head + "ffffffffffffffffff\r\n" + kSmall), 400);
  EXPECT_EQ(refused(head + "5\r\nabcdefgh\r\n"), 400) << "no line end behind the chunk";
}

// Two readings of where a body ends are one request too many.
TEST_F(ProtocolTest, SmugglingIsRefused) {
  const std::string start = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n";
  EXPECT_EQ(refused(start + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), 400);
  EXPECT_EQ(refused(start + "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n"), 400);
  EXPECT_EQ(refused(start + "Content-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef"), 400);
  EXPECT_EQ(refused(start + "Content-Length: 5\r\nContent-Length: 5\r\n\r\nabcde"), 400);
  EXPECT_EQ(refused(start + "Content-Length: 5, 5\r\n\r\nabcde"), 400);
  EXPECT_EQ(refused(start + "Content-Length: +5\r\n\r\nabcde"), 400);
  EXPECT_EQ(refused(start + "Content-Length: -1\r\n\r\n"), 400);
  EXPECT_EQ(refused(start + "Content-Length: 99999999999999999999\r\n\r\n"), 400);
  EXPECT_EQ(refused(start + "Content-Length : 5\r\n\r\nabcde"), 400);
  EXPECT_EQ(refused(start + "Transfer-Encoding: gzip\r\n\r\n"), 501);
  EXPECT_EQ(refused(start + "Transfer-Encoding: chunked, identity\r\n\r\n"), 501);
  EXPECT_EQ(refused(start + "Transfer-Encoding: xchunked\r\n\r\n"), 501);
  EXPECT_EQ(refused("POST /v1/completions HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), 400);
  EXPECT_EQ(refused("GET /health HTTP/1.1\nHost: localhost\n\n"), 505) << "bare line feeds are no line ends";
  EXPECT_EQ(refused("GET /health HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"), 400);
  EXPECT_EQ(refused("GET /health HTTP/1.1\r\n\r\n"), 400) << "no host";
  EXPECT_EQ(refused("GET /health HTTP/3.0\r\nHost: localhost\r\n\r\n"), 505);
  EXPECT_EQ(refused("nonsense\r\n\r\n"), 400);
  EXPECT_EQ(refused(std::string("GET /hea") + '\0' + "lth HTTP/1.1\r\nHost: localhost\r\n\r\n"), 400);
  EXPECT_EQ(refused("GET health HTTP/1.1\r\nHost: localhost\r\n\r\n"), 400);
  EXPECT_EQ(refused(std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 15)), 400) << "TLS";
}

TEST_F(ProtocolTest, LongHeadersAreRefusedEarly) {
  std::string many = "GET /health HTTP/1.1\r\nHost: localhost\r\n";
  for (int i = 0; i < 300; ++i) many += "X-" + std::to_string(i) + ": 1\r\n";
  EXPECT_EQ(refused(many + "\r\n"), 431);
  EXPECT_EQ(refused("GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + std::string(70'000, 'x') + "\r\n\r\n"), 431);
  EXPECT_EQ(refused("GET /" + std::string(70'000, 'x') + " HTTP/1.1\r\nHost: localhost\r\n\r\n"), 431);
}

// A header that never ends costs what its limit is.
TEST_F(ProtocolTest, Cve_2025_48956_GiantHeader) {
  const int64_t before = resident_bytes();
  Client client(port());
  ASSERT_TRUE(client.send("GET /health HTTP/1.1\r\nHost: localhost\r\nX: "));
  const std::string block(size_t{1} << 16, 'x');
  int64_t sent = 0;
  while (sent < (int64_t{64} << 20) && client.send(block)) sent += static_cast<int64_t>(block.size());
  EXPECT_LT(sent, int64_t{32} << 20) << "it is not read to the end";
  if (kMemoryIsPlain) {
    EXPECT_LT(resident_bytes() - before, int64_t{8} << 20);
  }
}

TEST_F(ProtocolTest, BodiesHaveALimit) {
  EXPECT_EQ(refused("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100001\r\n\r\n"), 413);
  std::string chunks = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (int i = 0; i < 30; ++i) chunks += "1000\r\n" + std::string(4096, ' ') + "\r\n";
  EXPECT_EQ(refused(chunks), 413);
}

TEST_F(ProtocolTest, ExpectContinue) {
  Client client(port());
  std::string text = post_text("/v1/completions", kSmall, "Expect: 100-continue\r\n");
  const size_t body = text.find("\r\n\r\n") + 4;
  ASSERT_TRUE(client.send(text.substr(0, body)));
  ASSERT_EQ(client.read_answer().value_or(Answer{}).status, 100);
  ASSERT_TRUE(client.send(text.substr(body)));
  EXPECT_EQ(client.read_answer().value_or(Answer{}).status, 200);
  // A refusal comes instead of it.
  Client other(port());
  ASSERT_TRUE(
      other.send("POST /nowhere HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n"));
  EXPECT_EQ(other.read_answer().value_or(Answer{}).status, 404);
  EXPECT_EQ(refused("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nExpect: x\r\n\r\n"), 417);
}

TEST_F(ProtocolTest, SlowHeadersAndBodiesTimeOut) {
  EXPECT_EQ(refused("GET /health HTTP/1.1\r\nHost: local"), 408);
  EXPECT_EQ(refused("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50\r\n\r\n{"), 408);
  // A byte now and then does not help.
  Client dribbling(port());
  const std::string text = get_text("/health", "X: " + std::string(1000, 'x') + "\r\n");
  size_t sent = 0;
  for (; sent < text.size() && dribbling.send(text.substr(sent, 1)); ++sent)
    std::this_thread::sleep_for(milliseconds(30));
  EXPECT_LT(sent, text.size());
  EXPECT_TRUE(dribbling.is_closed());
  // One that says nothing at all is closed without a word.
  Client silent(port());
  EXPECT_FALSE(silent.read_answer(milliseconds(6000)));
}

TEST_F(ProtocolTest, Http10) {
  Client client(port());
  ASSERT_TRUE(client.send("GET /version HTTP/1.0\r\n\r\n"));
  EXPECT_EQ(client.read_answer().value_or(Answer{}).status, 403) << "no host was named, and this one is on loopback";
  Client stream(port());
  const std::string body = R"({"prompt":"Hello","max_tokens":3,"stream":true})";
  ASSERT_TRUE(stream.send("POST /v1/completions HTTP/1.0\r\nHost: localhost\r\nContent-Length: " +
                          std::to_string(body.size()) + "\r\n\r\n" + body));
  const Answer answer = stream.read_answer().value_or(Answer{});
  EXPECT_FALSE(answer.fields.contains("transfer-encoding"));
  EXPECT_TRUE(answer.body.ends_with("data: [DONE]\n\n")) << answer.body;
}

TEST_F(ProtocolTest, MethodsAndPaths) {
  const Answer wrong = get(port(), "/v1/completions");
  EXPECT_EQ(wrong.status, 405);
  EXPECT_EQ(wrong.fields.at("allow"), "POST, OPTIONS");
  EXPECT_EQ(get(port(), "/nowhere").status, 404);
  Client client(port());
  ASSERT_TRUE(client.send("HEAD /version HTTP/1.1\r\nHost: localhost\r\n\r\n" + get_text("/health")));
  const Answer head = client.read_answer(std::chrono::seconds(10), true).value_or(Answer{});
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.fields.at("content-length"), "18");
  EXPECT_EQ(client.read_answer().value_or(Answer{}).status, 200) << "no body came in between";
  ASSERT_TRUE(client.send("GET http://localhost/version?x=1 HTTP/1.1\r\nHost: localhost\r\n\r\n"));
  EXPECT_EQ(client.read_answer().value_or(Answer{}).status, 200) << "absolute form";
}

TEST_F(ProtocolTest, BodiesAreJson) {
  const auto with_type = [&](std::string_view fields) {
    Client client(port());
    client.send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + std::to_string(kSmall.size()) +
                "\r\n" + std::string(fields) + "\r\n" + kSmall);
    return client.read_answer().value_or(Answer{}).status;
  };
  EXPECT_EQ(with_type("Content-Type: application/json; charset=utf-8\r\n"), 200);
  EXPECT_EQ(with_type(""), 200);
  EXPECT_EQ(with_type("Content-Type: text/plain\r\n"), 415);
  EXPECT_EQ(with_type("Content-Type: multipart/form-data; boundary=x\r\n"), 415);
  EXPECT_EQ(with_type("Content-Encoding: gzip\r\n"), 415);
  Client client(port());
  client.send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(client.read_answer().value_or(Answer{}).status, 411);
}

// CVE-2024-28224, DNS rebinding: another name for this machine is a page's doing.
TEST_F(ProtocolTest, Cve_2024_28224_OtherHostsAndOrigins) {
  const auto with = [&](const std::string& fields) {
    Client client(port());
    client.send("GET /v1/models HTTP/1.1\r\n" + fields + "\r\n");
    return client.read_answer().value_or(Answer{});
  };
  EXPECT_EQ(with("Host: evil.example\r\n").status, 403);
  EXPECT_EQ(with("Host: 127.evil.example\r\n").status, 403);
  EXPECT_EQ(with("Host: localhost.evil.example\r\n").status, 403);
  EXPECT_EQ(with("Host: 127.0.0.1:8000\r\n").status, 200);
  EXPECT_EQ(with("Host: [::1]:8000\r\n").status, 200);
  EXPECT_EQ(with("Host: LocalHost\r\n").status, 200);
  const Answer ours = with("Host: localhost\r\nOrigin: http://localhost:3000\r\n");
  EXPECT_EQ(ours.fields.at("access-control-allow-origin"), "http://localhost:3000");
  const Answer theirs = with("Host: localhost\r\nOrigin: https://evil.example\r\n");
  EXPECT_FALSE(theirs.fields.contains("access-control-allow-origin"));
  EXPECT_EQ(post(port(), "/v1/completions", kSmall, "Origin: https://evil.example\r\n").status, 403);
  EXPECT_EQ(post(port(), "/v1/completions", kSmall, "Origin: null\r\n").status, 403);
  Client client(port());
  client.send(
      "OPTIONS /v1/completions HTTP/1.1\r\nHost: localhost\r\nOrigin: http://127.0.0.1:3000\r\n"
      "Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: authorization\r\n\r\n");
  const Answer preflight = client.read_answer().value_or(Answer{});
  EXPECT_EQ(preflight.status, 204);
  EXPECT_EQ(preflight.fields.at("access-control-allow-headers"), "authorization");
}

}  // namespace
}  // namespace lantern::test
