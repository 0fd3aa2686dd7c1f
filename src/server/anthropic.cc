#include "server/anthropic.h"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <utility>

#include "base/json_text.h"
#include "server/json_fields.h"
#include "server/openai_parts.h"
#include "server/request_fields.h"

namespace lantern {
namespace {

namespace json = boost::json;

std::string_view stop_reason_of(std::string_view finish_reason, bool by_string) {
  if (finish_reason == "tool_calls") return "tool_use";
  if (finish_reason == "length") return "max_tokens";
  return by_string ? "stop_sequence" : "end_turn";
}

json::object usage_of(int64_t prompt, int64_t cached, int64_t output) {
  return {{"input_tokens", prompt - cached},
          {"cache_creation_input_tokens", 0},
          {"cache_read_input_tokens", cached},
          {"output_tokens", output}};
}

OpenAiError fault(std::string param, std::string message) {
  return {.message = std::move(message), .param = std::move(param), .code = "invalid_value"};
}

// Writes a body of chats from one of messages; the first fault is kept.
class Translator {
 public:
  explicit Translator(const json::object& body)
      : body_(body), chat_(passed_fields(body, kOfMessages)), fault_(refused_field(body, kOfMessages)) {}

  std::variant<std::string, OpenAiError> run(bool answered) {
    if (const json::value* stop = body_.if_contains("stop_sequences")) chat_["stop"] = *stop;
    read_system();
    read_messages();
    read_tools();
    read_thinking();
    read_output_config();
    // An answer that somebody has begun, with which the models of this API go on.
    if (answered && !messages_.empty() && messages_.back().as_object().at("role") == "assistant") {
      fail("messages",
           "the last message is the assistant's, and an answer begins a message of its own; end with a user's");
    }
    if (fault_) return *std::move(fault_);
    chat_["messages"] = std::move(messages_);
    return json::serialize(chat_);
  }

 private:
  void fail(std::string param, std::string message) {
    if (!fault_) fault_ = fault(std::move(param), std::move(message));
  }
  static const json::object* object_of(const json::value& value) { return value.if_object(); }
  static std::string_view text_of(const json::object& object, const char* name) {
    const json::value* value = object.if_contains(name);
    return value != nullptr && value->is_string() ? std::string_view(value->get_string()) : std::string_view();
  }

  // A string, or a list of {"type": "text", "text": ...}.
  std::string read_text(const json::value& value, const char* where) {
    if (value.is_string()) return std::string(std::string_view(value.get_string()));
    std::string text;
    if (!value.is_array()) {
      fail(where, fmt::format("{} must be a string or a list of blocks, not {}", where, kind_of(value)));
      return text;
    }
    for (const json::value& item : value.get_array()) {
      const json::object* block = object_of(item);
      if (block == nullptr || text_of(*block, "type") != "text") {
        fail(where, fmt::format("{} has a block that is no text; this model takes text only", where));
        return text;
      }
      text += text_of(*block, "text");
    }
    return text;
  }

  void read_system() {
    const json::value* system = body_.if_contains("system");
    if (system == nullptr || system->is_null()) return;
    messages_.emplace_back(json::object{{"role", "system"}, {"content", read_text(*system, "system")}});
  }

  void read_messages() {
    const json::value* list = body_.if_contains("messages");
    if (list == nullptr || !list->is_array() || list->get_array().empty())
      return fail("messages", "messages must be a list of at least one message");
    for (const json::value& item : list->get_array()) {
      const json::object* message = object_of(item);
      const std::string_view role = message != nullptr ? text_of(*message, "role") : std::string_view();
      const json::value* content = message != nullptr ? message->if_contains("content") : nullptr;
      if ((role != "user" && role != "assistant") || content == nullptr)
        return fail("messages", "each message needs a role, user or assistant, and content");
      if (content->is_string()) {
        messages_.emplace_back(json::object{{"role", role}, {"content", *content}});
        continue;
      }
      if (!content->is_array()) return fail("messages", "content must be a string or a list of blocks");
      role == "user" ? read_user(content->get_array()) : read_assistant(content->get_array());
    }
  }

  // Results of tools stand before what the user says, as messages of their own.
  void read_user(const json::array& blocks) {
    std::string text;
    for (const json::value& item : blocks) {
      const json::object* block = object_of(item);
      const std::string_view type = block != nullptr ? text_of(*block, "type") : std::string_view();
      if (type == "text") {
        text += text_of(*block, "text");
      } else if (type == "tool_result") {
        const json::value* content = block->if_contains("content");
        messages_.emplace_back(
            json::object{{"role", "tool"},
                         {"tool_call_id", text_of(*block, "tool_use_id")},
                         {"content", content != nullptr && !content->is_null() ? read_text(*content, "content") : ""}});
      } else {
        return fail("messages",
                    fmt::format("a user's block of type '{}' is not supported; this model takes text", type));
      }
    }
    if (!text.empty()) messages_.emplace_back(json::object{{"role", "user"}, {"content", text}});
  }

  void read_assistant(const json::array& blocks) {
    std::string text;
    std::string thinking;
    json::array calls;
    for (const json::value& item : blocks) {
      const json::object* block = object_of(item);
      const std::string_view type = block != nullptr ? text_of(*block, "type") : std::string_view();
      if (type == "text") {
        text += text_of(*block, "text");
      } else if (type == "thinking") {
        thinking += text_of(*block, "thinking");
      } else if (type == "tool_use") {
        const json::value* input = block->if_contains("input");
        calls.emplace_back(json::object{
            {"id", text_of(*block, "id")},
            {"type", "function"},
            {"function", json::object{{"name", text_of(*block, "name")},
                                      {"arguments", input != nullptr ? json_text(*input, kPythonJson) : "{}"}}}});
      } else if (type != "redacted_thinking") {
        return fail("messages", fmt::format("an assistant's block of type '{}' is not supported", type));
      }
    }
    json::object message{{"role", "assistant"}, {"content", text}};
    if (!thinking.empty()) message["reasoning_content"] = thinking;
    if (!calls.empty()) message["tool_calls"] = std::move(calls);
    messages_.emplace_back(std::move(message));
  }

  void read_tools() {
    const json::value* list = body_.if_contains("tools");
    if (list != nullptr && !list->is_null() && !list->is_array())
      return fail("tools", fmt::format("tools must be a list, not {}", kind_of(*list)));
    if (list != nullptr && list->is_array() && !list->get_array().empty()) {
      json::array tools;
      for (const json::value& item : list->get_array()) {
        const json::object* tool = object_of(item);
        const std::string_view type = tool == nullptr ? std::string_view() : text_of(*tool, "type");
        if (!type.empty() && type != "custom")
          return fail("tools",
                      fmt::format("a tool is of the type '{}', and no tools run here; give custom ones", type));
        if (tool == nullptr || text_of(*tool, "name").empty() || !tool->contains("input_schema"))
          return fail("tools", "each tool needs a name and an input_schema");
        json::object function{{"name", text_of(*tool, "name")}};
        if (const std::string_view what = text_of(*tool, "description"); !what.empty()) function["description"] = what;
        function["parameters"] = tool->at("input_schema");
        tools.emplace_back(json::object{{"type", "function"}, {"function", std::move(function)}});
      }
      chat_["tools"] = std::move(tools);
    }
    const json::value* choice = body_.if_contains("tool_choice");
    if (choice == nullptr || choice->is_null()) return;
    const std::string_view type = choice->is_object() ? text_of(choice->get_object(), "type") : std::string_view();
    if (type == "auto" || type == "none") {
      chat_["tool_choice"] = type;
    } else if (type == "any") {
      chat_["tool_choice"] = "required";
    } else if (type == "tool") {
      chat_["tool_choice"] = json::object{{"type", "function"},
                                          {"function", json::object{{"name", text_of(choice->get_object(), "name")}}}};
    } else {
      return fail("tool_choice", "tool_choice must have the type auto, any, tool or none");
    }
    const json::value* alone = member_of(choice, "disable_parallel_tool_use");
    if (alone == nullptr || alone->is_null()) return;
    if (!alone->is_bool()) {
      return fail("tool_choice", fmt::format("disable_parallel_tool_use of tool_choice must be true or false, not {}",
                                             kind_of(*alone)));
    }
    chat_["parallel_tool_calls"] = !alone->get_bool();
  }

  void read_thinking() {
    const json::value* thinking = body_.if_contains("thinking");
    if (thinking == nullptr || thinking->is_null()) return;
    const std::string_view type = thinking->is_object() ? text_of(thinking->get_object(), "type") : std::string_view();
    if (type == "enabled" || type == "disabled") {
      chat_["thinking"] = json::object{{"type", type}};
    } else if (type != "adaptive") {  // as the model does by itself
      fail("thinking", "thinking must have the type enabled, disabled or adaptive");
    }
  }

  // Its effort is for models that know one, as that of chats.
  void read_output_config() {
    const json::value* config = body_.if_contains("output_config");
    if (config == nullptr || config->is_null()) return;
    if (!config->is_object())
      return fail("output_config", fmt::format("output_config must be an object, not {}", kind_of(*config)));
    if (const json::value* effort = member_of(config, "effort"); effort != nullptr && !effort->is_null())
      chat_["reasoning_effort"] = *effort;
    const json::value* format = member_of(config, "format");
    if (format == nullptr || format->is_null()) return;
    const json::value* schema = member_of(format, "schema");
    const json::value* type = member_of(format, "type");
    if (type == nullptr || *type != "json_schema" || schema == nullptr || !schema->is_object())
      return fail("output_config.format",
                  "output_config.format must have the type json_schema and a schema, which is an object");
    chat_["response_format"] =
        json::object{{"type", "json_schema"}, {"json_schema", json::object{{"schema", *schema}}}};
  }

  const json::object& body_;
  json::object chat_;
  json::array messages_ = {};
  std::optional<OpenAiError> fault_;
};

// `data`: JSON on one line.
std::string event_of(std::string_view type, std::string_view data) {
  return fmt::format("event: {}\ndata: {}\n\n", type, data);
}
std::string event_of(std::string_view type, const json::object& data) { return event_of(type, json_text(data)); }

}  // namespace

std::variant<std::string, OpenAiError> chat_of_messages(std::string_view body, bool answered) {
  const std::variant<json::object, OpenAiError> document = parse_body(body);
  if (const OpenAiError* error = std::get_if<OpenAiError>(&document)) return *error;
  return Translator(std::get<json::object>(document)).run(answered);
}

OpenAiError message_error_of(OpenAiError error) {
  constexpr std::pair<std::string_view, std::string_view> kNames[] = {{"stop", "stop_sequences"},
                                                                      {"response_format", "output_config.format"},
                                                                      {"reasoning_effort", "output_config.effort"}};
  return with_param_renamed(std::move(error), kNames);
}

std::string messages_of_chat(std::string_view chat_body) {
  const json::object chat = json::parse(chat_body).get_object();
  const json::object& choice = chat.at("choices").at(0).get_object();
  const json::object& message = choice.at("message").get_object();
  json::array content;
  const auto text_of = [](const json::object& object, const char* name) {
    const json::value* value = object.if_contains(name);
    return value != nullptr && value->is_string() ? value->get_string() : json::string();
  };
  if (const json::string thinking = text_of(message, "reasoning_content"); !thinking.empty())
    content.emplace_back(json::object{{"type", "thinking"}, {"thinking", thinking}, {"signature", ""}});
  if (const json::string text = text_of(message, "content"); !text.empty())
    content.emplace_back(json::object{{"type", "text"}, {"text", text}});
  if (const json::value* calls = message.if_contains("tool_calls"); calls != nullptr && calls->is_array()) {
    for (const json::value& call : calls->get_array()) {
      json::error_code failure;
      json::value input = json::parse(call.at("function").at("arguments").get_string(), failure);
      content.emplace_back(json::object{{"type", "tool_use"},
                                        {"id", call.at("id")},
                                        {"name", call.at("function").at("name")},
                                        {"input", failure || !input.is_object() ? json::object() : input}});
    }
  }
  const json::value& stop = choice.at("stop_reason");
  const json::object& usage = chat.at("usage").get_object();
  std::string id = "msg_";
  id += std::string_view(chat.at("id").get_string()).substr(std::string_view("chatcmpl-").size());
  return json_text(
      json::object{{"id", id},
                   {"type", "message"},
                   {"role", "assistant"},
                   {"model", chat.at("model")},
                   {"content", std::move(content)},
                   {"stop_reason", stop_reason_of(choice.at("finish_reason").get_string(), stop.is_string())},
                   {"stop_sequence", stop.is_string() ? stop : json::value()},
                   {"usage", usage_of(usage.at("prompt_tokens").to_number<int64_t>(),
                                      usage.at("prompt_tokens_details").at("cached_tokens").to_number<int64_t>(),
                                      usage.at("completion_tokens").to_number<int64_t>())}});
}

std::string_view anthropic_error_type(int32_t status) {
  switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 413: return "request_too_large";
    case 429: return "rate_limit_error";
    case 503: return "overloaded_error";
    case 500: return "api_error";
    case 504: return "timeout_error";
    default: return "invalid_request_error";
  }
}

std::string anthropic_error_body(const OpenAiError& error) {
  return json::serialize(
      json::object{{"type", "error"},
                   {"error", json::object{{"type", anthropic_error_type(error.status)}, {"message", error.message}}}});
}

MessagesStreamer::MessagesStreamer(const OpenAiRequest& request, const Tokenizer& tokenizer, std::string id,
                                   std::string model)
    : id_(std::move(id)),
      model_(std::move(model)),
      reader_(request, tokenizer),
      prompt_tokens_(static_cast<int64_t>(request.prompts.front().request.prompt.size())) {}

OpenAiUsage MessagesStreamer::usage() const { return usage_of(reader_, prompt_tokens_, cached_tokens_); }

void MessagesStreamer::close(std::vector<std::string>& events) {
  if (block_ == Block::kNone) return;
  block_ = Block::kNone;
  events.push_back(event_of("content_block_stop", {{"type", "content_block_stop"}, {"index", blocks_ - 1}}));
}

void MessagesStreamer::open(Block block, std::string_view start, std::vector<std::string>& events) {
  close(events);
  block_ = block;
  events.push_back(
      event_of("content_block_start",
               fmt::format(R"({{"type":"content_block_start","index":{},"content_block":{}}})", blocks_++, start)));
}

void MessagesStreamer::add_delta(std::string_view delta, std::vector<std::string>& events) {
  events.push_back(
      event_of("content_block_delta",
               fmt::format(R"({{"type":"content_block_delta","index":{},"delta":{}}})", blocks_ - 1, delta)));
}

void MessagesStreamer::add(size_t /*prompt*/, Output&& output, std::vector<std::string>& events) {
  if (complete_) return;
  if (std::optional<OpenAiError> error = error_of(output.end_reason, output.error); output.ended() && error)
    return add_error(*error, events);
  if (output.ended()) cached_tokens_ = output.cached_tokens;
  const OutputDelta delta = reader_.push(output);
  if (!began_) {
    began_ = true;
    events.push_back(event_of("message_start", {{"type", "message_start"},
                                                {"message", json::object{{"id", "msg_" + id_},
                                                                         {"type", "message"},
                                                                         {"role", "assistant"},
                                                                         {"model", model_},
                                                                         {"content", json::array()},
                                                                         {"stop_reason", nullptr},
                                                                         {"stop_sequence", nullptr},
                                                                         {"usage", usage_of(prompt_tokens_, 0, 0)}}}}));
  }
  const auto quoted = [](const std::string& text) { return json::serialize(std::string_view(text)); };
  if (!delta.reasoning.empty()) {
    if (block_ != Block::kThinking)
      open(Block::kThinking, R"({"type":"thinking","thinking":"","signature":""})", events);
    add_delta(fmt::format(R"({{"type":"thinking_delta","thinking":{}}})", quoted(delta.reasoning)), events);
  }
  if (!delta.content.empty()) {
    if (block_ != Block::kText) open(Block::kText, R"({"type":"text","text":""})", events);
    add_delta(fmt::format(R"({{"type":"text_delta","text":{}}})", quoted(delta.content)), events);
  }
  for (const ToolCallDelta& call : delta.tool_calls) {
    if (call.index >= calls_) {
      calls_ = call.index + 1;
      open(Block::kTool,
           fmt::format(R"({{"type":"tool_use","id":{},"name":{},"input":{{}}}})", quoted(call.id), quoted(call.name)),
           events);
    }
    if (call.arguments.empty()) continue;
    add_delta(fmt::format(R"({{"type":"input_json_delta","partial_json":{}}})", quoted(call.arguments)), events);
  }
  if (!output.ended()) return;
  close(events);
  complete_ = true;
  if (output.end_reason == EndReason::kLength) outcome_ = "length";
  const bool by_string = !output.stop_string.empty();
  const std::string_view why = stop_reason_of(finish_reason(output.end_reason, calls_ > 0), by_string);
  events.push_back(
      event_of("message_delta",
               {{"type", "message_delta"},
                {"delta", json::object{{"stop_reason", why},
                                       {"stop_sequence", by_string ? json::value(output.stop_string) : json::value()}}},
                {"usage", usage_of(prompt_tokens_, cached_tokens_, reader_.tokens())}}));
  events.push_back(event_of("message_stop", {{"type", "message_stop"}}));
}

void MessagesStreamer::add_error(const OpenAiError& error, std::vector<std::string>& events) {
  if (complete_) return;
  complete_ = true;
  outcome_ = "error";
  events.push_back(event_of("error", anthropic_error_body(error)));
}

}  // namespace lantern
