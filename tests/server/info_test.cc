// Health, metrics, models, tokens; who may ask.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <regex>

#include "process.h"
#include "socket_client.h"
#include "tiny_server.h"

namespace lantern::test {
namespace {

namespace json = boost::json;

TinyServerOptions with_keys() {
  TinyServerOptions options;
  options.api.keys = ApiKeys({"secret", "other"});
  return options;
}

TEST(InfoTest, HealthIsMeantAsAsked) {
  TinyServer server;
  for (const char* path : {"/health", "/ready", "/ping", "/version", "/v1/version"})
    EXPECT_EQ(get(server.port(), path).status, 200) << path;
  const int64_t before = server.engine().report().output_tokens;
  EXPECT_EQ(get(server.port(), "/health?deep=1").status, 200);
  EXPECT_TRUE(eventually([&] { return server.engine().report().output_tokens == before + 1; })) << "it made a token";
}

// A model that gives no numbers makes no token and no log-probability, and says so wherever it is asked.
TEST(InfoTest, AModelWithoutNumbersIsNotHealthy) {
  for (const char* tensor : {"model.norm.weight", "model.layers.0.self_attn.kv_b_proj.weight"}) {
    ModelCopy model;
    model.make_nan(tensor);
    TinyServerOptions options;
    options.model_dir = model.path();
    TinyServer server(options);
    EXPECT_EQ(get(server.port(), "/health").status, 200);
    const Answer health = get(server.port(), "/health?deep=1");
    EXPECT_EQ(health.status, 503) << tensor;
    EXPECT_EQ(text_of(health.json().at("error").at("message")),
              "no token was made: the model's logits for this request are not finite numbers");
    for (const auto& [more, sentence] :
         {std::pair("", "the model's logits for this request are not finite numbers"),
          std::pair(R"(,"prompt_logprobs":1)", "the model gives no number as the log-probability of prompt token 1"),
          std::pair(R"(,"echo":true,"logprobs":1)",
                    "the model gives no number as the log-probability of prompt token "
                    "1")}) {
      const Answer answer = post(server.port(), "/v1/completions",
                                 fmt::format(R"({{"prompt":"Question: What is 1 plus 1?","max_tokens":2{}}})", more));
      EXPECT_EQ(answer.status, 500) << answer.body;
      EXPECT_NE(answer.body.find(sentence), std::string::npos) << answer.body;
    }
  }
}

TEST(InfoTest, Models) {
  TinyServer server;
  const json::object list = get(server.port(), "/v1/models").json();
  const json::object& card = list.at("data").at(0).get_object();
  EXPECT_EQ(text_of(card.at("id")), "tiny");
  EXPECT_EQ(text_of(card.at("object")), "model");
  EXPECT_EQ(card.at("max_model_len"), 2048);
  EXPECT_EQ(get(server.port(), "/v1/models/tiny").json().at("id"), "tiny");
  EXPECT_EQ(get(server.port(), "/v1/models/ti%6Ey").json().at("id"), "tiny");
  EXPECT_EQ(get(server.port(), "/v1/models/other").status, 404);
  EXPECT_EQ(get(server.port(), "/v1/models/%zz").status, 404);
  EXPECT_EQ(get(server.port(), "/v1/models").body.find(LANTERN_SOURCE_DIR), std::string::npos) << "no paths of ours";
}

TEST(InfoTest, TokensAndBack) {
  TinyServer server;
  const json::object ids =
      post(server.port(), "/tokenize", R"({"prompt":"Hello, world","return_token_strs":true})").json();
  const std::vector<TokenId> expected = *server.model().api.tokenizer->encode("Hello, world");
  ASSERT_EQ(ids.at("count").to_number<size_t>(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(ids.at("tokens").at(i), expected[i]);
  EXPECT_EQ(ids.at("token_strs").get_array().size(), expected.size());
  const json::object bare =
      post(server.port(), "/tokenize", R"({"prompt":"Hello, world","add_special_tokens":false})").json();
  const Answer back = post(server.port(), "/detokenize", json::serialize(json::object{{"tokens", bare.at("tokens")}}));
  EXPECT_EQ(text_of(back.json().at("prompt")), "Hello, world");
  // A control token as text is one id: clients ask for its id so.
  const std::string eos =
      server.model().api.tokenizer->decode(std::vector<TokenId>{*server.model().api.tokenizer->eos_id()});
  const json::object one =
      post(server.port(), "/tokenize", json::serialize(json::object{{"prompt", eos}, {"add_special_tokens", false}}))
          .json();
  EXPECT_EQ(one.at("count"), 1);
  EXPECT_EQ(post(server.port(), "/detokenize", R"({"tokens":[5000]})").status, 400);
  EXPECT_EQ(post(server.port(), "/detokenize", R"({})").status, 400);
  EXPECT_EQ(post(server.port(), "/tokenize", R"({})").status, 400);
  EXPECT_EQ(post(server.port(), "/tokenize", "[").status, 400);
  // Of a conversation: as many as it costs as a prompt.
  const std::string messages = R"("messages":[{"role":"user","content":"Hi"}])";
  const json::object chat = post(server.port(), "/tokenize", "{" + messages + "}").json();
  const json::object used = post(server.port(), "/v1/chat/completions", "{" + messages + R"(,"max_tokens":1})").json();
  EXPECT_EQ(chat.at("count"), used.at("usage").at("prompt_tokens"));
  const json::object rendered =
      post(server.port(), "/v1/chat/completions/render", "{" + messages + "}").json().at("prompts").at(0).get_object();
  EXPECT_EQ(rendered.at("prompt_token_ids"), chat.at("tokens"));
  // Behind which no answer could begin.
  for (const char* role : {"system", "assistant"}) {
    const std::string alone = fmt::format(R"({{"messages":[{{"role":"{}","content":"Hi"}}]}})", role);
    EXPECT_GT(post(server.port(), "/tokenize", alone).json().at("count").to_number<int>(), 0) << role;
  }
  EXPECT_GT(post(server.port(), "/v1/messages/count_tokens", R"({"messages":[{"role":"assistant","content":"Hi"}]})")
                .json()
                .at("input_tokens")
                .to_number<int>(),
            0);
  EXPECT_NE(text_of(rendered.at("prompt")).find("Hi"), std::string::npos);
}

TEST(InfoTest, TheTokenizerIsToldOfWhereAllowed) {
  {
    TinyServer server;
    EXPECT_EQ(get(server.port(), "/tokenizer_info").status, 404);
  }
  TinyServerOptions options;
  options.api.tokenizer_info = true;
  TinyServer server(std::move(options));
  const json::object info = get(server.port(), "/tokenizer_info").json();
  EXPECT_NE(text_of(info.at("eos_token")), "");
}

TEST(InfoTest, MetricsAreWellFormedAndCount) {
  TinyServer server;
  const uint16_t port = server.port();
  post(port, "/v1/completions", R"({"prompt":"Hello","max_tokens":5,"ignore_eos":true})");
  post(port, "/v1/completions", R"({"prompt":"Hello","max_tokens":7,"ignore_eos":true,"stream":true})");
  // A request is counted when its answer has left.
  ASSERT_TRUE(eventually(
      [&] { return metric(port, "lantern:http_requests_total{route=\"/v1/completions\",status=\"200\"}") == 2; }));
  const Answer answer = get(port, "/metrics");
  EXPECT_EQ(answer.fields.at("content-type"), "text/plain; version=0.0.4; charset=utf-8");
  const std::regex sample(
      R"re([a-zA-Z_:][a-zA-Z0-9_:]*(\{([a-z_]+="([^"\\\n]|\\.)*",?)*\})? (NaN|[+-]?Inf|-?[0-9.e+-]+))re");
  const std::regex comment(R"(# (HELP|TYPE) [a-zA-Z_:][a-zA-Z0-9_:]* .+)");
  size_t begin = 0;
  std::set<std::string> types;
  for (size_t end; (end = answer.body.find('\n', begin)) != std::string::npos; begin = end + 1) {
    const std::string line = answer.body.substr(begin, end - begin);
    EXPECT_TRUE(std::regex_match(line, line[0] == '#' ? comment : sample)) << line;
    if (!line.starts_with("# TYPE ")) continue;
    EXPECT_TRUE(types.insert(line).second) << "twice: " << line;
    if (line.ends_with(" counter")) {
      EXPECT_NE(line.find("_total counter"), std::string::npos) << line;
    }
  }
  EXPECT_EQ(begin, answer.body.size()) << "the last line ends";
  EXPECT_EQ(metric(port, "vllm:generation_tokens_total"), 12);
  EXPECT_EQ(metric(port, "vllm:request_success_total{finished_reason=\"length\"}"), 2);
  EXPECT_EQ(metric(port, "vllm:time_to_first_token_seconds_count"), 2);
  EXPECT_EQ(metric(port, "vllm:inter_token_latency_seconds_count"), 4 + 6);
  EXPECT_EQ(metric(port, "vllm:e2e_request_latency_seconds_bucket{le=\"+Inf\"}"), 2);
  EXPECT_EQ(metric(port, "vllm:request_generation_tokens_sum"), 12);
  EXPECT_EQ(metric(port, "vllm:num_requests_running"), 0);
  for (const char* name : {"vllm:num_requests_waiting", "vllm:kv_cache_usage_perc", "vllm:cache_config_info",
                           "vllm:prefix_cache_queries_total", "vllm:num_preemptions_total"})
    EXPECT_GE(metric(port, name), 0) << name;
}

// CVE-2026-48746: what a key protects is the handler, whatever the path to it looks like.
TEST(InfoTest, Cve_2026_48746_NoPathGoesAroundTheKey) {
  TinyServer server(with_keys());
  const char* const targets[] = {"/v1/models",
                                 "//v1/models",
                                 "/v1//models",
                                 "/./v1/models",
                                 "/v1/../v1/models",
                                 "/%76%31/models",
                                 "/v1/models/",
                                 "/v1/models;x",
                                 "/v1/models?x=/health",
                                 "/health/../v1/models",
                                 "/health;/v1/models",
                                 "/v1/models%00",
                                 "/V1/models",
                                 "http://localhost/v1/models",
                                 "http://localhost/health/../v1/models",
                                 "http://health/v1/models",
                                 "/v1/models/tiny",
                                 "/load",
                                 "/tokenizer_info"};
  for (const char* target : targets) {
    for (const char* host : {"localhost", "localhost/health", "127.0.0.1:80#/health", "[::1]:1?/health"}) {
      Client client(server.port());
      client.send(fmt::format("GET {} HTTP/1.1\r\nHost: {}\r\n\r\n", target, host));
      const Answer answer = client.read_answer().value_or(Answer{});
      EXPECT_TRUE(answer.status == 401 || answer.status == 404 || answer.status == 403 || answer.status == 400)
          << target << " by " << host << ": " << answer.status;
      EXPECT_EQ(answer.body.find("max_model_len"), std::string::npos) << target;
    }
  }
  for (const char* path : {"/v1/completions", "/v1/chat/completions", "/v1/responses", "/tokenize", "/detokenize",
                           "/v1/completions/render", "/v1/chat/completions/render"}) {
    const Answer answer = post(server.port(), path, "{}");
    EXPECT_EQ(answer.status, 401) << path;
    EXPECT_EQ(answer.fields.at("www-authenticate"), "Bearer");
    EXPECT_EQ(text_of(answer.json()["error"].at("code")), "invalid_api_key");
  }
  for (const char* path : {"/health", "/ready", "/ping", "/version", "/metrics"})
    EXPECT_EQ(get(server.port(), path).status, 200) << path << " is open to probes";
  EXPECT_EQ(get(server.port(), "/v1/models", "Authorization: bearer other\r\n").status, 200);
  EXPECT_EQ(get(server.port(), "/v1/models", "x-api-key: secret\r\n").status, 200);
  EXPECT_EQ(get(server.port(), "/v1/models", "Authorization: Basic secret\r\n").status, 401);
  EXPECT_EQ(get(server.port(), "/v1/models", "Authorization: Bearer\r\n").status, 401);
  // Browsers ask without it.
  Client client(server.port());
  client.send("OPTIONS /v1/models HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\n\r\n");
  EXPECT_EQ(client.read_answer().value_or(Answer{}).status, 204);
}

TEST(InfoTest, WithoutKeysAnyIsTaken) {
  TinyServer server;
  for (const char* fields : {"Authorization: Bearer \r\n", "Authorization: Bearer EMPTY\r\n", "x-api-key: x\r\n"})
    EXPECT_EQ(get(server.port(), "/v1/models", fields).status, 200) << fields;
}

}  // namespace
}  // namespace lantern::test
