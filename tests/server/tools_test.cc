// Tool calls and thinking over the API, OpenAI's and Anthropic's. The shipped model was trained to call tools.
#include <gtest/gtest.h>

#include "socket_client.h"
#include "tiny_server.h"

namespace lantern::test {
namespace {

namespace json = boost::json;

const char* const kChat = "/v1/chat/completions";
const char* const kMessages = "/v1/messages";
const char* const kCalculator =
    R"({"type":"object","properties":{"expression":{"type":"string","description":"The expression to evaluate, such as 12*7."}},"required":["expression"]})";

class ToolsTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { server_ = new TinyServer(); }
  static void TearDownTestSuite() {
    delete server_;
    server_ = nullptr;
  }
  static uint16_t port() { return server_->port(); }

  // A question that the model answers by calling the calculator.
  static json::object chat(bool stream) {
    json::object request{{"temperature", 0}, {"max_tokens", 200}, {"stream", stream}};
    request["messages"] = json::parse(R"([{"role":"user","content":"What is 9818*847?"}])");
    json::object function{{"name", "calculator"}, {"description", "Evaluate an arithmetic expression."}};
    function["parameters"] = json::parse(kCalculator);
    request["tools"] = json::array{json::object{{"type", "function"}, {"function", std::move(function)}}};
    return request;
  }
  static json::object message(bool stream) {
    json::object request{{"model", "tiny"}, {"temperature", 0}, {"max_tokens", 200}, {"stream", stream}};
    request["messages"] = json::parse(R"([{"role":"user","content":[{"type":"text","text":"What is 9818*847?"}]}])");
    json::object tool{{"name", "calculator"}, {"description", "Evaluate an arithmetic expression."}};
    tool["input_schema"] = json::parse(kCalculator);
    request["tools"] = json::array{std::move(tool)};
    return request;
  }
  // The events of a stream of messages, by their JSON; each names its type twice.
  static std::vector<json::object> message_events(const json::object& request) {
    const Answer answer = post(port(), kMessages, json::serialize(request));
    EXPECT_EQ(answer.status, 200) << answer.body;
    std::vector<json::object> events;
    for (const std::string& chunk : answer.chunks) {
      const size_t line = chunk.find('\n');
      const bool is_event =
          chunk.starts_with("event: ") && chunk.substr(line + 1).starts_with("data: ") && chunk.ends_with("\n\n");
      EXPECT_TRUE(is_event) << chunk;
      if (!is_event) continue;
      events.push_back(json::parse(chunk.substr(line + 7, chunk.size() - line - 9)).get_object());
      EXPECT_EQ(text_of(events.back().at("type")), chunk.substr(7, line - 7));
    }
    return events;
  }

  static TinyServer* server_;
};
TinyServer* ToolsTest::server_ = nullptr;

TEST_F(ToolsTest, CallsAreReadAndStreamed) {
  const json::object whole = post(port(), kChat, json::serialize(chat(false))).json();
  const json::object& choice = whole.at("choices").at(0).get_object();
  EXPECT_EQ(text_of(choice.at("finish_reason")), "tool_calls");
  EXPECT_TRUE(choice.at("message").at("content").is_null());
  const json::array& calls = choice.at("message").at("tool_calls").get_array();
  ASSERT_EQ(calls.size(), 1u);
  EXPECT_EQ(text_of(calls[0].at("type")), "function");
  EXPECT_NE(text_of(calls[0].at("id")), "");
  EXPECT_EQ(text_of(calls[0].at("function").at("name")), "calculator");
  const std::string arguments = text_of(calls[0].at("function").at("arguments"));
  EXPECT_EQ(json::parse(arguments), json::parse(R"({"expression":"9818*847"})"));

  std::string name;
  std::string id;
  std::string streamed;
  std::string finish;
  int pieces = 0;
  for (const json::object& event : json_events_of(post(port(), kChat, json::serialize(chat(true))))) {
    const json::object& one = event.at("choices").at(0).get_object();
    const json::object& delta = one.at("delta").get_object();
    if (!one.at("finish_reason").is_null()) finish = text_of(one.at("finish_reason"));
    if (delta.contains("content")) {
      EXPECT_EQ(text_of(delta.at("content")), "") << "the call is no content";
    }
    if (!delta.contains("tool_calls")) continue;
    const json::object& call = delta.at("tool_calls").at(0).get_object();
    EXPECT_EQ(call.at("index"), 0);
    if (call.contains("id")) {
      EXPECT_EQ(id, "") << "it is named once";
      id = text_of(call.at("id"));
      name = text_of(call.at("function").at("name"));
      EXPECT_EQ(text_of(call.at("type")), "function");
    }
    streamed += text_of(call.at("function").at("arguments"));
    ++pieces;
  }
  EXPECT_EQ(name, "calculator");
  EXPECT_NE(id, "");
  EXPECT_EQ(streamed, arguments);
  EXPECT_GT(pieces, 2) << "arguments come as they are made";
  EXPECT_EQ(finish, "tool_calls");
}

// The call cut off within each of its parts: no markup in content, what has come of its arguments, and the same in a
// stream. OutputParser.CutOffItLeaksNoMarkup cuts after every character.
TEST_F(ToolsTest, ACallThatIsCutOffLeaksNoMarkup) {
  const json::object all = post(port(), kChat, json::serialize(chat(false))).json();
  const json::object& whole = all.at("choices").at(0).get_object();
  const std::string arguments = text_of(whole.at("message").at("tool_calls").at(0).at("function").at("arguments"));
  const int64_t tokens = all.at("usage").at("completion_tokens").to_number<int64_t>();
  int cut_calls = 0;
  for (int64_t most = 2; most < tokens; most += 3) {
    json::object request = chat(false);
    request["max_tokens"] = most;
    const json::object answer = post(port(), kChat, json::serialize(request)).json();
    const json::object& choice = answer.at("choices").at(0).get_object();
    EXPECT_EQ(text_of(choice.at("finish_reason")), "length");
    const json::object& message = choice.at("message").get_object();
    const std::string content = message.at("content").is_null() ? "" : text_of(message.at("content"));
    EXPECT_EQ(content.find_first_not_of('\n'), std::string::npos) << content;
    std::string so_far;
    if (message.contains("tool_calls")) {
      ++cut_calls;
      ASSERT_EQ(message.at("tool_calls").get_array().size(), 1u);
      EXPECT_EQ(text_of(message.at("tool_calls").at(0).at("function").at("name")), "calculator");
      so_far = text_of(message.at("tool_calls").at(0).at("function").at("arguments"));
      EXPECT_TRUE(arguments.starts_with(so_far)) << so_far;
    }
    request["stream"] = true;
    std::string streamed;
    std::string streamed_content;
    std::string finish;
    for (const json::object& event : json_events_of(post(port(), kChat, json::serialize(request)))) {
      const json::object& one = event.at("choices").at(0).get_object();
      const json::object& delta = one.at("delta").get_object();
      if (!one.at("finish_reason").is_null()) finish = text_of(one.at("finish_reason"));
      if (delta.contains("content")) streamed_content += text_of(delta.at("content"));
      if (delta.contains("tool_calls"))
        streamed += text_of(delta.at("tool_calls").at(0).at("function").at("arguments"));
    }
    EXPECT_EQ(finish, "length");
    EXPECT_EQ(streamed, so_far);
    EXPECT_EQ(streamed_content, content);
  }
  EXPECT_GT(cut_calls, 2);
}

TEST_F(ToolsTest, WhoChoosesNoneGetsText) {
  json::object request = chat(false);
  request["tool_choice"] = "none";
  const json::object choice = post(port(), kChat, json::serialize(request)).json().at("choices").at(0).get_object();
  EXPECT_FALSE(choice.at("message").get_object().contains("tool_calls"));
  EXPECT_NE(text_of(choice.at("finish_reason")), "tool_calls");
}

// A call and its result go back into the conversation.
TEST_F(ToolsTest, ResultsGoBack) {
  json::object request = chat(false);
  request["messages"] = json::parse(
      R"([{"role":"user","content":"What is 9818*847?"},{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"calculator","arguments":"{\"expression\":\"9818*847\"}"}}]},{"role":"tool","tool_call_id":"c1","content":"8315846"}])");
  EXPECT_EQ(post(port(), kChat, json::serialize(request)).status, 200);
  const std::string prompt = text_of(
      post(port(), "/v1/chat/completions/render", json::serialize(request)).json().at("prompts").at(0).at("prompt"));
  EXPECT_NE(prompt.find("8315846"), std::string::npos);
  json::object messages = message(false);
  messages["messages"] = json::parse(
      R"([{"role":"user","content":"What is 9818*847?"},{"role":"assistant","content":[{"type":"tool_use","id":"c1","name":"calculator","input":{"expression":"9818*847"}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":"8315846"}]}])");
  // Both ask the same.
  const json::object counted = post(port(), "/v1/messages/count_tokens", json::serialize(messages)).json();
  EXPECT_EQ(counted.at("input_tokens"),
            post(port(), kChat, json::serialize(request)).json().at("usage").at("prompt_tokens"));
}

// CVE-2025-48944: a schema that is none must not reach what reads it.
TEST_F(ToolsTest, Cve_2025_48944_ToolsThatMakeNoSense) {
  const char* const tools[] = {R"(1)",
                               R"("x")",
                               R"([1])",
                               R"([{}])",
                               R"([{"type":"function"}])",
                               R"([{"type":7,"function":{"name":"x"}}])",
                               R"([{"type":"function","function":{"name":""}}])",
                               R"([{"type":"function","function":{"name":{}}}])",
                               R"([{"type":"function","function":{"name":"x","parameters":[]}}])",
                               R"([{"type":"function","function":{"name":"x","parameters":"{}"}}])",
                               R"([{"type":"web_search"}])"};
  for (const char* list : tools) {
    json::object request = chat(false);
    request["tools"] = json::parse(list);
    const Answer answer = post(port(), kChat, json::serialize(request));
    EXPECT_EQ(answer.status, 400) << list << answer.body;
    EXPECT_EQ(text_of(answer.json()["error"].at("param")), "tools");
  }
  // Odd, but schemas; and the call still works.
  for (const char* parameters : {R"({"type":"object","properties":{"expression":{"type":7,"pattern":"["}}})",
                                 R"({"type":"object","properties":[]})", R"({})"}) {
    json::object request = chat(false);
    request["max_tokens"] = 8;
    request["tools"].at(0).at("function").get_object()["parameters"] = json::parse(parameters);
    const int status = post(port(), kChat, json::serialize(request)).status;
    EXPECT_TRUE(status == 200 || status == 400) << parameters << status;
  }
  json::object many = chat(false);
  for (int i = 0; i < 300; ++i) many["tools"].get_array().push_back(json::value(many["tools"].at(0)));
  EXPECT_EQ(post(port(), kChat, json::serialize(many)).status, 400);
  json::object unnamed = chat(false);
  unnamed["tool_choice"] = json::parse(R"({"type":"function","function":{"name":"other"}})");
  EXPECT_EQ(post(port(), kChat, json::serialize(unnamed)).status, 400);
  EXPECT_EQ(text_of(post(port(), kChat, json::serialize(chat(false))).json().at("choices").at(0).at("finish_reason")),
            "tool_calls");
}

TEST_F(ToolsTest, ThinkingIsToldApart) {
  json::object request{{"temperature", 0}, {"max_tokens", 120}};
  request["messages"] = json::parse(R"([{"role":"user","content":"Search for cow."}])");
  request["chat_template_kwargs"] = json::object{{"thinking", true}};
  const json::object whole = post(port(), kChat, json::serialize(request)).json();
  const json::object& said = whole.at("choices").at(0).at("message").get_object();
  ASSERT_TRUE(said.contains("reasoning_content")) << json::serialize(whole);
  const std::string thought = text_of(said.at("reasoning_content"));
  EXPECT_EQ(thought.find("</think>"), std::string::npos);
  const int64_t reasoning =
      whole.at("usage").at("completion_tokens_details").at("reasoning_tokens").to_number<int64_t>();
  // The thought's own tokens, and the one that ends it.
  EXPECT_EQ(reasoning,
            static_cast<int64_t>(server_->model().api.tokenizer->encode(thought, {.add_special = false})->size()) + 1);

  request["stream"] = true;
  std::string streamed;
  for (const json::object& event : json_events_of(post(port(), kChat, json::serialize(request)))) {
    const json::object& delta = event.at("choices").at(0).at("delta").get_object();
    if (delta.contains("reasoning_content")) streamed += text_of(delta.at("reasoning_content"));
  }
  EXPECT_EQ(streamed, thought);
  request["stream"] = false;
  request["include_reasoning"] = false;
  const json::object without = post(port(), kChat, json::serialize(request)).json();
  EXPECT_FALSE(without.at("choices").at(0).at("message").get_object().contains("reasoning_content"));
  EXPECT_EQ(without.at("choices").at(0).at("message").at("content"), said.at("content"));
}

TEST_F(ToolsTest, MessagesWholeAndStreamed) {
  json::object request = message(false);
  request.erase("tools");
  request["system"] = json::parse(R"([{"type":"text","text":"Answer briefly."}])");
  request["messages"] = json::parse(R"([{"role":"user","content":"What is 6 times 7?"}])");
  const json::object whole =
      post(port(), kMessages, json::serialize(request), "anthropic-version: 2023-06-01\r\n").json();
  EXPECT_EQ(text_of(whole.at("type")), "message");
  EXPECT_TRUE(text_of(whole.at("id")).starts_with("msg_"));
  EXPECT_EQ(text_of(whole.at("stop_reason")), "end_turn");
  const std::string text = text_of(whole.at("content").at(0).at("text"));
  ASSERT_NE(text, "");
  const json::object chat_request{
      {"temperature", 0},
      {"max_tokens", 200},
      {"messages",
       json::parse(
           R"([{"role":"system","content":"Answer briefly."},{"role":"user","content":"What is 6 times 7?"}])")}};
  EXPECT_EQ(
      text,
      text_of(
          post(port(), kChat, json::serialize(chat_request)).json().at("choices").at(0).at("message").at("content")));

  request["stream"] = true;
  const std::vector<json::object> events = message_events(request);
  ASSERT_GE(events.size(), 6u);
  EXPECT_EQ(text_of(events.front().at("type")), "message_start");
  EXPECT_EQ(text_of(events[1].at("type")), "content_block_start");
  EXPECT_EQ(text_of(events[events.size() - 3].at("type")), "content_block_stop");
  const json::object& end = events[events.size() - 2];
  EXPECT_EQ(text_of(end.at("delta").at("stop_reason")), "end_turn");
  EXPECT_EQ(end.at("usage").at("output_tokens"), whole.at("usage").at("output_tokens"));
  EXPECT_EQ(text_of(events.back().at("type")), "message_stop");
  std::string streamed;
  for (const json::object& event : events) {
    if (text_of(event.at("type")) == "content_block_delta") streamed += text_of(event.at("delta").at("text"));
  }
  EXPECT_EQ(streamed, text);
  // Stop sequences are told.
  request["stream"] = false;
  request["stop_sequences"] = json::array{text.substr(3, 4)};
  const json::object stopped = post(port(), kMessages, json::serialize(request)).json();
  EXPECT_EQ(text_of(stopped.at("stop_reason")), "stop_sequence");
  EXPECT_EQ(text_of(stopped.at("stop_sequence")), text.substr(3, 4));
}

TEST_F(ToolsTest, MessagesUseTools) {
  const json::object whole = post(port(), kMessages, json::serialize(message(false))).json();
  EXPECT_EQ(text_of(whole.at("stop_reason")), "tool_use");
  const json::object& use = whole.at("content").at(0).get_object();
  EXPECT_EQ(text_of(use.at("type")), "tool_use");
  EXPECT_EQ(text_of(use.at("name")), "calculator");
  EXPECT_EQ(use.at("input"), json::parse(R"({"expression":"9818*847"})"));
  std::string arguments;
  std::string name;
  for (const json::object& event : message_events(message(true))) {
    if (text_of(event.at("type")) == "content_block_start") name = text_of(event.at("content_block").at("name"));
    if (text_of(event.at("type")) == "content_block_delta") arguments += text_of(event.at("delta").at("partial_json"));
    if (text_of(event.at("type")) == "message_delta") {
      EXPECT_EQ(text_of(event.at("delta").at("stop_reason")), "tool_use");
    }
  }
  EXPECT_EQ(name, "calculator");
  EXPECT_EQ(json::parse(arguments), use.at("input"));
}

TEST_F(ToolsTest, MessagesFaultsHaveAnthropicsShape) {
  const auto fault = [](const char* body) {
    const Answer answer = post(port(), kMessages, body);
    EXPECT_EQ(answer.status, 400) << body << answer.body;
    const json::object object = answer.json();
    EXPECT_EQ(text_of(object.at("type")), "error");
    EXPECT_EQ(text_of(object.at("error").at("type")), "invalid_request_error");
    return text_of(object.at("error").at("message"));
  };
  EXPECT_NE(fault("{").find("not JSON"), std::string::npos);
  EXPECT_NE(fault(R"({"max_tokens":5})").find("messages"), std::string::npos);
  EXPECT_NE(fault(R"({"messages":[{"role":"system","content":"x"}]})").find("user or assistant"), std::string::npos);
  EXPECT_NE(fault(R"({"messages":[{"role":"user","content":[{"type":"image","source":{}}]}]})").find("text"),
            std::string::npos);
  EXPECT_NE(fault(R"({"messages":[{"role":"user","content":"x"}],"tools":[{"name":"x"}]})").find("input_schema"),
            std::string::npos);
  EXPECT_NE(fault(R"({"messages":[{"role":"user","content":"x"}],"temperature":-1})").find("temperature"),
            std::string::npos);
  EXPECT_NE(fault(R"({"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"It"}]})")
                .find("end with a user"),
            std::string::npos);
  EXPECT_NE(
      fault(
          R"({"messages":[{"role":"user","content":"x"}],"tools":[{"type":"web_search_20250305","name":"web_search"}]})")
          .find("of the type 'web_search_20250305'"),
      std::string::npos);
}

}  // namespace
}  // namespace lantern::test
