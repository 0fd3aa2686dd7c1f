// DeepSeek V2, V3(-0324), R1 and V3.1. Sources: the chat templates published with these models, and the V3.1 model card
// for the description of tools.
#include <fmt/format.h>

#include "base/json_text.h"
#include "text/chat_builder.h"

namespace lantern {
namespace {

constexpr std::string_view kEos = "<｜end▁of▁sentence｜>";
constexpr std::string_view kV2Specials[] = {"<｜begin▁of▁sentence｜>", kEos};
constexpr std::string_view kV3Specials[] = {"<｜begin▁of▁sentence｜>",
                                            kEos,
                                            "<｜User｜>",
                                            "<｜Assistant｜>",
                                            "<｜tool▁calls▁begin｜>",
                                            "<｜tool▁calls▁end｜>",
                                            "<｜tool▁call▁begin｜>",
                                            "<｜tool▁call▁end｜>",
                                            "<｜tool▁outputs▁begin｜>",
                                            "<｜tool▁outputs▁end｜>",
                                            "<｜tool▁output▁begin｜>",
                                            "<｜tool▁output▁end｜>",
                                            "<｜tool▁sep｜>",
                                            "<think>",
                                            "</think>"};
constexpr std::string_view kV32Specials[] = {
    "<｜begin▁of▁sentence｜>", kEos, "<｜User｜>", "<｜Assistant｜>", "</think>", "<think>", "｜DSML｜"};
constexpr std::string_view kStops[] = {kEos};

Status render_v2(const std::vector<ChatMessage>& messages, const ChatOptions& options, bool, ChatBuilder& out) {
  out.format("<｜begin▁of▁sentence｜>");
  for (const ChatMessage& message : messages) {
    if (is_system(message)) out.text(message.content).format("\n\n");
    if (message.role == ChatRole::kUser) out.format("User: ").text(message.content).format("\n\n");
    if (message.role == ChatRole::kAssistant) out.format("Assistant: ").text(message.content).format(kEos);
  }
  if (options.add_generation_prompt) out.format("Assistant:");
  return {};
}

// All system messages stand in front, wherever they come in the conversation.
void put_system(const std::vector<ChatMessage>& messages, ChatBuilder& out) {
  bool first = true;
  for (const ChatMessage& message : messages) {
    if (!is_system(message)) continue;
    if (!first) out.format("\n\n");
    out.text(message.content);
    first = false;
  }
}

// V3 and R1 write a call as its type, its name and a fenced block.
void put_fenced_calls(const ChatMessage& message, ChatBuilder& out) {
  out.text(message.content).format("<｜tool▁calls▁begin｜>");
  bool first = true;
  for (const ChatToolCall& call : message.tool_calls) {
    out.format(first ? "<｜tool▁call▁begin｜>function<｜tool▁sep｜>" : "\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>");
    out.text(call.name).format("\n```json\n").text(call.arguments).format("\n```<｜tool▁call▁end｜>");
    first = false;
  }
  out.format("<｜tool▁calls▁end｜><｜end▁of▁sentence｜>");
}

// V3 puts the Assistant token behind each user message, R1 in front of each assistant message. R1's template never
// starts a second round of calls or results afresh, which V3's does; both are written here as V3 does it.
Status render_v3_or_r1(const std::vector<ChatMessage>& messages, const ChatOptions& options, bool r1,
                       ChatBuilder& out) {
  out.format("<｜begin▁of▁sentence｜>");
  put_system(messages, out);
  bool after_results = false, last_is_user = false;
  for (const ChatMessage& message : messages) {
    if (is_system(message)) continue;
    if (message.role == ChatRole::kTool) {
      out.format(after_results ? "\n<｜tool▁output▁begin｜>" : "<｜tool▁outputs▁begin｜><｜tool▁output▁begin｜>");
      out.text(message.content).format("<｜tool▁output▁end｜>");
      after_results = true;
      last_is_user = false;
      continue;
    }
    const bool was_after_results = after_results;
    after_results = false;
    last_is_user = message.role == ChatRole::kUser;
    if (last_is_user) {
      out.format("<｜User｜>").text(message.content);
      if (!r1) out.format("<｜Assistant｜>");
      continue;
    }
    if (was_after_results) out.format("<｜tool▁outputs▁end｜>");
    if (r1 && (!was_after_results || !message.tool_calls.empty())) out.format("<｜Assistant｜>");
    if (!message.tool_calls.empty()) {
      put_fenced_calls(message, out);
    } else {
      const bool drop_thinking = r1 && !was_after_results;
      out.text(drop_thinking ? after_last(message.content, "</think>") : std::string_view(message.content))
          .format(kEos);
    }
  }
  if (after_results) out.format("<｜tool▁outputs▁end｜>");
  if (!options.add_generation_prompt || after_results) return {};
  if (r1) {
    out.format("<｜Assistant｜><think>\n");
  } else if (!last_is_user) {
    out.format("<｜Assistant｜>");
  }
  return {};
}

Status render_v3(const std::vector<ChatMessage>& messages, const ChatOptions& options, bool, ChatBuilder& out) {
  return render_v3_or_r1(messages, options, false, out);
}
Status render_r1(const std::vector<ChatMessage>& messages, const ChatOptions& options, bool, ChatBuilder& out) {
  return render_v3_or_r1(messages, options, true, out);
}

Status put_v31_tools(const std::vector<std::string>& tools, ChatBuilder& out) {
  out.format("\n\n## Tools\nYou have access to the following tools:\n");
  for (const std::string& definition : tools) {
    ASSIGN_OR_RETURN(const ParsedTool tool, parse_tool(definition));
    const auto& function = tool.function();
    const auto string_of = [&](const char* name) -> std::string {
      const auto* value = function.if_contains(name);
      return value != nullptr && value->is_string() ? std::string(value->get_string()) : std::string();
    };
    const auto* parameters = function.if_contains("parameters");
    out.format("\n### ").text(string_of("name")).format("\nDescription: ").text(string_of("description"));
    out.format("\n\nParameters: ")
        .text(parameters == nullptr ? "{}" : json_text(*parameters, kPythonJson))
        .format("\n");
  }
  out.format(
      "\nIMPORTANT: ALWAYS adhere to this exact format for tool use:\n"
      "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>tool_call_name<｜tool▁sep｜>tool_call_arguments<｜tool▁call▁end｜>"
      "{additional_tool_calls}<｜tool▁calls▁end｜>\n\n"
      "Where:\n"
      "- `tool_call_name` must be an exact match to one of the available tools\n"
      "- `tool_call_arguments` must be valid JSON that strictly follows the tool's Parameters Schema\n"
      "- For multiple tool calls, chain them directly without separators or spaces");
  return {};
}

Status render_v31(const std::vector<ChatMessage>& messages, const ChatOptions& options, bool thinking,
                  ChatBuilder& out) {
  out.format("<｜begin▁of▁sentence｜>");
  put_system(messages, out);
  if (!options.tools.empty()) RETURN_IF_ERROR(put_v31_tools(options.tools, out));
  bool after_user = false, after_results = false;
  for (const ChatMessage& message : messages) {
    if (is_system(message)) continue;
    switch (message.role) {
      case ChatRole::kUser:
        out.format("<｜User｜>").text(message.content);
        after_user = true;
        after_results = false;
        break;
      case ChatRole::kTool:
        out.format("<｜tool▁output▁begin｜>").text(message.content).format("<｜tool▁output▁end｜>");
        after_user = false;
        after_results = true;
        break;
      default:
        // Earlier turns never show their thinking, but its end.
        if (after_user) out.format("<｜Assistant｜></think>");
        after_user = false;
        if (!message.tool_calls.empty()) {
          out.text(message.content).format("<｜tool▁calls▁begin｜>");
          for (const ChatToolCall& call : message.tool_calls) {
            out.format("<｜tool▁call▁begin｜>").text(call.name).format("<｜tool▁sep｜>").text(call.arguments);
            out.format("<｜tool▁call▁end｜>");
          }
          out.format("<｜tool▁calls▁end｜><｜end▁of▁sentence｜>");
        } else {
          out.text(after_results ? std::string_view(message.content) : after_first(message.content, "</think>"));
          out.format(kEos);
        }
        after_results = false;
    }
  }
  if (options.add_generation_prompt && after_user)
    out.format(thinking ? "<｜Assistant｜><think>" : "<｜Assistant｜></think>");
  return {};
}

constexpr ChatFormatInfo kFormats[] = {
    {ChatFormat::kDeepSeekV2, "deepseek_v2", kV2Specials, 2, kStops, false, false, false, false, false, render_v2},
    {ChatFormat::kDeepSeekV3, "deepseek_v3_0324", kV3Specials, 4, kStops, false, false, false, false, true, render_v3},
    {ChatFormat::kDeepSeekR1, "deepseek_r1", kV3Specials, 4, kStops, true, true, true, false, true, render_r1},
    {ChatFormat::kDeepSeekV31, "deepseek_v31", kV3Specials, 4, kStops, true, false, false, true, true, render_v31},
    {ChatFormat::kDeepSeekV32, "deepseek_v32", kV32Specials, 5, kStops, true, false, false, true, true,
     render_deepseek_v32},
};

}  // namespace

std::span<const ChatFormatInfo> deepseek_formats() { return kFormats; }

}  // namespace lantern
