// DeepSeek V3.2. Source: the message encoding published with the model (there is no chat template). What is not visible
// there: tools given for the whole conversation are declared by the first system message, an empty one if need be.
#include <fmt/format.h>

#include "base/json_text.h"
#include "text/chat_builder.h"

namespace lantern {
namespace {

Status put_tools(const std::vector<std::string>& tools, ChatBuilder& out) {
  out.format(
      "## Tools\n\n"
      "You have access to a set of tools you can use to answer the user's question.\n"
      "You can invoke functions by writing a \"<｜DSML｜function_calls>\" block like the following as part of your "
      "reply to "
      "the user:\n"
      "<｜DSML｜function_calls>\n"
      "<｜DSML｜invoke name=\"$FUNCTION_NAME\">\n"
      "<｜DSML｜parameter name=\"$PARAMETER_NAME\" string=\"true|false\">$PARAMETER_VALUE</｜DSML｜parameter>\n"
      "...\n"
      "</｜DSML｜invoke>\n"
      "<｜DSML｜invoke name=\"$FUNCTION_NAME2\">\n"
      "...\n"
      "</｜DSML｜invoke>\n"
      "</｜DSML｜function_calls>\n\n"
      "String and scalar parameters should be specified as is without any escaping or quotes, while lists and objects "
      "should use JSON format. The \"string\" attribute should be set to \"true\" for string type parameters and "
      "\"false\" "
      "for other types (numbers, booleans, arrays, objects).\n\n"
      "If the thinking_mode is enabled, then after function results you should strongly consider outputting a thinking "
      "block. Here is an example:\n\n"
      "<｜DSML｜function_calls>\n"
      "...\n"
      "</｜DSML｜function_calls>\n\n"
      "<function_results>\n"
      "...\n"
      "</function_results>\n\n"
      "<think>...thinking about results</think>\n\n"
      "Here are the functions available in JSONSchema format:\n"
      "<functions>\n");
  bool first = true;
  for (const std::string& definition : tools) {
    ASSIGN_OR_RETURN(const ParsedTool tool, parse_tool(definition));
    if (!first) out.format("\n");
    out.text(json_text(tool.function(), kPythonJson));
    first = false;
  }
  out.format("\n</functions>\n");
  return {};
}

Status put_calls(const ChatMessage& message, ChatBuilder& out) {
  out.format("\n\n<｜DSML｜function_calls>\n");
  for (const ChatToolCall& call : message.tool_calls) {
    ASSIGN_OR_RETURN(const boost::json::object arguments, parse_arguments(call));
    out.format("<｜DSML｜invoke name=\"").text(call.name).format("\">\n");
    bool first = true;
    for (const auto& argument : arguments) {
      if (!first) out.format("\n");
      first = false;
      const bool is_string = argument.value().is_string();
      out.format("<｜DSML｜parameter name=\"").text({argument.key().data(), argument.key().size()});
      out.format(is_string ? "\" string=\"true\">" : "\" string=\"false\">");
      if (is_string) {
        out.text({argument.value().get_string().data(), argument.value().get_string().size()});
      } else {
        out.text(json_text(argument.value(), kPythonJson));
      }
      out.format("</｜DSML｜parameter>");
    }
    out.format("\n</｜DSML｜invoke>\n");
  }
  out.format("</｜DSML｜function_calls>");
  return {};
}

// Index of the assistant message whose calls the tool message at `index` answers.
Result<size_t> calling_message(const std::vector<ChatMessage>& messages, size_t index) {
  size_t caller = index;
  while (caller > 0 && messages[caller].role == ChatRole::kTool) --caller;
  if (messages[caller].role != ChatRole::kAssistant || messages[caller].tool_calls.size() < index - caller) {
    return Error(
        ErrorCode::kInvalidArgument,
        fmt::format("message {} is a tool result, but the assistant message before it has no call left to answer",
                    index));
  }
  return caller;
}

}  // namespace

Status render_deepseek_v32(const std::vector<ChatMessage>& messages, const ChatOptions& options, bool thinking,
                           ChatBuilder& out) {
  const int last_user = last_user_index(messages, true);
  out.format("<｜begin▁of▁sentence｜>");
  const bool starts_with_system = !messages.empty() && messages[0].role == ChatRole::kSystem;
  if (!options.tools.empty() && !starts_with_system) {
    out.format("\n\n");
    RETURN_IF_ERROR(put_tools(options.tools, out));
  }
  for (size_t i = 0; i < messages.size(); ++i) {
    const ChatMessage& message = messages[i];
    const int index = static_cast<int>(i);
    const bool last = i + 1 == messages.size();
    switch (message.role) {
      case ChatRole::kSystem: {
        out.text(message.content);
        std::vector<std::string> tools = message.tools;
        if (i == 0) tools.insert(tools.end(), options.tools.begin(), options.tools.end());
        if (!tools.empty()) {
          out.format("\n\n");
          RETURN_IF_ERROR(put_tools(tools, out));
        }
        break;
      }
      case ChatRole::kDeveloper:
      case ChatRole::kUser:
        out.format("<｜User｜>");
        if (message.role == ChatRole::kDeveloper) {
          if (message.content.empty()) {
            return Error(ErrorCode::kInvalidArgument, fmt::format("message {} (developer) has no content", i));
          }
          if (!message.tools.empty()) {
            out.format("\n\n");
            RETURN_IF_ERROR(put_tools(message.tools, out));
          }
          out.format("\n\n# The user's message is: ");
        }
        out.text(message.content);
        if (last && !options.add_generation_prompt) break;
        out.format("<｜Assistant｜>").format(thinking && index == last_user ? "<think>" : "</think>");
        break;
      case ChatRole::kTool: {
        ASSIGN_OR_RETURN(const size_t caller, calling_message(messages, i));
        const size_t order = i - caller;
        if (order == 1) out.format("\n\n<function_results>");
        out.format("\n<result>").text(message.content).format("</result>");
        if (order < messages[caller].tool_calls.size()) break;
        out.format("\n</function_results>");
        if (last && !options.add_generation_prompt) break;
        out.format("\n\n").format(thinking && index >= last_user ? "<think>" : "</think>");
        break;
      }
      case ChatRole::kAssistant:
        // The thinking block is already open here, and earlier turns have dropped theirs.
        if (thinking && index > last_user) {
          if (message.reasoning_content.value_or("").empty() && message.tool_calls.empty()) {
            return Error(
                ErrorCode::kInvalidArgument,
                fmt::format("message {} (assistant) follows the last user message, so with thinking on it needs "
                            "reasoning_content or tool_calls",
                            i));
          }
          out.text(message.reasoning_content.value_or("")).format("</think>");
        }
        out.text(message.content);
        if (!message.tool_calls.empty()) RETURN_IF_ERROR(put_calls(message, out));
        out.format("<｜end▁of▁sentence｜>");
        break;
    }
  }
  return {};
}

}  // namespace lantern
