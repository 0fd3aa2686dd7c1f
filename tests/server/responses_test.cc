// OpenAI's Responses API: items, the events of a stream, and what is refused. An answer is that of the same chat.
#include <gtest/gtest.h>

#include <set>

#include "socket_client.h"
#include "tiny_server.h"

namespace lantern::test {
namespace {

namespace json = boost::json;

const char* const kChat = "/v1/chat/completions";
const char* const kResponses = "/v1/responses";
const char* const kCalculator =
    R"({"type":"function","name":"calculator","description":"Evaluate an arithmetic expression.","strict":null,"parameters":{"type":"object","properties":{"expression":{"type":"string","description":"The expression to evaluate, such as 12*7."}},"required":["expression"]}})";

struct Event {
  std::string type;
  json::object data;
};

class ResponsesTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { server_ = new TinyServer(); }
  static void TearDownTestSuite() {
    delete server_;
    server_ = nullptr;
  }
  static uint16_t port() { return server_->port(); }

  static json::object ask(std::string_view input) {
    return {{"model", "tiny"}, {"input", input}, {"temperature", 0}, {"max_output_tokens", 200}};
  }
  static json::object whole(const json::object& request) {
    const Answer answer = post(port(), kResponses, json::serialize(request));
    EXPECT_EQ(answer.status, 200) << answer.body;
    return answer.json();
  }
  // Checks what holds of every stream: both names of an event agree, numbers count up, and the last one ends it.
  static std::vector<Event> stream(json::object request) {
    request["stream"] = true;
    const Answer answer = post(port(), kResponses, json::serialize(request));
    EXPECT_EQ(answer.status, 200) << answer.body;
    std::vector<Event> events;
    for (const std::string& chunk : answer.chunks) {
      const size_t line = chunk.find('\n');
      const bool is_event =
          chunk.starts_with("event: ") && chunk.substr(line + 1).starts_with("data: ") && chunk.ends_with("\n\n");
      EXPECT_TRUE(is_event) << chunk;
      if (!is_event) continue;
      Event& event = events.emplace_back();
      event.type = chunk.substr(7, line - 7);
      event.data = json::parse(chunk.substr(line + 7, chunk.size() - line - 9)).get_object();
      EXPECT_EQ(text_of(event.data.at("type")), event.type);
      EXPECT_EQ(event.data.at("sequence_number").to_number<size_t>(), events.size() - 1);
    }
    return events;
  }
  // The types in order; of equal ones that follow each other one.
  static std::vector<std::string> types_of(const std::vector<Event>& events) {
    std::vector<std::string> types;
    for (const Event& event : events) {
      if (types.empty() || types.back() != event.type) types.push_back(event.type);
    }
    return types;
  }
  static std::string joined(const std::vector<Event>& events, std::string_view type, const char* member = "delta") {
    std::string text;
    for (const Event& event : events) {
      if (event.type == type) text += text_of(event.data.at(member));
    }
    return text;
  }
  // A response without what is its own: ids and times.
  static json::object common(json::object response) {
    for (const char* name : {"id", "created_at", "completed_at"}) response.erase(name);
    for (json::value& item : response.at("output").get_array()) {
      item.get_object().erase("id");
      item.get_object().erase("call_id");
    }
    response.at("usage").get_object().erase("input_tokens_details");  // the second time more is cached
    return response;
  }
  static std::vector<std::string> kinds_of(const json::object& response) {
    std::vector<std::string> kinds;
    for (const json::value& item : response.at("output").get_array()) kinds.push_back(text_of(item.at("type")));
    return kinds;
  }
  // The prompt's tokens of a chat.
  static int64_t chat_tokens(const json::object& chat) {
    return post(port(), kChat, json::serialize(chat)).json().at("usage").at("prompt_tokens").to_number<int64_t>();
  }

  static TinyServer* server_;
};
TinyServer* ResponsesTest::server_ = nullptr;

TEST_F(ResponsesTest, AResponseIsWhatTheChatSays) {
  json::object request = ask("What is 6 times 7?");
  request["instructions"] = "Answer briefly.";
  request["metadata"] = json::object{{"topic", "demo"}};
  const json::object response = whole(request);
  EXPECT_TRUE(text_of(response.at("id")).starts_with("resp_"));
  EXPECT_EQ(text_of(response.at("object")), "response");
  EXPECT_EQ(text_of(response.at("status")), "completed");
  EXPECT_EQ(text_of(response.at("model")), "tiny");
  EXPECT_EQ(text_of(response.at("instructions")), "Answer briefly.");
  EXPECT_EQ(text_of(response.at("metadata").at("topic")), "demo");
  EXPECT_EQ(response.at("max_output_tokens"), 200);
  EXPECT_EQ(response.at("temperature"), 0);
  EXPECT_EQ(response.at("store"), false) << "nothing is";
  for (const char* name : {"error", "incomplete_details", "previous_response_id"})
    EXPECT_TRUE(response.at(name).is_null()) << name;
  for (const char* name : {"tools", "tool_choice", "parallel_tool_calls", "top_p", "text", "reasoning", "truncation"})
    EXPECT_TRUE(response.contains(name)) << name;
  const json::array& output = response.at("output").get_array();
  ASSERT_EQ(output.size(), 1u);
  EXPECT_EQ(text_of(output[0].at("type")), "message");
  EXPECT_EQ(text_of(output[0].at("role")), "assistant");
  EXPECT_EQ(text_of(output[0].at("status")), "completed");
  const json::object& part = output[0].at("content").at(0).get_object();
  EXPECT_EQ(text_of(part.at("type")), "output_text");

  const json::object chat =
      post(
          port(), kChat,
          R"({"messages":[{"role":"system","content":"Answer briefly."},{"role":"user","content":"What is 6 times 7?"}],"temperature":0})")
          .json();
  EXPECT_EQ(part.at("text"), chat.at("choices").at(0).at("message").at("content"));
  const json::object& usage = response.at("usage").get_object();
  EXPECT_EQ(usage.at("input_tokens"), chat.at("usage").at("prompt_tokens"));
  EXPECT_EQ(usage.at("output_tokens"), chat.at("usage").at("completion_tokens"));
  EXPECT_EQ(usage.at("total_tokens"), chat.at("usage").at("total_tokens"));
  EXPECT_EQ(usage.at("output_tokens_details").at("reasoning_tokens"), 0);
  EXPECT_EQ(usage.at("input_tokens_details").at("cached_tokens"), 0);
}

TEST_F(ResponsesTest, CachedTokensAreTold) {
  const json::object request = ask(std::string(600, 'x'));
  whole(request);
  EXPECT_GT(whole(request).at("usage").at("input_tokens_details").at("cached_tokens").to_number<int64_t>(), 0);
}

TEST_F(ResponsesTest, EventsComeInOrderAndSayWhatTheWholeSays) {
  const json::object request = ask("What is 6 times 7?");
  const json::object response = whole(request);
  const std::vector<Event> events = stream(request);
  const std::vector<std::string> expected = {"response.created",           "response.in_progress",
                                             "response.output_item.added", "response.content_part.added",
                                             "response.output_text.delta", "response.output_text.done",
                                             "response.content_part.done", "response.output_item.done",
                                             "response.completed"};
  ASSERT_EQ(types_of(events), expected);
  EXPECT_EQ(text_of(events[0].data.at("response").at("status")), "in_progress");
  EXPECT_TRUE(events[0].data.at("response").at("output").get_array().empty());
  EXPECT_TRUE(events[0].data.at("response").at("usage").is_null());
  EXPECT_TRUE(events[2].data.at("item").at("content").get_array().empty());
  EXPECT_EQ(text_of(events[2].data.at("item").at("status")), "in_progress");
  const std::string text = text_of(response.at("output").at(0).at("content").at(0).at("text"));
  EXPECT_EQ(joined(events, "response.output_text.delta"), text);
  EXPECT_EQ(joined(events, "response.output_text.done", "text"), text);
  EXPECT_GT(events.size(), expected.size() + 2) << "text comes as it is made";
  // Every event of an item names it, and the whole has it under the same id.
  const json::object& final = events.back().data.at("response").get_object();
  const json::value& id = events[2].data.at("item").at("id");
  for (const Event& event : events) {
    if (event.data.contains("item_id")) {
      EXPECT_EQ(event.data.at("item_id"), id) << event.type;
    }
    if (event.data.contains("output_index")) {
      EXPECT_EQ(event.data.at("output_index"), 0) << event.type;
    }
    if (event.data.contains("response")) {
      EXPECT_EQ(event.data.at("response").at("id"), final.at("id")) << event.type;
    }
  }
  EXPECT_EQ(final.at("output").at(0).at("id"), id);
  EXPECT_EQ(common(final), common(response));
}

// A stream's first events come at once, before the client has read anything.
TEST_F(ResponsesTest, LongFieldsAreNotRepeated) {
  json::object request = ask("What is 6 times 7?");
  request["metadata"] = json::object{{"a", std::string(700'000, 'x')}};
  request["user"] = std::string(20'000, 'y');
  const std::vector<Event> events = stream(request);
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(events.back().type, "response.completed");
  EXPECT_TRUE(events[0].data.at("response").at("metadata").get_object().empty());
  EXPECT_TRUE(events[0].data.at("response").at("user").is_null());
  request["metadata"] = json::object{{"a", std::string(7'000, 'x')}};
  EXPECT_EQ(whole(request).at("metadata"), request.at("metadata"));
}

TEST_F(ResponsesTest, WhatTheLimitCutsOffIsIncomplete) {
  json::object request = ask("What is 6 times 7?");
  request["max_output_tokens"] = 3;
  const json::object response = whole(request);
  EXPECT_EQ(text_of(response.at("status")), "incomplete");
  EXPECT_EQ(text_of(response.at("incomplete_details").at("reason")), "max_output_tokens");
  EXPECT_EQ(text_of(response.at("output").at(0).at("status")), "incomplete");
  EXPECT_EQ(response.at("usage").at("output_tokens"), 3);
  const std::vector<Event> events = stream(request);
  EXPECT_EQ(events.back().type, "response.incomplete");
  EXPECT_EQ(common(events.back().data.at("response").get_object()), common(response));
}

TEST_F(ResponsesTest, FunctionsAreCalled) {
  json::object request = ask("What is 9818*847?");
  request["tools"] = json::array{json::parse(kCalculator)};
  const json::object response = whole(request);
  const json::array& output = response.at("output").get_array();
  ASSERT_EQ(output.size(), 1u);
  EXPECT_EQ(text_of(output[0].at("type")), "function_call");
  EXPECT_EQ(text_of(output[0].at("name")), "calculator");
  EXPECT_NE(text_of(output[0].at("call_id")), "");
  EXPECT_EQ(text_of(output[0].at("status")), "completed");
  EXPECT_EQ(json::parse(text_of(output[0].at("arguments"))), json::parse(R"({"expression":"9818*847"})"));
  EXPECT_EQ(response.at("tools"), request.at("tools"));

  const std::vector<Event> events = stream(request);
  const std::vector<std::string> expected = {"response.created",
                                             "response.in_progress",
                                             "response.output_item.added",
                                             "response.function_call_arguments.delta",
                                             "response.function_call_arguments.done",
                                             "response.output_item.done",
                                             "response.completed"};
  EXPECT_EQ(types_of(events), expected);
  EXPECT_EQ(text_of(events[2].data.at("item").at("name")), "calculator");
  EXPECT_EQ(text_of(events[2].data.at("item").at("arguments")), "");
  EXPECT_EQ(joined(events, "response.function_call_arguments.delta"), text_of(output[0].at("arguments")));
  EXPECT_EQ(joined(events, "response.function_call_arguments.done", "arguments"), text_of(output[0].at("arguments")));
  EXPECT_EQ(common(events.back().data.at("response").get_object()), common(response));

  // The form of the answer, not the model's mood.
  request["input"] = "Hello!";
  request["tool_choice"] = json::parse(R"({"type":"function","name":"calculator"})");
  EXPECT_EQ(text_of(whole(request).at("output").at(0).at("type")), "function_call");
  request["tool_choice"] = "none";
  EXPECT_EQ(kinds_of(whole(request)), std::vector<std::string>{"message"});
}

// Items put together give the prompt of the same chat.
TEST_F(ResponsesTest, ConversationsGoBackAsItems) {
  const json::value chat_tools = json::parse(
      R"([{"type":"function","function":{"name":"calculator","description":"Evaluate an arithmetic expression.","parameters":{"type":"object","properties":{"expression":{"type":"string","description":"The expression to evaluate, such as 12*7."}},"required":["expression"]}}}])");
  json::object chat{{"max_tokens", 1}, {"tools", chat_tools}};
  chat["messages"] = json::parse(
      R"([{"role":"developer","content":"Be exact."},{"role":"user","content":"What is 9818*847?"},
          {"role":"assistant","content":"I compute.","tool_calls":[{"id":"c1","type":"function","function":{"name":"calculator","arguments":"{\"expression\":\"9818*847\"}"}},{"id":"c2","type":"function","function":{"name":"calculator","arguments":"{\"expression\":\"1+1\"}"}}]},
          {"role":"tool","tool_call_id":"c1","content":"8315846"},{"role":"tool","tool_call_id":"c2","content":"2"},
          {"role":"user","content":"Thank you."}])");
  json::object request = ask("");
  request["tools"] = json::array{json::parse(kCalculator)};
  request["input"] = json::parse(
      R"([{"role":"developer","content":"Be exact."},{"type":"message","role":"user","content":[{"type":"input_text","text":"What is "},{"type":"input_text","text":"9818*847?"}]},
          {"type":"message","id":"msg_1","status":"completed","role":"assistant","content":[{"type":"output_text","text":"I compute.","annotations":[]}]},
          {"type":"function_call","id":"fc_1","call_id":"c1","name":"calculator","arguments":"{\"expression\":\"9818*847\"}"},
          {"type":"function_call","call_id":"c2","name":"calculator","arguments":"{\"expression\":\"1+1\"}"},
          {"type":"function_call_output","call_id":"c1","output":"8315846"},
          {"type":"function_call_output","call_id":"c2","output":[{"type":"input_text","text":"2"}]},
          {"role":"user","content":"Thank you."}])");
  EXPECT_EQ(whole(request).at("usage").at("input_tokens").to_number<int64_t>(), chat_tokens(chat));
  // What was thought before a call belongs to it.
  chat["messages"] = json::parse(
      R"([{"role":"user","content":"What is 9818*847?"},
          {"role":"assistant","reasoning_content":"I need a calculator.","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"calculator","arguments":"{\"expression\":\"9818*847\"}"}}]},
          {"role":"tool","tool_call_id":"c1","content":"8315846"}])");
  chat["thinking"] = json::parse(R"({"type":"enabled"})");
  request["reasoning"] = json::parse(R"({"effort":"high"})");
  request["input"] = json::parse(
      R"([{"role":"user","content":"What is 9818*847?"},
          {"type":"reasoning","id":"rs_1","summary":[],"content":[{"type":"reasoning_text","text":"I need a calculator."}]},
          {"type":"function_call","call_id":"c1","name":"calculator","arguments":"{\"expression\":\"9818*847\"}"},
          {"type":"function_call_output","call_id":"c1","output":"8315846"}])");
  EXPECT_EQ(whole(request).at("usage").at("input_tokens").to_number<int64_t>(), chat_tokens(chat));
  const std::string prompt = text_of(
      post(port(), "/v1/chat/completions/render", json::serialize(chat)).json().at("prompts").at(0).at("prompt"));
  EXPECT_NE(prompt.find("8315846"), std::string::npos);
  // An answer goes back as it came.
  json::array items{json::object{{"role", "user"}, {"content", "What is 6 times 7?"}}};
  const json::object first = whole(ask("What is 6 times 7?"));
  for (const json::value& item : first.at("output").get_array()) items.push_back(item);
  items.push_back(json::object{{"role", "user"}, {"content", "And 6 times 8?"}});
  json::object second = ask("");
  second["input"] = std::move(items);
  EXPECT_EQ(text_of(whole(second).at("status")), "completed");
}

TEST_F(ResponsesTest, ThinkingIsAnItemOfItsOwn) {
  json::object request = ask("Search for cow.");
  request["reasoning"] = json::parse(R"({"effort":"high","summary":"auto"})");
  const json::object response = whole(request);
  const json::object chat =
      post(
          port(), kChat,
          R"({"messages":[{"role":"user","content":"Search for cow."}],"temperature":0,"max_tokens":200,"chat_template_kwargs":{"thinking":true}})")
          .json();
  const json::object& thought = response.at("output").at(0).get_object();
  EXPECT_EQ(text_of(thought.at("type")), "reasoning");
  EXPECT_TRUE(thought.at("summary").get_array().empty());
  EXPECT_EQ(thought.at("content").at(0).at("text"), chat.at("choices").at(0).at("message").at("reasoning_content"));
  EXPECT_EQ(response.at("usage").at("output_tokens_details").at("reasoning_tokens"),
            chat.at("usage").at("completion_tokens_details").at("reasoning_tokens"));
  EXPECT_EQ(text_of(response.at("output").at(1).at("type")), "message");
  const std::vector<Event> events = stream(request);
  EXPECT_EQ(joined(events, "response.reasoning_text.delta"), text_of(thought.at("content").at(0).at("text")));
  EXPECT_EQ(joined(events, "response.reasoning_text.done", "text"), text_of(thought.at("content").at(0).at("text")));
  const std::vector<std::string> expected = {"response.created",
                                             "response.in_progress",
                                             "response.output_item.added",
                                             "response.content_part.added",
                                             "response.reasoning_text.delta",
                                             "response.reasoning_text.done",
                                             "response.content_part.done",
                                             "response.output_item.done",
                                             "response.output_item.added",
                                             "response.content_part.added",
                                             "response.output_text.delta",
                                             "response.output_text.done",
                                             "response.content_part.done",
                                             "response.output_item.done",
                                             "response.completed"};
  EXPECT_EQ(types_of(events), expected);
  EXPECT_EQ(common(events.back().data.at("response").get_object()), common(response));
  request["reasoning"] = json::parse(R"({"effort":"none"})");
  EXPECT_EQ(kinds_of(whole(request)), std::vector<std::string>{"message"});
}

TEST_F(ResponsesTest, TextHasTheFormThatIsAskedFor) {
  if (!have_grammars()) GTEST_SKIP() << "built without structured output";
  json::object request = ask("Tom has 12 apples.");
  request["text"] = json::parse(
      R"({"format":{"type":"json_schema","name":"count","strict":true,"schema":{"type":"object","properties":{"count":{"enum":[12,13]}},"required":["count"],"additionalProperties":false}}})");
  const json::object response = whole(request);
  const json::object count =
      json::parse(text_of(response.at("output").at(0).at("content").at(0).at("text"))).get_object();
  EXPECT_EQ(count.size(), 1u);
  EXPECT_TRUE(count.at("count") == 12 || count.at("count") == 13);
  EXPECT_EQ(response.at("text"), request.at("text"));
}

// Those of the same chat, token by token; whole and streamed alike.
TEST_F(ResponsesTest, LogprobsAreThoseOfTheChat) {
  json::object request = ask("What is 6 times 7?");
  request["include"] = json::array{"message.output_text.logprobs"};
  request["top_logprobs"] = 2;
  const json::object response = whole(request);
  const json::object& part = response.at("output").at(0).at("content").at(0).get_object();
  const json::array& logprobs = part.at("logprobs").get_array();
  const json::object chat =
      post(
          port(), kChat,
          R"({"messages":[{"role":"user","content":"What is 6 times 7?"}],"temperature":0,"logprobs":true,"top_logprobs":2})")
          .json();
  json::array expected = chat.at("choices").at(0).at("logprobs").at("content").get_array();
  std::string said;
  for (const json::value& entry : logprobs) said += text_of(entry.at("token"));
  EXPECT_EQ(said, text_of(part.at("text")));
  ASSERT_GT(logprobs.size(), 3u);
  EXPECT_EQ(logprobs.at(0).at("top_logprobs").get_array().size(), 2u);
  expected.resize(logprobs.size());  // the end is a token, and none of the text
  EXPECT_EQ(logprobs, expected);
  EXPECT_EQ(response.at("top_logprobs"), 2);

  const std::vector<Event> events = stream(request);
  json::array streamed;
  for (const Event& event : events) {
    if (event.type != "response.output_text.delta") continue;
    for (const json::value& entry : event.data.at("logprobs").get_array()) streamed.push_back(entry);
  }
  EXPECT_EQ(streamed, logprobs);
  for (const Event& event : events) {
    if (event.type == "response.output_text.done") {
      EXPECT_EQ(event.data.at("logprobs"), logprobs);
    }
    if (event.type == "response.content_part.done") {
      EXPECT_EQ(event.data.at("part").at("logprobs"), logprobs);
    }
  }
  EXPECT_EQ(common(events.back().data.at("response").get_object()), common(response));

  // Without include top_logprobs asks for them; with neither there are none.
  request.erase("include");
  EXPECT_EQ(whole(request).at("output").at(0).at("content").at(0).at("logprobs"), logprobs);
  request["top_logprobs"] = 0;
  EXPECT_TRUE(whole(request).at("output").at(0).at("content").at(0).at("logprobs").get_array().empty());
}

// Thoughts and calls have tokens too, and no text.
TEST_F(ResponsesTest, LogprobsAreOfTheTextAlone) {
  json::object thinks = ask("What is 6 times 7?");
  thinks["reasoning"] = json::object{{"effort", "high"}};
  thinks["top_logprobs"] = 1;
  json::object calls = ask("What is 9818*847?");
  calls["tools"] = json::array{json::parse(kCalculator)};
  calls["include"] = json::array{"message.output_text.logprobs"};
  for (const json::object& request : {thinks, calls}) {
    const json::object response = whole(request);
    for (const json::value& item : response.at("output").get_array()) {
      if (text_of(item.at("type")) != "message") continue;
      std::string said;
      for (const json::value& entry : item.at("content").at(0).at("logprobs").get_array())
        said += text_of(entry.at("token"));
      EXPECT_EQ(said, text_of(item.at("content").at(0).at("text")));
    }
  }
  EXPECT_EQ(kinds_of(whole(thinks)), (std::vector<std::string>{"reasoning", "message"}));
}

TEST_F(ResponsesTest, FaultsAreNamedAsTheRequestHasThem) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({})", "input"},
      {R"({"input":7})", "input"},
      {R"({"input":[]})", "input"},
      {R"({"input":[7]})", "input"},
      {R"({"input":[{"role":"tool","content":"x"}]})", "input"},
      {R"({"input":[{"role":"user"}]})", "input"},
      {R"({"input":[{"role":"user","content":[{"type":"input_image","image_url":"http://x/"}]}]})", "input"},
      {R"({"input":[{"type":"item_reference","id":"msg_1"}]})", "input"},
      {R"({"input":[{"type":"web_search_call"}]})", "input"},
      {R"({"input":[{"type":"function_call","name":"x"}]})", "input"},
      {R"({"input":"x","previous_response_id":"resp_1"})", "previous_response_id"},
      {R"({"input":"x","conversation":"conv_1"})", "conversation"},
      {R"({"input":"x","prompt":{"id":"p"}})", "prompt"},
      {R"({"input":"x","background":true})", "background"},
      {R"({"input":"x","truncation":"auto"})", "truncation"},
      {R"({"input":"x","top_logprobs":21})", "top_logprobs"},
      {R"({"input":"x","include":["file_search_call.results"]})", "include"},
      {R"({"input":"x","instructions":7})", "instructions"},
      {R"({"input":"x","max_output_tokens":0})", "max_output_tokens"},
      {R"({"input":"x","temperature":-1})", "temperature"},
      {R"({"input":"x","reasoning":7})", "reasoning"},
      {R"({"input":"x","reasoning":{"effort":"much"}})", "reasoning.effort"},
      {R"({"input":"x","tools":[{"type":"web_search"}]})", "tools"},
      {R"({"input":"x","tools":[{"type":"function"}]})", "tools"},
      {R"({"input":"x","tools":[{"type":"function","name":"f","parameters":7}]})", "tools"},
      {R"({"input":"x","tool_choice":{"type":"mcp"}})", "tool_choice"},
      {R"({"input":"x","tool_choice":"required"})", "tool_choice"},
      {R"({"input":"x","text":{"verbosity":"low"}})", "text.verbosity"},
      {R"({"input":"x","text":{"format":{"type":"xml"}}})", "text.format"},
      {R"({"input":"x","text":{"format":{"type":"json_schema","schema":7}}})", "text.format"},
  };
  for (const auto& [body, param] : cases) {
    const Answer answer = post(port(), kResponses, body);
    EXPECT_EQ(answer.status, 400) << body << answer.body;
    const json::object error = answer.json().at("error").get_object();
    EXPECT_EQ(text_of(error.at("param")), param) << body;
    EXPECT_EQ(text_of(error.at("type")), "invalid_request_error");
    EXPECT_EQ(text_of(error.at("message")).find("messages"), std::string::npos) << answer.body;
  }
  EXPECT_EQ(post(port(), kResponses, R"({"input":"x","model":"gpt-6"})").status, 404);
  EXPECT_EQ(post(port(), kResponses, "{").status, 400);
  json::object too_long = ask("x");
  too_long["max_output_tokens"] = 100000;
  const json::object error = post(port(), kResponses, json::serialize(too_long)).json().at("error").get_object();
  EXPECT_EQ(text_of(error.at("code")), "context_length_exceeded");
  EXPECT_EQ(text_of(error.at("param")), "input");
  // What asks for nothing else is no fault.
  EXPECT_EQ(
      post(
          port(), kResponses,
          R"({"input":"x","max_output_tokens":1,"store":true,"background":false,"previous_response_id":null,"include":["reasoning.encrypted_content"],"user":"me","service_tier":"auto","unknown":7})")
          .status,
      200);
}

// What clients ask of a response that was stored, they hear that none is.
TEST_F(ResponsesTest, NoneIsStored) {
  const auto code_of = [&](const std::string& request) {
    Client client(port());
    EXPECT_TRUE(client.send(request));
    const Answer answer = client.read_answer().value_or(Answer{});
    EXPECT_EQ(answer.status, 404) << request;
    return text_of(answer.json()["error"].at("code"));
  };
  EXPECT_EQ(code_of(get_text("/v1/responses/resp_1")), "response_not_found");
  EXPECT_EQ(code_of(get_text("/v1/responses/resp_1/input_items")), "response_not_found");
  EXPECT_EQ(code_of("DELETE /v1/responses/resp_1 HTTP/1.1\r\nHost: localhost\r\n\r\n"), "response_not_found");
  EXPECT_EQ(code_of(post_text("/v1/responses/resp_1/cancel", "")), "response_not_found");
  EXPECT_EQ(code_of(post_text("/v1/responses/compact", "{}")), "unknown_url");
}

TEST(ResponsesEndTest, AStreamThatFailsSaysSo) {
  TinyServer server;
  Client client(server.port());
  client.send(post_text(kResponses, R"({"input":"Hello","max_output_tokens":1900,"ignore_eos":true,"stream":true})"));
  std::string text;
  while (text.find("output_text.delta") == std::string::npos) {
    const std::string more = client.read_some();
    ASSERT_NE(more, "") << text;
    text += more;
  }
  server.api().end_all("the test ends it");
  while (text.find("0\r\n\r\n") == std::string::npos) {
    const std::string more = client.read_some();
    ASSERT_NE(more, "") << text;
    text += more;
  }
  const size_t failed = text.find("event: response.failed\n");
  ASSERT_NE(failed, std::string::npos);
  EXPECT_NE(text.find(R"("error":{"code":"server_error","message":"the test ends it"})", failed), std::string::npos);
  EXPECT_NE(text.find(R"("status":"failed")", failed), std::string::npos);
  EXPECT_EQ(text.find("response.completed"), std::string::npos);
}

}  // namespace
}  // namespace lantern::test
