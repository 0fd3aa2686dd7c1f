// Every field of the table does what the table says, in each API that it is said of.
#include "server/request_fields.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <set>

#include "server/anthropic.h"
#include "server/responses_request.h"

namespace lantern {
namespace {

namespace json = boost::json;

constexpr RequestApi kApis[] = {kOfCompletions, kOfChats, kOfResponses, kOfMessages};

std::string name_of(RequestApi api) {
  return api == kOfCompletions ? "completions"
         : api == kOfChats     ? "chats"
         : api == kOfResponses ? "responses"
                               : "messages";
}

const OpenAiModel& model() {
  static const Tokenizer tokenizer = Tokenizer::load(LANTERN_SOURCE_DIR "/models/tiny").value();
  static const ChatEncoder chat = ChatEncoder::create(ChatFormat::kDeepSeekV32, tokenizer).value();
  static GrammarCompiler grammars(tokenizer, 2048, {1});
  static const OpenAiModel made{.names = {"tiny"},
                                .tokenizer = &tokenizer,
                                .chat = &chat,
                                .no_chat = {},
                                .max_model_len = 2048,
                                .vocab_size = 2048,
                                .max_logprobs = 20,
                                .sparse_attention = true,
                                .max_traced_rows = 64,
                                .grammars = &grammars,
                                .streams = true,
                                .temperature = {},
                                .top_p = {},
                                .top_k = {}};
  return made;
}

json::object least(RequestApi api) {
  const json::value messages = json::parse(R"([{"role": "user", "content": "x"}])");
  if (api == kOfCompletions) return {{"prompt", "x"}};
  if (api == kOfResponses) return {{"input", "x"}};
  return {{"messages", messages}};
}

std::variant<OpenAiRequest, OpenAiError> read(RequestApi api, const json::object& object,
                                              const OpenAiModel& of = model()) {
  const std::string body = json::serialize(object);
  const auto chat = [&](const std::string& text) {
    return read_openai_request(OpenAiEndpoint::kChatCompletions, text, of, 1);
  };
  if (api == kOfCompletions) return read_openai_request(OpenAiEndpoint::kCompletions, body, of, 1);
  if (api == kOfChats) return chat(body);
  if (api == kOfResponses) {
    auto made = chat_of_response(body, of);
    if (const auto* error = std::get_if<OpenAiError>(&made)) return *error;
    auto request = chat(std::get<ChatOfResponse>(made).body);
    if (const auto* error = std::get_if<OpenAiError>(&request)) return response_error_of(*error);
    return request;
  }
  auto made = chat_of_messages(body);
  if (const auto* error = std::get_if<OpenAiError>(&made)) return *error;
  auto request = chat(std::get<std::string>(made));
  if (const auto* error = std::get_if<OpenAiError>(&request)) return message_error_of(*error);
  return request;
}

std::optional<OpenAiError> error_with(RequestApi api, std::string_view name, const json::value& value) {
  json::object body = least(api);
  body[name] = value;
  auto request = read(api, body);
  if (const auto* error = std::get_if<OpenAiError>(&request)) return *error;
  return std::nullopt;
}

// What every field that is read refuses in one way or another.
const json::value kOdd[] = {-1.5e300, json::object{{"?", json::array{}}}};

TEST(RequestFields, WhatIsReadIsReadByEveryApiThatIsSaidTo) {
  for (const RequestField& field : request_fields()) {
    if (field.use != FieldUse::kRead && field.use != FieldUse::kPassed) continue;
    for (const RequestApi api : kApis) {
      if ((field.apis & api) == 0) continue;
      bool refused = false;
      for (const json::value& value : kOdd) {
        const std::optional<OpenAiError> error = error_with(api, field.name, value);
        if (!error) continue;
        EXPECT_TRUE(error->param.starts_with(field.name))
            << name_of(api) << " " << field.name << ": " << error->message;
        refused = true;
      }
      EXPECT_TRUE(refused) << name_of(api) << " does not read " << field.name;
    }
  }
}

TEST(RequestFields, WhatCannotBeDoneIsRefusedByName) {
  for (const RequestField& field : request_fields()) {
    if (field.use != FieldUse::kRefused) continue;
    EXPECT_FALSE(field.why.empty()) << field.name;
    for (const RequestApi api : kApis) {
      if ((field.apis & api) == 0) continue;
      const std::string where = fmt::format("{} {}", name_of(api), field.name);
      for (const json::value& value :
           {json::value("odd"), json::value(7), json::value(json::object()), json::value(json::array{"odd"})}) {
        const std::optional<OpenAiError> error = error_with(api, field.name, value);
        ASSERT_TRUE(error) << where << " " << json::serialize(value);
        EXPECT_EQ(error->param, field.name) << where;
        EXPECT_EQ(error->code, "unsupported_parameter") << where;
        EXPECT_EQ(error->status, 400) << where;
        EXPECT_EQ(error->message, fmt::format("{} is not supported: {}", field.name, field.why));
      }
      json::array nothing = json::parse(field.nothing.empty() ? R"([false, 0, "", []])" : field.nothing).get_array();
      nothing.emplace_back(nullptr);
      for (const json::value& value : nothing) {
        const std::optional<OpenAiError> error = error_with(api, field.name, value);
        EXPECT_FALSE(error) << where << " " << json::serialize(value) << ": " << error->message;
      }
    }
  }
}

TEST(RequestFields, WhatIsIgnoredIsTakenWithAnyValue) {
  for (const RequestField& field : request_fields()) {
    if (field.use != FieldUse::kIgnored) continue;
    EXPECT_FALSE(field.why.empty()) << field.name;
    for (const RequestApi api : kApis) {
      if ((field.apis & api) == 0) continue;
      for (const json::value& value : kOdd) {
        const std::optional<OpenAiError> error = error_with(api, field.name, value);
        EXPECT_FALSE(error) << name_of(api) << " " << field.name << ": " << error->message;
      }
    }
  }
  for (const RequestApi api : kApis) EXPECT_FALSE(error_with(api, "no_such_field", json::object()));
}

TEST(RequestFields, AFieldHasOneUseInAnApi) {
  for (const RequestApi api : kApis) {
    std::set<std::string_view> seen;
    for (const RequestField& field : request_fields()) {
      if ((field.apis & api) == 0) continue;
      EXPECT_TRUE(seen.insert(field.name).second) << name_of(api) << " " << field.name;
    }
  }
}

// What is wrong inside of a field that is read.
TEST(RequestFields, ValuesThatCannotBeHonouredAreRefused) {
  struct Case {
    RequestApi api;
    const char* field;
    const char* value;
    const char* message;  // a part of it
  };
  const Case cases[] = {
      {kOfCompletions, "stop", R"("")", "stop has an empty string"},
      {kOfChats, "stop", R"(["a", ""])", "stop has an empty string"},
      {kOfMessages, "stop_sequences", R"([""])", "stop_sequences has an empty string"},
      {kOfCompletions, "structured_outputs", "{}", "has no form; give one of json"},
      {kOfChats, "structured_outputs", R"({"json": null})", "has no form; give one of json"},
      {kOfChats, "structured_outputs", R"({"regex": "a", "whitespace_pattern": " "})", "with whitespace_pattern"},
      {kOfCompletions, "allowed_token_ids", "[]", "is an empty list"},
      {kOfCompletions, "allowed_token_ids", "[5, 2048]", "from 0 to 2047, but item 1 is 2048"},
      {kOfChats, "chat_template_kwargs", R"({"reasoning_mode": "deep"})", "may have thinking and enable_thinking"},
      {kOfResponses, "top_logprobs", "21", "from 0 to 20"},
      {kOfMessages, "output_config", R"({"format": {"type": "xml"}})", "must have the type json_schema"},
      // Numbers as people write them, and no sentence says a thing twice.
      {kOfCompletions, "max_tokens", "1.5", "must be a whole number from 1 to 2147483647, not 1.5"},
      {kOfCompletions, "temperature", "-2.5", "temperature must be a number from 0 to 100, not -2.5"},
      {kOfCompletions, "temperature", "1e300", "not 1e+300"},
      {kOfCompletions, "top_p", "0.0", "top_p must be a number above 0 and up to 1, not 0"},
      {kOfCompletions, "repetition_penalty", "-0.5", "must be a number above 0 and up to 100, not -0.5"},
      {kOfCompletions, "logit_bias", R"({"5": 100.5})", "from -100 to 100, not 100.5"},
      {kOfCompletions, "stop_token_ids", "[0.5]", "but item 0 is 0.5"},
  };
  for (const Case& c : cases) {
    const std::optional<OpenAiError> error = error_with(c.api, c.field, json::parse(c.value));
    ASSERT_TRUE(error) << c.field << " " << c.value;
    EXPECT_TRUE(error->param.starts_with(c.field)) << error->param;
    EXPECT_NE(error->message.find(c.message), std::string::npos) << error->message;
  }
  for (const char* member : {"prefix", "partial"}) {
    const json::object message{{"role", "assistant"}, {"content", "x"}, {member, true}};
    EXPECT_TRUE(error_with(kOfChats, "messages", json::array{message})) << member;
  }
}

// Models see a call of messages as they see one of chats: 1.5 is not 1.5E0.
TEST(RequestFields, ArgumentsOfMessagesAreWrittenAsModelsKnowThem) {
  const auto chat = chat_of_messages(
      R"({"messages": [{"role": "assistant", "content": [
        {"type": "tool_use", "id": "a", "name": "f", "input": {"x": 1.5, "y": [1, 0.25]}}]}]})",
      false);
  ASSERT_TRUE(std::holds_alternative<std::string>(chat));
  const json::value made = json::parse(std::get<std::string>(chat));
  const json::value& call = made.at("messages").at(0).at("tool_calls").at(0);
  EXPECT_EQ(call.at("function").at("arguments"), R"({"x": 1.5, "y": [1, 0.25]})");
}

TEST(RequestFields, AllowedIdsAndAFormExcludeEachOther) {
  json::object body = least(kOfCompletions);
  body["allowed_token_ids"] = json::array{5, 6};
  auto request = read(kOfCompletions, body);
  ASSERT_TRUE(std::holds_alternative<OpenAiRequest>(request));
  const auto& constraint = std::get<OpenAiRequest>(request).prompts.at(0).request.constraint;
  ASSERT_NE(constraint, nullptr);
  std::vector<uint32_t> mask(64);
  ASSERT_TRUE(constraint->allow(0, {}, mask).ok());
  std::vector<uint32_t> expected(64);
  expected[0] = 0b1100000;
  EXPECT_EQ(mask, expected);
  if (!have_grammars()) return;
  body["structured_outputs"] = json::object{{"regex", "a"}};
  request = read(kOfCompletions, body);
  ASSERT_TRUE(std::holds_alternative<OpenAiError>(request));
  EXPECT_EQ(std::get<OpenAiError>(request).param, "allowed_token_ids");
}

// GLM-5.2 has two efforts, clients have six, and an API each way to say them.
TEST(RequestFields, EffortsReachThePromptOfAModelThatHasThem) {
  const Tokenizer tokenizer = Tokenizer::load(LANTERN_SOURCE_DIR "/tests/text/tokenizers/glm").value();
  const ChatEncoder chat = ChatEncoder::create(ChatFormat::kGlm52, tokenizer).value();
  OpenAiModel glm = model();
  glm.tokenizer = &tokenizer;
  glm.chat = &chat;
  const auto prompt_with = [&](RequestApi api, const char* name, const json::value& value) {
    json::object body = least(api);
    if (api == kOfMessages) body["max_tokens"] = 1;
    if (name != nullptr) body[name] = value;
    auto request = read(api, body, glm);
    const auto* error = std::get_if<OpenAiError>(&request);
    if (error != nullptr) return error->message;
    return tokenizer.decode(std::get<OpenAiRequest>(request).prompts.at(0).request.prompt);
  };
  const std::string start = "[gMASK]<sop>", max = start + "<|system|>Reasoning Effort: Max",
                    high = start + "<|system|>Reasoning Effort: High", ask = "<|user|>x<|assistant|>";
  for (const char* effort : {"minimal", "low", "medium", "high", "xhigh", "max"}) {
    const bool most = effort[0] == 'x' || effort == std::string_view("max");
    const std::string expected = (most ? max : high) + ask + "<think>";
    EXPECT_EQ(prompt_with(kOfChats, "reasoning_effort", effort), expected) << effort;
    EXPECT_EQ(prompt_with(kOfResponses, "reasoning", json::object{{"effort", effort}}), expected) << effort;
  }
  EXPECT_EQ(prompt_with(kOfMessages, "output_config", json::object{{"effort", "low"}}), high + ask + "<think>");
  for (const RequestApi api : {kOfChats, kOfResponses}) EXPECT_EQ(prompt_with(api, nullptr, {}), max + ask + "<think>");
  EXPECT_EQ(prompt_with(kOfChats, "reasoning_effort", "none"), start + ask + "<think></think>");
}

// docs/server.md names what is read, and has the rest of the table word by word.
TEST(RequestFields, TheDocumentationHasThem) {
  std::ifstream in(LANTERN_SOURCE_DIR "/docs/server.md");
  const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  std::string ignored = "| ignored | in | because |\n|---|---|---|\n";
  std::string refused = "| refused | in | because |\n|---|---|---|\n";
  for (const RequestField& field : request_fields()) {
    if (field.use == FieldUse::kRead || field.use == FieldUse::kPassed) {
      EXPECT_NE(text.find(fmt::format("`{}`", field.name)), std::string::npos) << field.name << " is not in the text";
      continue;
    }
    std::string apis;
    for (const RequestApi api : kApis) {
      if ((field.apis & api) != 0) apis += (apis.empty() ? "" : ", ") + name_of(api);
    }
    (field.use == FieldUse::kIgnored ? ignored : refused) +=
        fmt::format("| `{}` | {} | {} |\n", field.name, apis, field.why);
  }
  for (const std::string& table : {ignored, refused})
    EXPECT_NE(text.find("\n\n" + table + "\n"), std::string::npos) << "docs/server.md should have\n" << table;
}

}  // namespace
}  // namespace lantern
