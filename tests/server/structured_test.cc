// Structured output over the API: the answer has the form that was asked for, whatever the model would have said.
#include <gtest/gtest.h>

#include <regex>

#include "server/grammar.h"
#include "socket_client.h"
#include "tiny_server.h"

namespace lantern::test {
namespace {

namespace json = boost::json;

const char* const kChat = "/v1/chat/completions";
const char* const kCompletions = "/v1/completions";
const char* const kSchema =
    R"({"type":"object","properties":{"city":{"enum":["Oslo","Rome"]},"days":{"type":"integer","minimum":1,"maximum":9}},"required":["city","days"],"additionalProperties":false})";

class StructuredTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { server_ = new TinyServer(); }
  static void TearDownTestSuite() {
    delete server_;
    server_ = nullptr;
  }
  void SetUp() override {
    if (!have_grammars()) GTEST_SKIP() << "this build has no xgrammar: structured output is not tested";
  }

  static json::object chat(const json::object& more) {
    json::object request{{"temperature", 1}, {"seed", 5}, {"max_tokens", 300}};
    request["messages"] = json::parse(R"([{"role":"user","content":"What is 12*7?"}])");
    for (const auto& [name, value] : more) request[name] = value;
    return request;
  }
  static json::object schema_format() {
    return {{"response_format",
             json::object{{"type", "json_schema"},
                          {"json_schema", json::object{{"name", "trip"}, {"schema", json::parse(kSchema)}}}}}};
  }
  static void expect_trip(const std::string& content) {
    const json::value trip = json::parse(content);
    EXPECT_EQ(trip.as_object().size(), 2u) << content;
    EXPECT_TRUE(trip.at("city") == "Oslo" || trip.at("city") == "Rome") << content;
    EXPECT_TRUE(trip.at("days").as_int64() >= 1 && trip.at("days").as_int64() <= 9) << content;
  }
  static const json::object& first_choice(const json::object& body) { return body.at("choices").at(0).as_object(); }

  static TinyServer* server_;
};
TinyServer* StructuredTest::server_ = nullptr;

TEST_F(StructuredTest, AnswersKeepToASchema) {
  const Answer answer = post(server_->port(), kChat, json::serialize(chat(schema_format())));
  ASSERT_EQ(answer.status, 200) << answer.body;
  const json::object body = answer.json();
  EXPECT_EQ(text_of(first_choice(body).at("finish_reason")), "stop");
  const std::string whole = text_of(first_choice(body).at("message").at("content"));
  expect_trip(whole);

  // The same in a stream, and several choices, each on its own.
  json::object streamed = chat(schema_format());
  streamed["stream"] = true;
  std::string content;
  for (const json::object& event : json_events_of(post(server_->port(), kChat, json::serialize(streamed)))) {
    const json::object& delta = first_choice(event).at("delta").as_object();
    if (const json::value* text = delta.if_contains("content"); text != nullptr && text->is_string())
      content += text_of(*text);
  }
  EXPECT_EQ(content, whole);
  json::object three = chat(schema_format());
  three["n"] = 3;
  const json::object bodies = post(server_->port(), kChat, json::serialize(three)).json();
  ASSERT_EQ(bodies.at("choices").as_array().size(), 3u);
  for (const json::value& choice : bodies.at("choices").as_array())
    expect_trip(text_of(choice.at("message").at("content")));
}

TEST_F(StructuredTest, EveryWayToAskIsKept) {
  const auto text = [](const char* field) {
    json::object request{{"prompt", json::array{"Once", "Twice"}}, {"temperature", 0}, {"max_tokens", 400}};
    const json::value asked = json::parse(field);
    for (const auto& [name, value] : asked.as_object()) request[name] = value;
    const Answer answer = post(server_->port(), kCompletions, json::serialize(request));
    EXPECT_EQ(answer.status, 200) << answer.body;
    const json::object body = answer.json();
    EXPECT_EQ(body.at("choices").as_array().size(), 2u);
    EXPECT_EQ(text_of(body.at("choices").at(1).at("finish_reason")), "stop");
    return text_of(body.at("choices").at(1).at("text"));
  };
  for (const char* field :
       {R"({"structured_outputs": {"regex": "[0-9]{3}-[a-f]{2}"}})", R"({"guided_regex": "[0-9]{3}-[a-f]{2}"})"})
    EXPECT_TRUE(std::regex_match(text(field), std::regex("[0-9]{3}-[a-f]{2}")));
  for (const char* field :
       {R"({"structured_outputs": {"choice": ["left", "right"]}})", R"({"guided_choice": ["left", "right"]})"}) {
    const std::string said = text(field);
    EXPECT_TRUE(said == "left" || said == "right") << said;
  }
  EXPECT_EQ(text(R"({"structured_outputs": {"grammar": "root ::= \"a\" b\nb ::= \"b\""}})"), "ab");
  expect_trip(text((std::string(R"({"structured_outputs": {"json": )") + kSchema + "}}").c_str()));
}

TEST_F(StructuredTest, CallsCanBeForced) {
  const json::value tools = json::parse(
      R"([{"type":"function","function":{"name":"add","parameters":{"type":"object","properties":{"a":{"type":"integer","minimum":0,"maximum":99}},"required":["a"],"additionalProperties":false}}},
          {"type":"function","function":{"name":"pick","parameters":{"type":"object","properties":{"side":{"type":"string","enum":["left","right"]}},"required":["side"],"additionalProperties":false}}}])");
  for (const char* choice : {R"("required")", R"({"type":"function","function":{"name":"pick"}})"}) {
    const Answer answer =
        post(server_->port(), kChat,
             json::serialize(
                 chat({{"tools", tools}, {"tool_choice", json::parse(choice)}, {"parallel_tool_calls", false}})));
    ASSERT_EQ(answer.status, 200) << answer.body;
    const json::object body = answer.json();
    EXPECT_EQ(text_of(first_choice(body).at("finish_reason")), "tool_calls") << answer.body;
    EXPECT_TRUE(first_choice(body).at("message").at("content").is_null()) << answer.body;
    const json::array& calls = first_choice(body).at("message").at("tool_calls").as_array();
    ASSERT_EQ(calls.size(), 1u) << answer.body;
    const std::string name = text_of(calls[0].at("function").at("name"));
    const json::value arguments = json::parse(text_of(calls[0].at("function").at("arguments")));
    if (name == "pick") {
      EXPECT_TRUE(arguments.at("side") == "left" || arguments.at("side") == "right") << answer.body;
    } else {
      EXPECT_EQ(name, "add");
      EXPECT_STREQ(choice, R"("required")");
      EXPECT_TRUE(arguments.at("a").is_int64()) << answer.body;
    }
  }
}

TEST_F(StructuredTest, BadFormsAreRefused) {
  const std::pair<const char*, const char*> all[] = {
      {R"({"response_format": {"type": "xml"}})", "response_format"},
      {R"({"response_format": {"type": "json_schema"}})", "response_format"},
      {R"({"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "strin"}}}})",
       "response_format"},
      {R"({"response_format": {"type": "json_schema", "json_schema": {"schema": 7}}})", "response_format"},
      {R"({"structured_outputs": 1})", "structured_outputs"},
      {R"({"structured_outputs": {"regex": "("}})", "structured_outputs"},
      {R"({"structured_outputs": {"regex": "a", "choice": ["b"]}})", "structured_outputs"},
      {R"({"structured_outputs": {"choice": []}})", "structured_outputs"},
      {R"({"structured_outputs": {"choice": "a"}})", "structured_outputs"},
      {R"({"structured_outputs": {"structural_tag": {}}})", "structured_outputs"},
      {R"({"response_format": {"type": "json_object"}, "structured_outputs": {"regex": "a"}})", "structured_outputs"},
      {R"({"tool_choice": "required"})", "tool_choice"},
  };
  for (const auto& [fields, param] : all) {
    const Answer answer = post(server_->port(), kChat, json::serialize(chat(json::parse(fields).as_object())));
    EXPECT_EQ(answer.status, 400) << fields << answer.body;
    EXPECT_EQ(text_of(answer.json().at("error").at("param")), param) << fields << answer.body;
  }
  EXPECT_EQ(post(server_->port(), kChat, json::serialize(chat({}))).status, 200) << "and the next is served";
}

}  // namespace
}  // namespace lantern::test
