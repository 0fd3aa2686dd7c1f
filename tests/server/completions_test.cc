// Completions and chats: what comes over the socket is what the engine says, streamed or not.
#include <gtest/gtest.h>

#include "socket_client.h"
#include "tiny_server.h"

namespace lantern::test {
namespace {

namespace json = boost::json;

class CompletionsTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { server_ = new TinyServer(); }
  static void TearDownTestSuite() {
    delete server_;
    server_ = nullptr;
  }
  static uint16_t port() { return server_->port(); }

  static json::object body(const json::object& more) {
    json::object all{{"model", "tiny"}, {"prompt", kQuestion}, {"temperature", 0}, {"max_tokens", 40}};
    for (const auto& [name, value] : more) all[name] = value;
    return all;
  }
  static json::object chat(const json::object& more) {
    json::object all{{"messages", json::array{json::object{{"role", "user"}, {"content", "What is 6 times 7?"}}}},
                     {"temperature", 0},
                     {"max_tokens", 64}};
    for (const auto& [name, value] : more) all[name] = value;
    return all;
  }
  static json::object complete(const json::object& request, const char* path = "/v1/completions") {
    const Answer answer = post(port(), path, json::serialize(request));
    EXPECT_EQ(answer.status, 200) << answer.body;
    return answer.json();
  }
  static std::vector<json::object> stream(json::object request, const char* path = "/v1/completions") {
    request["stream"] = true;
    return json_events_of(post(port(), path, json::serialize(request)));
  }

  static TinyServer* server_;
};
TinyServer* CompletionsTest::server_ = nullptr;

const char* const kChat = "/v1/chat/completions";

// Text, finish_reason and stop_reason of the choices of a stream, put together.
struct Joined {
  std::string text;
  std::string reasoning;
  std::string finish_reason;
  json::value stop_reason;
  json::array tokens, token_logprobs, offsets;
  int ends = 0;
  int roles = 0;
};
std::map<int, Joined> join(const std::vector<json::object>& events) {
  std::map<int, Joined> all;
  for (const json::object& event : events) {
    for (const json::value& one : event.at("choices").get_array()) {
      const json::object& choice = one.get_object();
      Joined& to = all[choice.at("index").to_number<int>()];
      EXPECT_EQ(to.ends, 0) << "nothing comes after the end";
      if (choice.contains("delta")) {
        const json::object& delta = choice.at("delta").get_object();
        if (delta.contains("content")) to.text += text_of(delta.at("content"));
        if (delta.contains("reasoning_content")) to.reasoning += text_of(delta.at("reasoning_content"));
        if (delta.contains("role")) ++to.roles;
      } else {
        to.text += text_of(choice.at("text"));
      }
      if (choice.at("logprobs").is_object() && choice.at("logprobs").get_object().contains("tokens")) {
        const json::object& lists = choice.at("logprobs").get_object();
        const auto append = [&](json::array& list, const char* name) {
          for (const json::value& item : lists.at(name).get_array()) list.push_back(item);
        };
        append(to.tokens, "tokens");
        append(to.token_logprobs, "token_logprobs");
        append(to.offsets, "text_offset");
      }
      if (choice.at("finish_reason").is_null()) continue;
      ++to.ends;
      to.finish_reason = text_of(choice.at("finish_reason"));
      to.stop_reason = choice.at("stop_reason");
    }
  }
  return all;
}

TEST_F(CompletionsTest, TextIsTheEngines) {
  const std::string expected = server_->greedy(kQuestion, 40);
  ASSERT_NE(expected, "");
  const json::object answer = complete(body({}));
  EXPECT_EQ(text_of(answer.at("choices").at(0).at("text")), expected);
  EXPECT_EQ(text_of(answer.at("object")), "text_completion");
  EXPECT_EQ(text_of(answer.at("model")), "tiny");
  EXPECT_TRUE(text_of(answer.at("id")).starts_with("cmpl-"));
  const json::object& usage = answer.at("usage").get_object();
  const int64_t prompt = static_cast<int64_t>(server_->model().api.tokenizer->encode(kQuestion)->size());
  EXPECT_EQ(usage.at("prompt_tokens"), prompt);
  EXPECT_EQ(usage.at("total_tokens").to_number<int64_t>(), prompt + usage.at("completion_tokens").to_number<int64_t>());
  // All of the same prompt but what is not a full block was cached by the first.
  std::string long_prompt;
  for (int i = 0; i < 8; ++i) long_prompt += kQuestion;
  complete(body({{"prompt", long_prompt}}));
  EXPECT_GT(complete(body({{"prompt", long_prompt}}))
                .at("usage")
                .at("prompt_tokens_details")
                .at("cached_tokens")
                .to_number<int64_t>(),
            0);

  const std::vector<json::object> events = stream(body({}));
  const auto joined = join(events);
  ASSERT_EQ(joined.size(), 1u);
  EXPECT_EQ(joined.at(0).text, expected);
  EXPECT_EQ(joined.at(0).finish_reason, text_of(answer.at("choices").at(0).at("finish_reason")));
  EXPECT_EQ(joined.at(0).stop_reason, answer.at("choices").at(0).at("stop_reason"));
  EXPECT_GT(events.size(), 4u) << "a token at a time";
  for (const json::object& event : events) {
    EXPECT_EQ(event.at("id"), events[0].at("id"));
    EXPECT_EQ(text_of(event.at("object")), "text_completion");
    EXPECT_FALSE(event.contains("usage")) << "nobody asked for it";
  }
}

TEST_F(CompletionsTest, StreamsGiveWhatWholeAnswersGive) {
  const json::object requests[] = {
      body({{"n", 3}, {"temperature", 1.5}, {"seed", 7}, {"max_tokens", 24}}),
      body({{"prompt", json::array{"Question: 1 plus 1?", "Sort: pear apple fig", kQuestion}}, {"n", 2}}),
      body({{"stop", json::array{"e", "zzz"}}}),
      body({{"stop", "apples"}, {"include_stop_str_in_output", true}}),
      body({{"echo", true}, {"logprobs", 2}, {"max_tokens", 6}}),
      body({{"echo", true}, {"logprobs", 1}, {"max_tokens", 0}}),
      body({{"logprobs", 3}, {"return_tokens_as_token_ids", true}, {"max_tokens", 9}}),
      body({{"stream_interval", 5}}),
      body({{"max_tokens", 1}}),
      body({{"temperature", 2.0}, {"seed", 11}, {"ignore_eos", true}, {"max_tokens", 100}}),
  };
  for (const json::object& request : requests) {
    const json::array whole = complete([&] {
                                json::object without = request;
                                without.erase("stream_interval");
                                return without;
                              }())
                                  .at("choices")
                                  .get_array();
    const auto joined = join(stream(request));
    ASSERT_EQ(joined.size(), whole.size()) << json::serialize(request);
    for (size_t i = 0; i < whole.size(); ++i) {
      const Joined& streamed = joined.at(static_cast<int>(i));
      EXPECT_EQ(streamed.text, text_of(whole[i].at("text"))) << json::serialize(request);
      EXPECT_EQ(streamed.finish_reason, text_of(whole[i].at("finish_reason")));
      EXPECT_EQ(streamed.stop_reason, whole[i].at("stop_reason"));
      EXPECT_EQ(streamed.ends, 1);
      if (whole[i].at("logprobs").is_null()) continue;
      const json::object& lists = whole[i].at("logprobs").get_object();
      EXPECT_EQ(streamed.tokens, lists.at("tokens").get_array());
      EXPECT_EQ(streamed.token_logprobs, lists.at("token_logprobs").get_array());
      EXPECT_EQ(streamed.offsets, lists.at("text_offset").get_array());
    }
  }
}

TEST_F(CompletionsTest, StopStringsAreToldAndNotShown) {
  const std::string expected = server_->greedy(kQuestion, 40);
  const std::string stop = expected.substr(expected.size() / 2, 3);
  const json::object answer = complete(body({{"stop", stop}}));
  EXPECT_EQ(text_of(answer.at("choices").at(0).at("text")), expected.substr(0, expected.find(stop)));
  EXPECT_EQ(text_of(answer.at("choices").at(0).at("stop_reason")), stop);
  EXPECT_EQ(text_of(answer.at("choices").at(0).at("finish_reason")), "stop");
}

TEST_F(CompletionsTest, UsageInStreams) {
  const json::object whole = complete(body({})).at("usage").get_object();
  const auto check_last = [&](const json::object& last) {
    EXPECT_TRUE(last.at("choices").get_array().empty()) << "clients look for usage only there";
    for (const char* name : {"prompt_tokens", "completion_tokens", "total_tokens"})
      EXPECT_EQ(last.at("usage").at(name), whole.at(name));
  };
  const auto asked = stream(body({{"stream_options", json::object{{"include_usage", true}}}}));
  for (size_t i = 0; i + 1 < asked.size(); ++i) EXPECT_TRUE(asked[i].at("usage").is_null());
  check_last(asked.back());

  const auto running =
      stream(body({{"stream_options", json::object{{"include_usage", true}, {"continuous_usage_stats", true}}}}));
  int64_t before = 0;
  for (size_t i = 0; i + 1 < running.size(); ++i) {
    const int64_t now = running[i].at("usage").at("completion_tokens").to_number<int64_t>();
    EXPECT_GT(now, before);
    before = now;
  }
  EXPECT_EQ(before, whole.at("completion_tokens").to_number<int64_t>());
  check_last(running.back());
}

TEST_F(CompletionsTest, ChatsInOrder) {
  const json::object whole = complete(chat({}), kChat);
  EXPECT_TRUE(text_of(whole.at("id")).starts_with("chatcmpl-"));
  EXPECT_EQ(text_of(whole.at("object")), "chat.completion");
  const std::string expected = text_of(whole.at("choices").at(0).at("message").at("content"));
  ASSERT_NE(expected, "");
  const auto events = stream(chat({{"stream_options", json::object{{"include_usage", true}}}}), kChat);
  ASSERT_GE(events.size(), 4u);
  const json::object& first = events[0].at("choices").at(0).at("delta").get_object();
  EXPECT_EQ(text_of(first.at("role")), "assistant") << "with the first token, not before it";
  EXPECT_EQ(text_of(events[0].at("object")), "chat.completion.chunk");
  const auto joined = join(events);
  EXPECT_EQ(joined.at(0).text, expected);
  EXPECT_EQ(joined.at(0).roles, 1);
  // The end says nothing but that it is one.
  const json::object& end = events[events.size() - 2].at("choices").at(0).get_object();
  EXPECT_TRUE(end.at("delta").get_object().empty());
  EXPECT_EQ(end.at("finish_reason"), whole.at("choices").at(0).at("finish_reason"));
  EXPECT_TRUE(events.back().at("choices").get_array().empty());
  EXPECT_EQ(events.back().at("usage").at("completion_tokens"), whole.at("usage").at("completion_tokens"));
}

TEST_F(CompletionsTest, LogprobsOfChatsInStreams) {
  const json::object request = chat({{"logprobs", true}, {"top_logprobs", 2}, {"max_tokens", 12}});
  const json::array expected = complete(request, kChat).at("choices").at(0).at("logprobs").at("content").get_array();
  json::array streamed;
  for (const json::object& event : stream(request, kChat)) {
    const json::value& lists = event.at("choices").at(0).at("logprobs");
    if (lists.is_null()) continue;
    for (const json::value& item : lists.at("content").get_array()) streamed.push_back(item);
  }
  EXPECT_EQ(streamed, expected);
}

TEST_F(CompletionsTest, TokenIds) {
  const json::object answer = complete(body({{"return_token_ids", true}, {"max_tokens", 8}}));
  const json::array ids = answer.at("choices").at(0).at("token_ids").get_array();
  EXPECT_EQ(ids.size(), 8u);
  EXPECT_EQ(answer.at("choices").at(0).at("prompt_token_ids").get_array().size(),
            answer.at("usage").at("prompt_tokens").to_number<size_t>());
  json::array streamed;
  for (const json::object& event : stream(body({{"return_token_ids", true}, {"max_tokens", 8}}))) {
    for (const json::value& id : event.at("choices").at(0).at("token_ids").get_array()) streamed.push_back(id);
  }
  EXPECT_EQ(streamed, ids);
}

struct Wrong {
  const char* name;
  bool chat;
  const char* body;
  int status;
  const char* param;
  const char* message;  // a part of it
};
const Wrong kWrong[] = {
    {"not JSON", false, "{", 400, "", "the body is not JSON"},
    {"no object", false, "[]", 400, "", "must be a JSON object, not a list"},
    {"empty", false, "{}", 400, "prompt", "prompt is missing"},
    {"other model", false, R"({"model":"gpt-4","prompt":"x"})", 404, "model", "is not served here; ask for 'tiny'"},
    {"empty prompt", false, R"({"prompt":""})", 400, "prompt", "the prompt is empty"},
    {"no prompts", false, R"({"prompt":[]})", 400, "prompt", "empty list"},
    {"no ids", false, R"({"prompt":[[]]})", 400, "prompt", ""},
    {"id too large", false, R"({"prompt":[999999]})", 400, "prompt", "from 0 to 2047"},
    {"negative id", false, R"({"prompt":[-1]})", 400, "prompt", "from 0 to 2047"},
    {"too long", false, R"({"prompt":"x","max_tokens":100000})", 400, "prompt", "the context holds 2048"},
    {"n", false, R"({"prompt":"x","n":1000000})", 400, "n", "from 1 to 128"},
    {"n 0", false, R"({"prompt":"x","n":0})", 400, "n", ""},
    {"best_of", false, R"({"prompt":"x","best_of":2})", 400, "best_of", ""},
    {"temperature", false, R"({"prompt":"x","temperature":-1})", 400, "temperature", ""},
    {"huge", false, R"({"prompt":"x","temperature":1e308})", 400, "temperature", ""},
    {"text", false, R"({"prompt":"x","top_p":"1"})", 400, "top_p", "not a string"},
    {"top_p 0", false, R"({"prompt":"x","top_p":0})", 400, "top_p", ""},
    {"seed", false, R"({"prompt":"x","seed":1e30})", 400, "seed", ""},
    {"logprobs bool", false, R"({"prompt":"x","logprobs":true})", 400, "logprobs", "not true or false"},
    {"logprobs all", false, R"({"prompt":"x","logprobs":-1})", 400, "logprobs", "from 0 to 20"},
    {"logprobs 21", false, R"({"prompt":"x","logprobs":21})", 400, "logprobs", "from 0 to 20"},
    {"prompt_logprobs streamed", false, R"({"prompt":"x","prompt_logprobs":2,"stream":true})", 400, "prompt_logprobs",
     "ask without stream"},
    {"options alone", false, R"({"prompt":"x","stream_options":{"include_usage":true}})", 400, "stream_options",
     "needs stream"},
    {"echo alone", false, R"({"prompt":"x","max_tokens":0})", 400, "max_tokens", ""},
    {"suffix", false, R"({"prompt":"x","suffix":"y"})", 400, "suffix", ""},
    {"stops", false, R"({"prompt":"x","stop":["a","b","c","d","e","f","g","h","i","j","k","l","m","n","o","p","q"]})",
     400, "stop", "at most 16"},
    {"salt", false, R"({"prompt":"x","cache_salt":"../x"})", 400, "cache_salt", ""},
    {"empty salt", false, R"({"prompt":"x","cache_salt":""})", 400, "cache_salt", ""},
    {"bias", false, R"({"prompt":"x","logit_bias":{"5000":1}})", 400, "logit_bias", ""},
    {"embeds", false, R"({"prompt":"x","prompt_embeds":"gASV"})", 400, "prompt_embeds", ""},
    {"no messages", true, R"({"messages":[]})", 400, "messages", "at least one"},
    {"role", true, R"({"messages":[{"role":"robot","content":"x"}]})", 400, "messages", "use system"},
    {"image", true, R"({"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"http://x"}}]}]})",
     400, "messages", "text only"},
    {"no content", true, R"({"messages":[{"role":"user"}]})", 400, "messages", "messages[0]: content is missing"},
    {"null content", true, R"({"messages":[{"role":"system","content":null},{"role":"user","content":"x"}]})", 400,
     "messages", "messages[0]: content is missing"},
    {"ends with an answer", true, R"({"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"y"}]})",
     400, "messages", "the last message has the role 'assistant'"},
    {"ends with a system's", true, R"({"messages":[{"role":"system","content":"x"}]})", 400, "messages",
     "the last message has the role 'system'"},
    {"call of nothing", true,
     R"({"messages":[{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"arguments":"{}"}}]},{"role":"user","content":"x"}]})",
     400, "messages", "a call without the name"},
    {"top_logprobs alone", true, R"({"messages":[{"role":"user","content":"x"}],"top_logprobs":2})", 400,
     "top_logprobs", "needs logprobs"},
    {"effort", true, R"({"messages":[{"role":"user","content":"x"}],"reasoning_effort":"huge"})", 400,
     "reasoning_effort", ""},
    {"prefill", true, R"({"messages":[{"role":"user","content":"x"}],"continue_final_message":true})", 400,
     "continue_final_message", ""},
};

TEST_F(CompletionsTest, WhatMakesNoSenseIsSaidInOneSentence) {
  for (const Wrong& wrong : kWrong) {
    const Answer answer = post(port(), wrong.chat ? kChat : "/v1/completions", wrong.body);
    EXPECT_EQ(answer.status, wrong.status) << wrong.name << ": " << answer.body;
    const json::object error = answer.json().at("error").get_object();
    EXPECT_EQ(text_of(error.at("param")), wrong.param) << wrong.name << ": " << answer.body;
    EXPECT_NE(text_of(error.at("message")).find(wrong.message), std::string::npos) << wrong.name << answer.body;
    EXPECT_EQ(text_of(error.at("type")), wrong.status == 404 ? "not_found_error" : "invalid_request_error");
    EXPECT_NE(text_of(error.at("code")), "") << wrong.name;
  }
  // Deep nesting, and a fresh request after all of it.
  EXPECT_EQ(post(port(), "/v1/completions", std::string(100'000, '[')).status, 400);
  EXPECT_EQ(text_of(complete(body({})).at("choices").at(0).at("text")), server_->greedy(kQuestion, 40));
}

// An answer of digits alone, in a chat and a completion, whole and streamed; the end may come only where it is named.
TEST_F(CompletionsTest, OnlyAllowedTokensCome) {
  const Tokenizer& tokenizer = *server_->model().api.tokenizer;
  json::array digits;
  for (const char digit : std::string_view("0123456789")) {
    const auto ids = tokenizer.encode(std::string_view(&digit, 1), {.add_special = false});
    ASSERT_TRUE(ids.ok() && ids->size() == 1u);
    digits.emplace_back(ids->front());
  }
  for (const double temperature : {0.0, 1.0}) {
    const json::object more{
        {"allowed_token_ids", digits}, {"max_tokens", 12}, {"temperature", temperature}, {"seed", 3}};
    const json::object completion = complete(body(more)).at("choices").at(0).get_object();
    EXPECT_EQ(text_of(completion.at("text")).size(), 12u);
    EXPECT_EQ(text_of(completion.at("text")).find_first_not_of("0123456789"), std::string::npos);
    EXPECT_EQ(text_of(completion.at("finish_reason")), "length");
    EXPECT_EQ(join(stream(body(more))).at(0).text, text_of(completion.at("text")));
    const json::object answer = complete(chat(more), kChat).at("choices").at(0).get_object();
    EXPECT_EQ(text_of(answer.at("message").at("content")).find_first_not_of("0123456789"), std::string::npos);
  }
  const json::object ends = complete(body({{"allowed_token_ids", json::array{1}}})).at("choices").at(0).get_object();
  EXPECT_EQ(text_of(ends.at("finish_reason")), "stop") << "token 1 ends a text";
  EXPECT_EQ(text_of(ends.at("text")), "");
}

// What clients send freely beside what they need.
TEST_F(CompletionsTest, UnknownAndHarmlessFieldsAreTaken) {
  const json::object plain = complete(body({}));
  const json::object with = complete(body({{"user", "x"},
                                           {"metadata", json::object{}},
                                           {"store", true},
                                           {"service_tier", "auto"},
                                           {"best_of", 1},
                                           {"logprobs", nullptr},
                                           {"stop", nullptr},
                                           {"repetition_penalty", 1.0},
                                           {"no_such_field", json::array{1, 2}}}));
  EXPECT_EQ(with.at("choices"), plain.at("choices"));
}

TEST_F(CompletionsTest, RequestsHaveIds) {
  const Answer given = post(port(), "/v1/completions", json::serialize(body({})), "X-Request-Id: my-id.7\r\n");
  EXPECT_EQ(given.fields.at("x-request-id"), "my-id.7");
  EXPECT_EQ(text_of(given.json().at("id")), "cmpl-my-id.7");
  const Answer odd = post(port(), "/v1/completions", json::serialize(body({})), "X-Request-Id: a\"b<script>\r\n");
  EXPECT_EQ(odd.fields.at("x-request-id").size(), 32u) << "what could do harm in a log is replaced";
}

TEST(CompletionsWithDrafts, TextIsTheSame) {
  TinyServer server({.api = {}, .http = {}, .max_num_seqs = 16, .num_draft_tokens = 3});
  const std::string expected = server.greedy(kQuestion, 60);
  const json::object request{{"prompt", kQuestion}, {"temperature", 0}, {"max_tokens", 60}, {"stream", true}};
  const auto joined = join(json_events_of(post(server.port(), "/v1/completions", json::serialize(request))));
  EXPECT_EQ(joined.at(0).text, expected);
  EXPECT_GT(metric(server.port(), "vllm:spec_decode_num_accepted_tokens_total"), 0);
}

}  // namespace
}  // namespace lantern::test
