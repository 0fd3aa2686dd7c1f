// The web page's files over the socket, and which tokens drafts had foretold, which it shows. A browser uses the page
// in tests/web.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "server/web_page.h"
#include "socket_client.h"
#include "tiny_server.h"

namespace lantern::test {
namespace {

namespace json = boost::json;

TEST(PageTest, ComesWithItsTypeAndUnderAStrictPolicy) {
  TinyServer server({.with_model = false});  // also while the model is being loaded
  const Answer page = get(server.port(), "/");
  EXPECT_EQ(page.status, 200);
  EXPECT_TRUE(page.body.starts_with("<!doctype html>")) << page.body;
  EXPECT_EQ(page.fields.at("content-type"), "text/html; charset=utf-8");
  EXPECT_EQ(page.body, get(server.port(), "/web/index.html").body);
  size_t total = 0;
  for (const WebFile& file : web_files()) {
    const Answer answer = get(server.port(), fmt::format("/web/{}", file.name));
    EXPECT_EQ(answer.status, 200) << file.name;
    EXPECT_EQ(answer.body, file.bytes);
    EXPECT_EQ(answer.fields.at("content-type"), file.content_type);
    EXPECT_EQ(answer.fields.at("x-content-type-options"), "nosniff");
    const std::string& policy = answer.fields.at("content-security-policy");
    EXPECT_NE(policy.find("default-src 'none'"), std::string::npos) << policy;
    EXPECT_NE(policy.find("script-src 'self'"), std::string::npos) << policy;
    EXPECT_EQ(policy.find("unsafe"), std::string::npos) << policy;
    EXPECT_EQ(policy.find('*'), std::string::npos) << policy;
    total += file.bytes.size();
  }
  EXPECT_LT(total, size_t{72} << 10) << "of all files together";
}

TEST(PageTest, WhatABrowserHasIsNotSentAgain) {
  TinyServer server({.with_model = false});
  const Answer first = get(server.port(), "/web/main.js");
  const std::string tag = first.fields.at("etag");
  EXPECT_NE(tag, get(server.port(), "/web/api.js").fields.at("etag"));
  for (const std::string& known : {tag, "W/" + tag, "\"other\", " + tag, std::string("*")}) {
    Client client(server.port());
    client.send(get_text("/web/main.js", fmt::format("If-None-Match: {}\r\n", known)) + get_text("/health"));
    std::string answers;
    for (int i = 0; i < 100 && answers.find("{\"status\":\"ok\"}") == std::string::npos; ++i)
      answers += client.read_some();
    EXPECT_TRUE(answers.starts_with("HTTP/1.1 304 Not Modified\r\n")) << answers;
    const std::string head = answers.substr(0, answers.find("\r\n\r\n"));
    EXPECT_EQ(head.find("Content-Length"), std::string::npos) << "the length of what is not sent: " << head;
    EXPECT_NE(head.find("ETag: " + tag), std::string::npos) << head;
    EXPECT_TRUE(answers.substr(head.size() + 4).starts_with("HTTP/1.1 200 OK\r\n")) << "no body: " << answers;
  }
  EXPECT_EQ(get(server.port(), "/web/main.js", "If-None-Match: \"other\"\r\n").body, first.body);
  Client client(server.port());
  client.send("HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\n");
  const Answer head = client.read_answer(std::chrono::seconds(10), true).value_or(Answer{});
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.fields.at("content-length"), fmt::format("{}", get(server.port(), "/").body.size()));
}

TEST(PageTest, IsOpenWhereTheApiNeedsAKeyAndCanBeSwitchedOff) {
  TinyServerOptions options;
  options.with_model = false;
  options.api.keys = ApiKeys({"secret"});
  TinyServer with_key(std::move(options));
  EXPECT_EQ(get(with_key.port(), "/").status, 200) << "it asks for the key";
  EXPECT_EQ(get(with_key.port(), "/v1/models").status, 401);
  for (const char* path : {"/web/", "/web/none.js", "/web/../index.html", "/web/index.html/", "/web", "/index.html"})
    EXPECT_EQ(get(with_key.port(), path).status, 404) << path;
  EXPECT_EQ(post(with_key.port(), "/", "{}").status, 405);

  TinyServerOptions without;
  without.with_model = false;
  without.api.page = false;
  TinyServer server(std::move(without));
  for (const char* path : {"/", "/web/main.js"}) {
    const Answer answer = get(server.port(), path);
    EXPECT_EQ(answer.status, 404) << path;
    EXPECT_EQ(text_of(answer.json().at("error").at("code")), "endpoint_disabled") << path;
  }
}

// What drafts had foretold is what the engine counts as accepted, and all else was sampled: one token a step.
TEST(PageTest, TellsWhichTokensDraftsHadForetold) {
  TinyServer server({.num_draft_tokens = 3});
  const auto ask = [&](const char* path, const json::object& more) {
    json::object body{
        {"prompt", kQuestion},     {"messages", json::array{json::object{{"role", "user"}, {"content", kQuestion}}}},
        {"temperature", 0},        {"max_tokens", 60},
        {"ignore_eos", true},      {"return_drafted", true},
        {"return_token_ids", true}};
    for (const auto& [name, value] : more) body[name] = value;
    return post(server.port(), path, json::serialize(body));
  };
  const auto count = [&](const char* name) { return static_cast<int64_t>(metric(server.port(), name)); };
  for (const char* path : {"/v1/completions", "/v1/chat/completions"}) {
    ASSERT_TRUE(server.wait_until_quiet());
    const int64_t accepted_before = count("vllm:spec_decode_num_accepted_tokens_total");
    const int64_t steps_before = server.engine().report().steps;
    const json::object whole = ask(path, {}).json();
    const json::object choice = whole.at("choices").at(0).get_object();
    const json::array drafted = choice.at("drafted").get_array();
    const auto tokens = static_cast<int64_t>(choice.at("token_ids").get_array().size());
    ASSERT_TRUE(server.wait_until_quiet());
    EXPECT_GT(drafted.size(), 10u) << path;
    EXPECT_EQ(count("vllm:spec_decode_num_accepted_tokens_total") - accepted_before,
              static_cast<int64_t>(drafted.size()));
    // The last step's sample may be cut off by max_tokens.
    const int64_t sampled = tokens - static_cast<int64_t>(drafted.size());
    const int64_t steps = server.engine().report().steps - steps_before;
    EXPECT_GE(steps, sampled) << path;
    EXPECT_LE(steps, sampled + 1) << path;
    int64_t last = 0;  // the first token comes of the prompt
    for (const json::value& place : drafted) {
      EXPECT_GT(place.to_number<int64_t>(), last) << json::serialize(drafted);
      last = place.to_number<int64_t>();
    }
    EXPECT_LT(last, tokens);

    // In pieces the same, whatever their size: places count from the piece's first token.
    for (const int interval : {1, 7}) {
      json::array streamed;
      int64_t before = 0;
      for (const json::object& event : json_events_of(ask(path, {{"stream", true}, {"stream_interval", interval}}))) {
        const json::object& piece = event.at("choices").at(0).get_object();
        for (const json::value& place : piece.at("drafted").get_array())
          streamed.push_back(place.to_number<int64_t>() + before);
        before += static_cast<int64_t>(piece.at("token_ids").get_array().size());
      }
      EXPECT_EQ(streamed, drafted) << path << ", pieces of " << interval;
    }
  }
  double checked = 0;
  for (int32_t place = 0; place < 3; ++place)
    checked += metric(server.port(),
                      fmt::format("lantern:spec_decode_num_draft_tokens_per_pos_total{{position=\"{}\"}}", place));
  EXPECT_EQ(checked, metric(server.port(), "vllm:spec_decode_num_draft_tokens_total"));
  EXPECT_FALSE(
      ask("/v1/completions", {{"return_drafted", false}}).json().at("choices").at(0).get_object().contains("drafted"));
}

}  // namespace
}  // namespace lantern::test
