// What sparse attention read for each token of an answer, as clients are told.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "socket_client.h"
#include "tiny_server.h"

namespace lantern::test {
namespace {

namespace json = boost::json;

constexpr const char* kPaths[] = {"/v1/completions", "/v1/chat/completions"};
constexpr int64_t kTopK = 128;

// A prompt of more tokens than one reads.
std::string long_question() {
  std::string text;
  for (int i = 0; i < 6; ++i) text += std::string(kQuestion) + " ";
  return text;
}

Answer ask(const TinyServer& server, const char* path, const json::object& more) {
  json::object body{{"temperature", 0}, {"max_tokens", 40}, {"ignore_eos", true}, {"return_token_ids", true}};
  if (path == kPaths[0]) {
    body["prompt"] = long_question();
  } else {
    body["messages"] = json::array{json::object{{"role", "user"}, {"content", long_question()}}};
  }
  for (const auto& [name, value] : more) body[name] = value;
  return post(server.port(), path, json::serialize(body));
}

// What is wrong with the list of a token with `context` tokens before it.
std::string fault_of(const json::value& list, int64_t context) {
  if (!list.is_array() || list.get_array().size() % 2 != 0) return json::serialize(list);
  int64_t at = 0, read = 0;
  for (size_t i = 0; i < list.get_array().size(); i += 2) {
    const int64_t passed = list.get_array()[i].to_number<int64_t>(), run = list.get_array()[i + 1].to_number<int64_t>();
    if (passed < (i == 0 ? 0 : 1) || run < 1) return json::serialize(list);
    at += passed + run;
    read += run;
  }
  if (at > context || read != std::min(context, kTopK))
    return fmt::format("{} tokens, the last {}, of {}", read, at, context);
  return "";
}

TEST(SelectionsTest, ComeWithEveryTokenWholeAndStreamed) {
  TinyServer server({.num_draft_tokens = 3, .max_traced_rows = 64});
  for (const char* path : kPaths) {
    const json::object whole = ask(server, path, {{"return_selections", true}}).json();
    const json::object choice = whole.at("choices").at(0).get_object();
    const json::array selections = choice.at("selections").get_array();
    ASSERT_EQ(selections.size(), choice.at("token_ids").get_array().size());
    ASSERT_EQ(selections.size(), 40u);
    const auto prompt = whole.at("usage").at("prompt_tokens").to_number<int64_t>();
    ASSERT_GT(prompt, kTopK);
    for (size_t t = 0; t < selections.size(); ++t)
      EXPECT_EQ(fault_of(selections[t], prompt + static_cast<int64_t>(t)), "") << path << ", token " << t;
    for (const int interval : {1, 7}) {
      json::array streamed;
      size_t tokens = 0;
      for (const json::object& event : json_events_of(
               ask(server, path, {{"return_selections", true}, {"stream", true}, {"stream_interval", interval}}))) {
        const json::object& piece = event.at("choices").at(0).get_object();
        for (const json::value& list : piece.at("selections").get_array()) streamed.push_back(list);
        tokens += piece.at("token_ids").get_array().size();
        EXPECT_EQ(streamed.size(), tokens) << "each piece has those of its own tokens";
      }
      EXPECT_EQ(streamed, selections) << path << ", pieces of " << interval;
    }
    const json::object without = ask(server, path, {}).json().at("choices").at(0).get_object();
    EXPECT_FALSE(without.contains("selections"));
    EXPECT_EQ(without.at("token_ids"), choice.at("token_ids"));
  }
  const json::object meta = get(server.port(), "/v1/models").json().at("data").at(0).at("meta").get_object();
  EXPECT_EQ(meta.at("traced_layer"), 4);
  EXPECT_EQ(meta.at("index_topk"), kTopK);
}

TEST(SelectionsTest, ShortContextsAreReadWholeAndAnEchoHasNone) {
  TinyServer server({.max_traced_rows = 64});
  const json::object body = ask(server, kPaths[0],
                                {{"prompt", json::array{3, 4, 5}},
                                 {"n", 2},
                                 {"temperature", 1},
                                 {"max_tokens", 3},
                                 {"return_selections", true}})
                                .json();
  for (const json::value& choice : body.at("choices").get_array())
    EXPECT_EQ(json::serialize(choice.at("selections")), "[[0,3],[0,4],[0,5]]");
  const json::object echo =
      ask(server, kPaths[0], {{"echo", true}, {"max_tokens", 0}, {"return_selections", true}}).json();
  EXPECT_TRUE(echo.at("choices").at(0).at("selections").get_array().empty());
}

// Null for the tokens of some choices, and the text of all is as it would be.
TEST(SelectionsTest, AreNullWhereAStepHasNoRoom) {
  TinyServer server({.num_draft_tokens = 1, .max_traced_rows = 4});
  const json::object more{{"n", 8}, {"temperature", 0.8}, {"seed", 5}};
  json::object traced = more;
  traced["return_selections"] = true;
  const json::object expected = ask(server, kPaths[1], more).json(), got = ask(server, kPaths[1], traced).json();
  size_t told = 0, all = 0;
  for (size_t c = 0; c < 8; ++c) {
    const json::object& choice = got.at("choices").at(c).get_object();
    EXPECT_EQ(choice.at("message"), expected.at("choices").at(c).at("message"));
    for (const json::value& list : choice.at("selections").get_array()) {
      ++all;
      told += list.is_null() ? 0 : 1;
    }
  }
  EXPECT_EQ(all, 8u * 40u);
  EXPECT_GT(told, 30u);
  EXPECT_LT(told, all - 30);
}

TEST(SelectionsTest, AreRefusedWhereNoneAreKept) {
  TinyServer server({.max_traced_rows = 0});
  for (const char* path : kPaths) {
    const Answer refused = ask(server, path, {{"return_selections", true}});
    EXPECT_EQ(refused.status, 400);
    const json::object error = refused.json().at("error").get_object();
    EXPECT_EQ(text_of(error.at("param")), "return_selections");
    EXPECT_EQ(text_of(error.at("code")), "unsupported_parameter");
    EXPECT_EQ(text_of(error.at("message")),
              "return_selections is not supported: this server keeps no selections; raise --max-traced-rows");
    EXPECT_EQ(ask(server, path, {{"return_selections", false}}).status, 200);
  }
  EXPECT_TRUE(get(server.port(), "/v1/models").json().at("data").at(0).at("meta").at("traced_layer").is_null());
  OpenAiModel dense = server.model().api;
  dense.sparse_attention = false;
  const auto read =
      read_openai_request(OpenAiEndpoint::kCompletions, R"({"prompt":"x","return_selections":true})", dense, 1);
  ASSERT_TRUE(std::holds_alternative<OpenAiError>(read));
  EXPECT_EQ(std::get<OpenAiError>(read).message,
            "return_selections is not supported: this model has no sparse attention, each token reads all before it");
}

}  // namespace
}  // namespace lantern::test
