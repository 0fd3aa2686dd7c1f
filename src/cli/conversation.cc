#include "cli/conversation.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/command.h"
#include "cli/json_writer.h"

namespace lantern::cli {
namespace {

enum class Argument { kNone, kOptional, kRequired };

struct CommandForm {
  std::string_view name;
  ChatCommand::Kind kind;
  Argument argument;
  std::string_view usage;
  std::string_view help;
};

constexpr CommandForm kForms[] = {
    {"/help", ChatCommand::Kind::kHelp, Argument::kNone, "/help", "this list"},
    {"/system", ChatCommand::Kind::kSystem, Argument::kOptional, "/system TEXT",
     "replace the system message; without TEXT take it away"},
    {"/clear", ChatCommand::Kind::kClear, Argument::kNone, "/clear",
     "forget the conversation, keep the system message"},
    {"/save", ChatCommand::Kind::kSave, Argument::kRequired, "/save FILE", "write the conversation as JSON"},
    {"/stats", ChatCommand::Kind::kStats, Argument::kNone, "/stats", "tokens and speed so far"},
    {"/think", ChatCommand::Kind::kThink, Argument::kRequired, "/think on|off|auto",
     "whether the model thinks before it answers"},
    {"/quit", ChatCommand::Kind::kQuit, Argument::kNone, "/quit", "end (so does Ctrl-D)"},
};

double rate(int64_t tokens, double seconds) { return seconds > 0 ? static_cast<double>(tokens) / seconds : 0; }

}  // namespace

void Conversation::set_system(std::string text) {
  if (!messages.empty() && messages.front().role == ChatRole::kSystem) messages.erase(messages.begin());
  if (text.empty()) return;
  ChatMessage message;
  message.role = ChatRole::kSystem;
  message.content = std::move(text);
  messages.insert(messages.begin(), std::move(message));
}

void Conversation::clear() {
  std::erase_if(messages, [](const ChatMessage& message) { return message.role != ChatRole::kSystem; });
}

std::string Conversation::as_json() const {
  JsonWriter json;
  json.begin_array();
  for (const ChatMessage& message : messages) {
    json.begin_object().field("role", to_string(message.role)).field("content", message.content);
    if (message.reasoning_content) json.field("reasoning_content", *message.reasoning_content);
    json.end_object();
  }
  return json.end_array().take();
}

std::string Conversation::stats_text() const {
  return fmt::format("{} turn{}; prompts {} tokens, {:.1f} tokens/s; answers {} tokens, {:.1f} tokens/s", stats.turns,
                     stats.turns == 1 ? "" : "s", stats.prompt_tokens, rate(stats.prompt_tokens, stats.prefill_seconds),
                     stats.output_tokens,
                     rate(std::max<int64_t>(stats.output_tokens - stats.turns, 0), stats.decode_seconds));
}

Result<ChatCommand> parse_chat_line(std::string_view line) {
  if (!line.starts_with("/")) return ChatCommand{ChatCommand::Kind::kMessage, std::string(line)};
  if (line.starts_with("//")) return ChatCommand{ChatCommand::Kind::kMessage, std::string(line.substr(1))};
  const size_t space = std::min(line.find(' '), line.size());
  const std::string_view name = line.substr(0, space);
  std::string_view argument = line.substr(space);
  argument.remove_prefix(std::min(argument.find_first_not_of(' '), argument.size()));
  while (argument.ends_with(' ')) argument.remove_suffix(1);
  std::vector<std::string> names;
  for (const CommandForm& form : kForms) {
    names.emplace_back(form.name);
    if (form.name != name) continue;
    if ((form.argument == Argument::kRequired && argument.empty()) ||
        (form.argument == Argument::kNone && !argument.empty()) ||
        (form.kind == ChatCommand::Kind::kThink && argument != "on" && argument != "off" && argument != "auto")) {
      return Error(ErrorCode::kInvalidArgument, fmt::format("say {}", form.usage));
    }
    return ChatCommand{form.kind, std::string(argument)};
  }
  const std::optional<std::string> meant = closest(name, names);
  return Error(ErrorCode::kInvalidArgument,
               meant ? fmt::format("there is no {}, did you mean {}?", name, *meant)
                     : fmt::format("there is no {}; /help lists the commands, // begins a message with a slash", name));
}

std::string chat_help() {
  std::string text;
  for (const CommandForm& form : kForms) text += fmt::format("  {:<20} {}\n", form.usage, form.help);
  return text +
         "  //text               a message that begins with a slash\n"
         "  Ctrl-C               stop the answer; drop the line; at an empty line, end\n";
}

}  // namespace lantern::cli
