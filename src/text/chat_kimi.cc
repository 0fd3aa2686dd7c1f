// Kimi-K2 and Moonlight. Source: the chat templates published with these models, and the tokenizer class published with
// Kimi-K2, which sorts the keys of tool definitions before its template writes them without spaces.
#include <fmt/format.h>

#include "base/json_text.h"
#include "text/chat_builder.h"

namespace lantern {
namespace {

constexpr std::string_view kSpecials[] = {"<|im_user|>",
                                          "<|im_assistant|>",
                                          "<|im_system|>",
                                          "<|im_middle|>",
                                          "<|im_end|>",
                                          "<|tool_calls_section_begin|>",
                                          "<|tool_calls_section_end|>",
                                          "<|tool_call_begin|>",
                                          "<|tool_call_argument_begin|>",
                                          "<|tool_call_end|>",
                                          "<think>",
                                          "</think>"};
constexpr std::string_view kStops[] = {"<|im_end|>", "[EOS]", "[EOT]"};

std::string_view role_name(ChatRole role) {
  switch (role) {
    case ChatRole::kSystem:
    case ChatRole::kDeveloper: return "system";
    case ChatRole::kUser: return "user";
    case ChatRole::kAssistant: return "assistant";
    case ChatRole::kTool: return "tool";
  }
  return "";
}

void put_role(ChatRole role, std::string_view name, ChatBuilder& out) {
  switch (role) {
    case ChatRole::kUser: out.format("<|im_user|>"); break;
    case ChatRole::kAssistant: out.format("<|im_assistant|>"); break;
    default: out.format("<|im_system|>");
  }
  if (name.empty()) {
    out.format(role_name(role));
  } else {
    out.text(name);
  }
  out.format("<|im_middle|>");
}

void put_default_system(const std::vector<ChatMessage>& messages, std::string_view content, std::string_view end,
                        ChatBuilder& out) {
  if (!messages.empty() && is_system(messages[0])) return;
  out.format("<|im_system|>system<|im_middle|>").format(content).format("<|im_end|>").format(end);
}

// `call_count` is the number of calls in earlier messages, for calls that have no id.
void put_calls(const ChatMessage& message, size_t call_count, ChatBuilder& out) {
  out.format("<|tool_calls_section_begin|>");
  for (const ChatToolCall& call : message.tool_calls) {
    out.format("<|tool_call_begin|>");
    out.text(call.id.empty() ? fmt::format("functions.{}:{}", call.name, call_count) : call.id);
    out.format("<|tool_call_argument_begin|>").text(call.arguments).format("<|tool_call_end|>");
    ++call_count;
  }
  out.format("<|tool_calls_section_end|>");
}

Status render_k2(const std::vector<ChatMessage>& messages, const ChatOptions& options, bool thinking,
                 ChatBuilder& out) {
  if (!options.tools.empty()) {
    boost::json::array tools;
    for (const std::string& definition : options.tools) {
      ASSIGN_OR_RETURN(ParsedTool tool, parse_tool(definition));
      tools.push_back(std::move(tool.whole));
    }
    out.format("<|im_system|>tool_declare<|im_middle|>")
        .text(json_text(tools, {.sort_keys = true}))
        .format("<|im_end|>");
  }
  // The template of the model that does not think breaks the line here, and nowhere else.
  put_default_system(messages, "You are Kimi, an AI assistant created by Moonshot AI.", thinking ? "" : "\n", out);
  // Thinking is kept behind the last answer that is not a call.
  size_t kept_from = 0, call_count = 0;
  for (size_t i = messages.size(); i-- > 0 && kept_from == 0;) {
    if (messages[i].role == ChatRole::kAssistant && messages[i].tool_calls.empty()) kept_from = i + 1;
  }
  for (size_t i = 0; i < messages.size(); ++i) {
    const ChatMessage& message = messages[i];
    put_role(message.role, message.name, out);
    if (message.role == ChatRole::kAssistant && thinking) {
      out.format("<think>");
      if (i >= kept_from) out.text(message.reasoning_content.value_or(""));
      out.format("</think>");
    }
    if (message.role == ChatRole::kTool) {
      if (message.tool_call_id.empty()) {
        return Error(ErrorCode::kInvalidArgument, fmt::format("message {} (tool) has no tool_call_id", i));
      }
      out.format("## Return of ").text(message.tool_call_id).format("\n");
    }
    out.text(message.content);
    if (!message.tool_calls.empty()) {
      put_calls(message, call_count, out);
      call_count += message.tool_calls.size();
    }
    out.format("<|im_end|>");
  }
  if (options.add_generation_prompt) out.format("<|im_assistant|>assistant<|im_middle|>");
  return {};
}

Status render_moonlight(const std::vector<ChatMessage>& messages, const ChatOptions& options, bool, ChatBuilder& out) {
  put_default_system(messages, "You are a helpful assistant provided by Moonshot-AI.", "", out);
  for (const ChatMessage& message : messages) {
    put_role(message.role, {}, out);
    out.text(message.content).format("<|im_end|>");
  }
  if (options.add_generation_prompt) out.format("<|im_assistant|>assistant<|im_middle|>");
  return {};
}

constexpr ChatFormatInfo kFormats[] = {
    {ChatFormat::kKimiK2, "kimi_k2", kSpecials, 5, kStops, false, false, false, true, true, render_k2},
    {ChatFormat::kKimiK2Thinking, "kimi_k2_thinking", kSpecials, 5, kStops, true, true, true, true, true, render_k2},
    {ChatFormat::kMoonlight, "moonlight", kSpecials, 5, kStops, false, false, false, false, false, render_moonlight},
};

}  // namespace

std::span<const ChatFormatInfo> kimi_formats() { return kFormats; }

}  // namespace lantern
