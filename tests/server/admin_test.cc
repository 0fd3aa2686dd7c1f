// What operators may do, and that nobody else may.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <thread>

#include "socket_client.h"
#include "tiny_server.h"

namespace lantern::test {
namespace {

namespace json = boost::json;

const char* const kKey = "Authorization: Bearer root\r\n";
const char* const kLong = R"({"prompt":"Hello","max_tokens":1900,"ignore_eos":true,"stream":true})";

TinyServerOptions with_admin() {
  TinyServerOptions options;
  options.api.admin_keys = ApiKeys({"root"});
  return options;
}

int status_of(uint16_t port, const std::string& method, const std::string& path, std::string_view fields) {
  return method == "GET" ? get(port, path, fields).status : post(port, path, "{}", fields).status;
}

const std::pair<const char*, const char*> kRoutes[] = {
    {"POST", "/abort"},   {"POST", "/flush_cache"},  {"POST", "/drain"},
    {"POST", "/resume"},  {"POST", "/pause"},        {"POST", "/start_profile"},
    {"GET", "/requests"}, {"POST", "/stop_profile"}, {"GET", "/statistics"}};

// A stream that goes on until somebody ends it.
Client begun_stream(uint16_t port, std::string_view id) {
  Client client(port);
  client.send(post_text("/v1/completions", kLong, fmt::format("X-Request-Id: {}\r\n", id)));
  EXPECT_NE(client.read_some(), "");
  return client;
}

TEST(AdminTest, IsOffUnlessItHasAKey) {
  TinyServerOptions options;
  options.api.keys = ApiKeys({"user"});
  TinyServer server(std::move(options));
  for (const auto& [method, path] : kRoutes) {
    EXPECT_EQ(status_of(server.port(), method, path, ""), 404) << path;
    EXPECT_EQ(status_of(server.port(), method, path, "Authorization: Bearer user\r\n"), 404) << path;
  }
  EXPECT_EQ(get(server.port(), "/ready").status, 200);
}

TEST(AdminTest, TakesItsOwnKeyAndNoOther) {
  TinyServerOptions options = with_admin();
  options.api.keys = ApiKeys({"user"});
  TinyServer server(std::move(options));
  for (const auto& [method, path] : kRoutes) {
    EXPECT_EQ(status_of(server.port(), method, path, ""), 401) << path;
    EXPECT_EQ(status_of(server.port(), method, path, "Authorization: Bearer other\r\n"), 401) << path;
    EXPECT_EQ(status_of(server.port(), method, path, "Authorization: Bearer user\r\n"), 403) << path;
  }
  EXPECT_EQ(get(server.port(), "/requests", kKey).status, 200);
  EXPECT_EQ(get(server.port(), "/v1/models", kKey).status, 401) << "it opens nothing else";
}

TEST(AdminTest, WithoutUsersKeysItsOwnIsAskedForAllTheSame) {
  TinyServer server(with_admin());
  EXPECT_EQ(get(server.port(), "/v1/models").status, 200);
  EXPECT_EQ(get(server.port(), "/requests").status, 401);
}

TEST(AdminTest, RequestsAreSeenAndEnded) {
  TinyServer server(with_admin());
  const uint16_t port = server.port();
  Client stream = begun_stream(port, "mine");
  Client other = begun_stream(port, "theirs");
  Client whole(port);
  whole.send(post_text("/v1/chat/completions",
                       R"({"messages":[{"role":"user","content":"x"}],"max_tokens":1900,"ignore_eos":true})",
                       "X-Request-Id: whole\r\n"));
  ASSERT_TRUE(eventually([&] { return get(port, "/requests", kKey).json().at("requests").get_array().size() == 3; }));
  const json::object listed = get(port, "/requests", kKey).json();
  for (const json::value& request : listed.at("requests").get_array()) {
    EXPECT_GT(request.at("prompt_tokens").to_number<int64_t>(), 0);
    EXPECT_EQ(request.at("stream"), text_of(request.at("request_id")) != "whole");
    if (text_of(request.at("request_id")) != "mine") continue;
    EXPECT_EQ(text_of(request.at("path")), "/v1/completions");
    EXPECT_EQ(text_of(request.at("state")), "running");
    EXPECT_GT(request.at("completion_tokens").to_number<int64_t>(), 0);
  }

  EXPECT_EQ(post(port, "/abort", R"({"request_id":"nobody's"})", kKey).status, 404);
  EXPECT_EQ(post(port, "/abort", "{}", kKey).status, 400);
  EXPECT_EQ(post(port, "/abort", R"({"request_id":"mine"})", kKey).json().at("aborted"), 1);
  std::string text;
  while (text.find("0\r\n\r\n") == std::string::npos) {
    const std::string more = stream.read_some();
    ASSERT_NE(more, "");
    text += more;
  }
  EXPECT_NE(text.find(R"("code":"aborted")"), std::string::npos);
  EXPECT_NE(text.find("data: [DONE]"), std::string::npos);

  EXPECT_EQ(post(port, "/abort", R"({"request_id":"whole"})", kKey).json().at("aborted"), 1);
  const std::optional<Answer> answer = whole.read_answer();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status, 503);
  EXPECT_EQ(answer->fields.at("x-should-retry"), "false") << "clients would ask again by themselves";
  EXPECT_EQ(text_of(answer->json().at("error").at("code")), "aborted");
  EXPECT_EQ(get(port, "/requests", kKey).json().at("requests").get_array().size(), 1u);
  EXPECT_EQ(post(port, "/abort", R"({"abort_all":true})", kKey).json().at("aborted"), 1);
  EXPECT_TRUE(server.wait_until_quiet());
  EXPECT_TRUE(eventually([&] { return metric(port, "vllm:request_success_total{finished_reason=\"abort\"}") == 3; }));
}

TEST(AdminTest, ThePrefixCacheIsEmptied) {
  TinyServer server(with_admin());
  const uint16_t port = server.port();
  const std::string ask =
      json::serialize(json::object{{"prompt", json::array(150, 50)}, {"max_tokens", 1}, {"temperature", 0}});
  const auto cached = [&] {
    return post(port, "/v1/completions", ask)
        .json()
        .at("usage")
        .at("prompt_tokens_details")
        .at("cached_tokens")
        .to_number<int64_t>();
  };
  EXPECT_EQ(cached(), 0);
  EXPECT_GT(cached(), 0);
  ASSERT_TRUE(server.wait_until_quiet());
  const auto blocks = [&](const char* what) {
    return get(port, "/statistics", kKey).json().at("ranks").at(0).at("blocks").at(what).to_number<int64_t>();
  };
  const int64_t before = blocks("cached");
  EXPECT_GT(before, 0);
  // As curl -X POST asks, without a body.
  Client client(port);
  client.send(fmt::format("POST /flush_cache HTTP/1.1\r\nHost: localhost\r\n{}\r\n", kKey));
  EXPECT_EQ(client.read_answer().value_or(Answer{}).status, 200);
  EXPECT_TRUE(eventually([&] { return blocks("cached") == 0; }));
  EXPECT_EQ(blocks("free"), blocks("total"));
  EXPECT_EQ(get(port, "/statistics", kKey).json().at("ranks").at(0).at("prefix_cache").at("blocks_flushed"), before);
  EXPECT_EQ(cached(), 0);
  EXPECT_GT(cached(), 0);
}

TEST(AdminTest, ADrainedServerFinishesWhatItHasAndResumes) {
  TinyServer server(with_admin());
  const uint16_t port = server.port();
  Client stream = begun_stream(port, "long");
  EXPECT_EQ(post(port, "/drain", "{}", kKey).json().at("requests"), 1);
  EXPECT_EQ(get(port, "/ready").status, 503);
  EXPECT_EQ(get(port, "/health").status, 200) << "it lives";
  const Answer refused = post(port, "/v1/completions", R"({"prompt":"x"})");
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(text_of(refused.json().at("error").at("code")), "draining");
  EXPECT_NE(stream.read_some(), "") << "what was admitted goes on";
  EXPECT_EQ(post(port, "/abort", R"({"request_id":"long"})", kKey).status, 200);
  EXPECT_TRUE(server.wait_until_quiet());
  EXPECT_EQ(text_of(post(port, "/resume", "{}", kKey).json().at("status")), "serving");
  EXPECT_EQ(get(port, "/ready").status, 200);
  EXPECT_EQ(post(port, "/v1/completions", R"({"prompt":"x","max_tokens":1})").status, 200);
  // A server that stops does not come back.
  server.api().begin_drain();
  EXPECT_EQ(text_of(post(port, "/resume", "{}", kKey).json().at("status")), "stopping");
  EXPECT_EQ(get(port, "/ready").status, 503);
}

TEST(AdminTest, APausedServerHoldsWhatItHasAndTakesMore) {
  TinyServer server(with_admin());
  const uint16_t port = server.port();
  Client stream = begun_stream(port, "long");
  EXPECT_EQ(text_of(post(port, "/pause", "{}", kKey).json().at("status")), "paused");
  const auto steps = [&] { return metric(port, "lantern:steps_total"); };
  ASSERT_TRUE(eventually([&] {  // the step in flight ends, and none follows
    const double last = steps();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    return server.engine().steps_in_flight().empty() && steps() == last;
  }));
  const double before = steps();
  Client second(port);
  ASSERT_TRUE(second.send(post_text("/v1/completions", R"({"prompt":"x","max_tokens":1})")));
  ASSERT_TRUE(eventually([&] { return get(port, "/requests", kKey).json().at("requests").get_array().size() == 2; }));
  EXPECT_EQ(steps(), before);
  for (const char* path : {"/ready", "/health?deep=1"}) {
    const Answer answer = get(port, path);
    EXPECT_EQ(answer.status, 503) << path;
    EXPECT_EQ(text_of(answer.json().at("error").at("code")), "paused") << answer.body;
  }
  EXPECT_EQ(get(port, "/health").status, 200) << "it lives";
  EXPECT_EQ(server.api().watch(std::chrono::steady_clock::now() + std::chrono::hours(1)).count(), 0) << "none hangs";
  EXPECT_EQ(post(port, "/abort", R"({"request_id":"long"})", kKey).status, 200) << "what waits can be ended";
  EXPECT_EQ(text_of(post(port, "/resume", "{}", kKey).json().at("status")), "serving");
  EXPECT_EQ(second.read_answer().value_or(Answer{}).status, 200);
  EXPECT_EQ(get(port, "/ready").status, 200);
  // A server that stops finishes what it has.
  EXPECT_EQ(post(port, "/pause", "{}", kKey).status, 200);
  Client last(port);
  ASSERT_TRUE(last.send(post_text("/v1/completions", R"({"prompt":"x","max_tokens":1})")));
  ASSERT_TRUE(eventually([&] { return !server.api().idle(); }));
  ASSERT_TRUE(eventually([&] { return server.engine().report().num_waiting == 1; }));
  server.api().begin_drain();
  EXPECT_EQ(last.read_answer().value_or(Answer{}).status, 200);
  EXPECT_EQ(text_of(post(port, "/pause", "{}", kKey).json().at("status")), "stopping");
}

TEST(AdminTest, AProfileShowsEveryStep) {
  TinyServer server(with_admin());
  const uint16_t port = server.port();
  EXPECT_EQ(text_of(post(port, "/stop_profile", "{}", kKey).json().at("error").at("code")), "no_profile");
  EXPECT_EQ(post(port, "/start_profile", "{}", kKey).status, 200);
  EXPECT_EQ(post(port, "/v1/completions", R"({"prompt":[5,6,7,8,9],"max_tokens":6,"ignore_eos":true})").status, 200);
  ASSERT_TRUE(server.wait_until_quiet());
  const json::object profile = post(port, "/stop_profile", "{}", kKey).json();
  EXPECT_EQ(profile.at("steps_lost"), 0);
  const json::array& events = profile.at("traceEvents").get_array();
  ASSERT_EQ(events.size(), 6u);
  double end = 0;
  for (const json::value& event : events) {
    const bool first = &event == &events.front();
    EXPECT_EQ(text_of(event.at("ph")), "X");
    EXPECT_EQ(text_of(event.at("name")), first ? "prefill step" : "decode step");
    EXPECT_EQ(event.at("args").at("tokens"), first ? 5 : 1);
    EXPECT_EQ(event.at("args").at("decodes"), first ? 0 : 1);
    EXPECT_GE(event.at("ts").to_number<double>(), end) << "on a CPU one step follows another";
    end = event.at("ts").to_number<double>() + event.at("dur").to_number<double>();
    EXPECT_GE(event.at("dur").to_number<double>(), event.at("args").at("executor_us").to_number<double>() - 1);
    EXPECT_GT(event.at("args").at("executor_us").to_number<double>(), 0);
  }
  EXPECT_EQ(post(port, "/stop_profile", "{}", kKey).status, 400);
}

TEST(AdminTest, WhileTheModelIsLoadedThereIsNothingToSee) {
  TinyServerOptions options = with_admin();
  options.with_model = false;
  TinyServer server(std::move(options));
  EXPECT_EQ(get(server.port(), "/statistics", kKey).status, 503);
  for (const char* path : {"/flush_cache", "/pause", "/start_profile", "/stop_profile"})
    EXPECT_EQ(post(server.port(), path, "{}", kKey).status, 503) << path;
  EXPECT_TRUE(get(server.port(), "/requests", kKey).json().at("requests").get_array().empty());
}

}  // namespace
}  // namespace lantern::test
