#include "server/responses_request.h"

#include <fmt/format.h>

#include <limits>

#include "server/json_fields.h"
#include "server/request_fields.h"

namespace lantern {
namespace {

namespace json = boost::json;

constexpr size_t kMostRepeatedBytes = 16384;  // of a field, as JSON
constexpr std::string_view kLogprobs = "message.output_text.logprobs";

std::string_view text_of(const json::value* value) {
  return value != nullptr && value->is_string() ? std::string_view(value->get_string()) : std::string_view();
}

class Translator {
 public:
  Translator(const json::object& body, const OpenAiModel& model)
      : fields_(body), model_(model), chat_(passed_fields(body, kOfResponses)) {
    if (const auto error = refused_field(body, kOfResponses)) fields_.fail(*error);
  }

  std::variant<ChatOfResponse, OpenAiError> run() {
    read_include();
    read_length();
    read_instructions();
    read_input();
    read_reasoning();
    read_tools();
    read_tool_choice();
    read_text();
    repeat();
    if (!fields_.ok()) return fields_.error();
    chat_["messages"] = std::move(messages_);
    return ChatOfResponse{.body = json::serialize(chat_), .repeated = json::serialize(repeated_)};
  }

 private:
  void unsupported(std::string_view name, std::string_view why) {
    fields_.fail(name, fmt::format("{} is not supported: {}", name, why), "unsupported_parameter");
  }

  // What an answer is to tell beside its text: log-probabilities. Who wants to know likely tokens wants those too.
  void read_include() {
    std::vector<std::string> include;
    fields_.texts("include", include, 16);
    int32_t top = 0;
    fields_.integer("top_logprobs", top, 0, model_.max_logprobs);
    bool logprobs = top > 0;
    for (const std::string& what : include) {
      logprobs = logprobs || what == kLogprobs;
      // Thoughts are in their items as they are, so there is nothing to encrypt.
      if (what != kLogprobs && what != "reasoning.encrypted_content")
        unsupported("include", fmt::format("there is no '{}'", what));
    }
    repeated_["top_logprobs"] = top;
    if (!logprobs) return;
    chat_["logprobs"] = true;
    chat_["top_logprobs"] = top;
  }

  void read_length() {
    int32_t most = 0;
    fields_.integer("max_output_tokens", most, 1, std::numeric_limits<int32_t>::max());
    if (most == 0) return;
    chat_["max_completion_tokens"] = most;
    repeated_["max_output_tokens"] = most;
  }

  void read_instructions() {
    std::string instructions;
    fields_.text("instructions", instructions);
    if (instructions.empty()) return;
    repeated_["instructions"] = instructions;
    messages_.emplace_back(json::object{{"role", "system"}, {"content", std::move(instructions)}});
  }

  void read_input() {
    const json::value* input = fields_.find("input");
    if (!fields_.ok()) return;
    if (input == nullptr)
      return fields_.fail("input", "input is missing; give a text or a list of items", "missing_required_parameter");
    if (input->is_string()) {
      messages_.emplace_back(json::object{{"role", "user"}, {"content", *input}});
      return;
    }
    if (!input->is_array() || input->get_array().empty())
      return fields_.fail("input", "input must be a text or a list of at least one item");
    for (size_t i = 0; i < input->get_array().size() && fields_.ok(); ++i) read_item(input->get_array()[i], i);
    if (!thought_.empty()) answer()["content"] = "";  // a thought that nothing came of
  }

  void fail_item(size_t index, std::string_view what) {
    fields_.fail("input", fmt::format("input[{}]: {}", index, what));
  }

  void read_item(const json::value& item, size_t index) {
    if (!item.is_object()) return fail_item(index, fmt::format("an item is an object, not {}", kind_of(item)));
    const json::value* named = member_of(&item, "type");
    const std::string_view type = named == nullptr ? "message" : text_of(named);
    if (type == "message") return read_message(item, index);
    if (type == "reasoning") return read_thought(item, index);
    if (type == "function_call") return read_call(item, index);
    if (type == "function_call_output") {
      messages_.emplace_back(json::object{{"role", "tool"},
                                          {"tool_call_id", text_of(member_of(&item, "call_id"))},
                                          {"content", read_content(member_of(&item, "output"), index)}});
      return;
    }
    if (type == "item_reference")
      return fail_item(index, "items are not stored, so none can be referred to; send the item itself");
    fail_item(index, fmt::format("items of the type '{}' are not supported; use message, reasoning, function_call and "
                                 "function_call_output",
                                 type));
  }

  // A text, or a list of parts with texts.
  std::string read_content(const json::value* content, size_t index) {
    std::string text;
    if (content != nullptr && content->is_string()) return std::string(text_of(content));
    if (content == nullptr || !content->is_array()) {
      fail_item(index, "its content must be a text or a list of parts");
      return text;
    }
    for (const json::value& part : content->get_array()) {
      const std::string_view type = text_of(member_of(&part, "type"));
      const json::value* said = member_of(&part, type == "refusal" ? "refusal" : "text");
      if ((type != "input_text" && type != "output_text" && type != "text" && type != "refusal") || said == nullptr ||
          !said->is_string()) {
        fail_item(index, fmt::format("a part of the type '{}' is not supported; this model takes text only", type));
        return text;
      }
      text += text_of(said);
    }
    return text;
  }

  void read_message(const json::value& item, size_t index) {
    const std::string_view role = text_of(member_of(&item, "role"));
    if (role != "user" && role != "assistant" && role != "system" && role != "developer")
      return fail_item(index, fmt::format("role is '{}'; use user, assistant, system or developer", role));
    const std::string content = read_content(member_of(&item, "content"), index);
    if (role == "assistant") {
      answer()["content"] = content;
    } else {
      messages_.emplace_back(json::object{{"role", role}, {"content", content}});
    }
  }

  void read_thought(const json::value& item, size_t index) {
    const json::value* content = member_of(&item, "content");
    if (content == nullptr || content->is_null()) return;  // what another server has encrypted
    if (!content->is_array()) return fail_item(index, "a reasoning's content must be a list of parts");
    for (const json::value& part : content->get_array()) thought_ += text_of(member_of(&part, "text"));
  }

  void read_call(const json::value& item, size_t index) {
    const std::string_view name = text_of(member_of(&item, "name"));
    const json::value* arguments = member_of(&item, "arguments");
    if (name.empty() || arguments == nullptr || !arguments->is_string())
      return fail_item(index, "a function_call needs a name, and arguments, which are a text");
    json::object call{{"id", text_of(member_of(&item, "call_id"))},
                      {"type", "function"},
                      {"function", json::object{{"name", name}, {"arguments", *arguments}}}};
    const bool goes_on = thought_.empty() && !messages_.empty() && messages_.back().at("role") == "assistant";
    json::object& message = goes_on ? messages_.back().get_object() : answer();
    json::value& calls = message["tool_calls"];
    if (!calls.is_array()) calls = json::array();
    calls.get_array().emplace_back(std::move(call));
  }

  // A new message of the assistant, behind what it thought.
  json::object& answer() {
    json::object& message =
        messages_.emplace_back(json::object{{"role", "assistant"}, {"content", nullptr}}).get_object();
    if (!thought_.empty()) message["reasoning_content"] = std::exchange(thought_, {});
    return message;
  }

  // Who names an effort wants thinking; how much of it is the model's to know.
  void read_reasoning() {
    const json::value* reasoning = fields_.find("reasoning");
    if (reasoning == nullptr) return;
    if (!reasoning->is_object())
      return fields_.fail("reasoning", fmt::format("reasoning must be an object, not {}", kind_of(*reasoning)));
    repeated_["reasoning"] = *reasoning;
    JsonFields of(reasoning->get_object());
    std::string effort;
    of.text("effort", effort);
    if (!of.ok()) return fields_.fail("reasoning.effort", of.error().message);
    if (effort.empty()) return;
    chat_["reasoning_effort"] = effort;
    chat_["thinking"] = json::object{{"type", effort == "none" ? "disabled" : "enabled"}};
  }

  void read_tools() {
    const json::value* list = fields_.find("tools");
    if (list == nullptr) return;
    if (!list->is_array()) return fields_.fail("tools", fmt::format("tools must be a list, not {}", kind_of(*list)));
    json::array tools;
    for (const json::value& tool : list->get_array()) {
      const std::string_view type = text_of(member_of(&tool, "type"));
      if (type != "function") {
        return fields_.fail("tools", fmt::format("tools[{}] is of the type '{}', and only functions are supported",
                                                 tools.size(), type));
      }
      json::object function;
      for (const char* name : {"name", "description", "parameters", "strict"}) {
        if (const json::value* value = member_of(&tool, name); value != nullptr && !value->is_null())
          function[name] = *value;
      }
      if (text_of(function.if_contains("name")).empty())
        return fields_.fail("tools", fmt::format("tools[{}] needs a name", tools.size()));
      tools.emplace_back(json::object{{"type", "function"}, {"function", std::move(function)}});
    }
    repeated_["tools"] = *list;
    chat_["tools"] = std::move(tools);
  }

  void read_tool_choice() {
    const json::value* choice = fields_.find("tool_choice");
    if (choice == nullptr) return;
    repeated_["tool_choice"] = *choice;
    if (choice->is_string()) {
      chat_["tool_choice"] = *choice;
    } else if (text_of(member_of(choice, "type")) == "function") {
      chat_["tool_choice"] =
          json::object{{"type", "function"}, {"function", json::object{{"name", text_of(member_of(choice, "name"))}}}};
    } else {
      fields_.fail("tool_choice",
                   "tool_choice must be \"none\", \"auto\", \"required\" or {\"type\": \"function\", \"name\": ...}");
    }
  }

  void read_text() {
    const json::value* text = fields_.find("text");
    if (text == nullptr) return;
    if (!text->is_object()) return fields_.fail("text", fmt::format("text must be an object, not {}", kind_of(*text)));
    const std::string_view verbosity = text_of(member_of(text, "verbosity"));
    if (!verbosity.empty() && verbosity != "medium")
      return fields_.fail("text.verbosity", "text.verbosity is not supported: say it in the instructions",
                          "unsupported_parameter");
    const json::value* format = member_of(text, "format");
    if (format == nullptr || format->is_null()) return;
    repeated_["text"] = json::object{{"format", *format}};
    const std::string_view type = text_of(member_of(format, "type"));
    if (type == "json_schema") {
      const json::value* schema = member_of(format, "schema");
      if (schema == nullptr || !schema->is_object())
        return fields_.fail("text.format",
                            "text.format of the type \"json_schema\" needs a schema, which is an object");
      chat_["response_format"] =
          json::object{{"type", "json_schema"}, {"json_schema", json::object{{"schema", *schema}}}};
    } else if (type == "json_object") {
      chat_["response_format"] = *format;
    } else if (type != "text") {
      fields_.fail("text.format", "text.format must have the type \"text\", \"json_object\" or \"json_schema\"");
    }
  }

  // What SDKs want in every answer, asked for or not.
  void repeat() {
    const auto repeat_or = [&](const char* name, const json::value& otherwise) {
      if (repeated_.contains(name)) return;
      const json::value* value = fields_.find(name);
      repeated_[name] = value != nullptr ? *value : otherwise;
    };
    repeat_or("instructions", nullptr);
    repeat_or("max_output_tokens", nullptr);
    repeat_or("metadata", json::object());
    repeat_or("parallel_tool_calls", true);
    repeat_or("reasoning", json::object{{"effort", nullptr}, {"summary", nullptr}});
    repeat_or("temperature", model_.temperature.value_or(1.0));
    repeat_or("text", json::object{{"format", json::object{{"type", "text"}}}});
    repeat_or("tool_choice", "auto");
    repeat_or("tools", json::array());
    repeat_or("top_p", model_.top_p.value_or(1.0));
    repeat_or("user", nullptr);
    repeated_["previous_response_id"] = nullptr;
    repeated_["background"] = false;
    repeated_["store"] = false;
    repeated_["service_tier"] = "default";
    repeated_["truncation"] = "disabled";
    // Each of a stream's first events has all of it: long ones would be taken for what a slow reader leaves waiting.
    for (auto& [name, value] : repeated_) {
      if (json::serialize(value).size() <= kMostRepeatedBytes) continue;
      value = value.is_array() ? json::value(json::array()) : value.is_object() ? json::value(json::object()) : nullptr;
    }
  }

  JsonFields fields_;
  const OpenAiModel& model_;
  json::object chat_;
  json::object repeated_ = {};
  json::array messages_ = {};
  std::string thought_ = {};  // that the next message of the assistant came of
};

}  // namespace

std::variant<ChatOfResponse, OpenAiError> chat_of_response(std::string_view body, const OpenAiModel& model) {
  const std::variant<json::object, OpenAiError> document = parse_body(body);
  if (const OpenAiError* error = std::get_if<OpenAiError>(&document)) return *error;
  return Translator(std::get<json::object>(document), model).run();
}

OpenAiError response_error_of(OpenAiError error) {
  constexpr std::pair<std::string_view, std::string_view> kNames[] = {{"messages", "input"},
                                                                      {"max_completion_tokens", "max_output_tokens"},
                                                                      {"logprobs", "include"},
                                                                      {"response_format", "text.format"},
                                                                      {"reasoning_effort", "reasoning.effort"}};
  return with_param_renamed(std::move(error), kNames);
}

}  // namespace lantern
