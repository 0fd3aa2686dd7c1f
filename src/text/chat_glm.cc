// GLM-4.5 to GLM-5.2. Source: the chat templates published with these models.
#include <fmt/format.h>

#include "base/json_text.h"
#include "text/chat_builder.h"

namespace lantern {
namespace {

constexpr std::string_view kSpecials[] = {
    "[gMASK]",     "<sop>",        "<|user|>",        "<|assistant|>",    "<|system|>", "<|observation|>",
    "<think>",     "</think>",     "<tool_call>",     "</tool_call>",     "<arg_key>",  "</arg_key>",
    "<arg_value>", "</arg_value>", "<tool_response>", "</tool_response>", "/nothink"};
constexpr std::string_view kStops[] = {"<|endoftext|>", "<|user|>", "<|observation|>"};

struct Style {
  bool line_breaks = false;  // GLM-4.5 and 4.6 put line breaks between the parts, later ones do not
  // GLM-5.2 writes tools without the envelope around the function, keeps thoughts as they are and every turn's thinking
  // block whole, and says how long to think.
  bool glm52 = false;

  std::string_view newline() const { return line_breaks ? "\n" : ""; }
  // In place of thoughts.
  std::string_view no_thoughts() const { return line_breaks || glm52 ? "<think></think>" : "</think>"; }
};

// As GLM-5.2 declares it: the function alone, without what is said to the one who calls it. Empty: not yet declared.
std::string bare_function(const ParsedTool& tool) {
  boost::json::object function = tool.function();
  if (const boost::json::value* deferred = function.if_contains("defer_loading")) {
    // What Jinja takes for true.
    const bool no = deferred->is_null() || *deferred == false || *deferred == 0 || *deferred == 0.0 ||
                    *deferred == "" || *deferred == boost::json::array() || *deferred == boost::json::object();
    if (!no) return "";
  }
  for (const char* name : {"defer_loading", "strict"}) {
    const auto found = function.find(name);
    if (found != function.end()) function.stable_erase(found);
  }
  return json_text(function, kPythonJson);
}

Status put_tools(const std::vector<std::string>& tools, Style style, ChatBuilder& out) {
  out.format(
      "<|system|>\n# Tools\n\n"
      "You may call one or more functions to assist with the user query.\n\n"
      "You are provided with function signatures within <tools></tools> XML tags:\n<tools>\n");
  for (const std::string& definition : tools) {
    ASSIGN_OR_RETURN(const ParsedTool tool, parse_tool(definition));
    const std::string text = style.glm52 ? bare_function(tool) : json_text(tool.whole, kPythonJson);
    if (!text.empty()) out.text(text).format("\n");
  }
  out.format(
      "</tools>\n\n"
      "For each function call, output the function name and arguments within the following XML format:\n"
      "<tool_call>{function-name}");
  for (const char* number : {"1", "2"}) {
    out.format(style.newline()).format(fmt::format("<arg_key>{{arg-key-{}}}</arg_key>", number));
    out.format(style.newline()).format(fmt::format("<arg_value>{{arg-value-{}}}</arg_value>", number));
  }
  out.format(style.newline()).format("...").format(style.newline()).format("</tool_call>");
  return {};
}

Status put_calls(const ChatMessage& message, Style style, ChatBuilder& out) {
  for (const ChatToolCall& call : message.tool_calls) {
    ASSIGN_OR_RETURN(const boost::json::object arguments, parse_arguments(call));
    out.format(style.newline()).format("<tool_call>").text(call.name).format(style.newline());
    for (const auto& argument : arguments) {
      out.format("<arg_key>").text({argument.key().data(), argument.key().size()}).format("</arg_key>");
      out.format(style.newline()).format("<arg_value>");
      if (argument.value().is_string()) {
        out.text({argument.value().get_string().data(), argument.value().get_string().size()});
      } else {
        out.text(json_text(argument.value(), kPythonJson));
      }
      out.format("</arg_value>").format(style.newline());
    }
    out.format("</tool_call>");
  }
  return {};
}

Status put_assistant(const ChatMessage& message, bool keep_thinking, Style style, ChatBuilder& out) {
  std::string_view content = message.content, reasoning;
  if (message.reasoning_content) {
    reasoning = *message.reasoning_content;
  } else if (const size_t end = content.find("</think>"); end != std::string_view::npos) {
    reasoning = after_last(content.substr(0, end), "<think>");
    if (!style.glm52) reasoning = strip_char_left(strip_char_right(reasoning, '\n'), '\n');
    content = after_last(content, "</think>");
  }
  out.format("<|assistant|>").format(style.newline());
  if (keep_thinking && !reasoning.empty()) {
    out.format("<think>").text(style.glm52 ? reasoning : strip(reasoning)).format("</think>");
  } else {
    out.format(style.no_thoughts());
  }
  if (const std::string_view visible = strip(content); !visible.empty()) out.format(style.newline()).text(visible);
  return put_calls(message, style, out);
}

Status render(const std::vector<ChatMessage>& messages, const ChatOptions& options, bool thinking, Style style,
              ChatBuilder& out) {
  out.format("[gMASK]<sop>");
  if (style.glm52 && thinking) {
    const bool less = options.effort == ReasoningEffort::kHigh;
    out.format("<|system|>Reasoning Effort: ").format(less ? "High" : "Max");
  }
  if (!options.tools.empty()) RETURN_IF_ERROR(put_tools(options.tools, style, out));
  const int last_user = last_user_index(messages, false);
  for (size_t i = 0; i < messages.size(); ++i) {
    const ChatMessage& message = messages[i];
    switch (message.role) {
      case ChatRole::kSystem:
      case ChatRole::kDeveloper: out.format("<|system|>").format(style.newline()).text(message.content); break;
      case ChatRole::kUser:
        out.format("<|user|>").format(style.newline()).text(message.content);
        if (style.line_breaks && !thinking && !message.content.ends_with("/nothink")) out.format("/nothink");
        break;
      case ChatRole::kTool:
        if (i == 0 || messages[i - 1].role != ChatRole::kTool) out.format("<|observation|>");
        out.format(style.newline()).format("<tool_response>").format(style.newline()).text(message.content);
        out.format(style.newline()).format("</tool_response>");
        break;
      case ChatRole::kAssistant:
        RETURN_IF_ERROR(put_assistant(message, static_cast<int>(i) > last_user, style, out));
        break;
    }
  }
  if (!options.add_generation_prompt) return {};
  out.format("<|assistant|>");
  if (style.line_breaks) {
    if (!thinking) out.format("\n<think></think>");
  } else {
    out.format(thinking ? "<think>" : style.no_thoughts());
  }
  return {};
}

Status render_glm45(const std::vector<ChatMessage>& messages, const ChatOptions& options, bool thinking,
                    ChatBuilder& out) {
  return render(messages, options, thinking, {.line_breaks = true}, out);
}
Status render_glm47(const std::vector<ChatMessage>& messages, const ChatOptions& options, bool thinking,
                    ChatBuilder& out) {
  return render(messages, options, thinking, {}, out);
}
Status render_glm52(const std::vector<ChatMessage>& messages, const ChatOptions& options, bool thinking,
                    ChatBuilder& out) {
  return render(messages, options, thinking, {.glm52 = true}, out);
}

constexpr ChatFormatInfo kFormats[] = {
    {ChatFormat::kGlm45, "glm45", kSpecials, 4, kStops, true, false, true, true, true, render_glm45},
    {ChatFormat::kGlm47, "glm47", kSpecials, 4, kStops, true, false, true, true, true, render_glm47},
    {ChatFormat::kGlm52, "glm52", kSpecials, 4, kStops, true, false, true, true, true, render_glm52},
};

}  // namespace

std::span<const ChatFormatInfo> glm_formats() { return kFormats; }

}  // namespace lantern
