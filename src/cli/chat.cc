#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>

#include "cli/chat_partner.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/conversation.h"
#include "cli/line_editor.h"

namespace lantern::cli {
namespace {

// With --url it is the server that decides these.
constexpr std::string_view kOfAModelHere[] = {
    "model",        "device",        "threads",  "kv-cache-dtype", "max-model-len",    "chat-format", "drafter",
    "draft-tokens", "strict-config", "mla-form", "graphs",         "explain-dispatch", "require-impl"};

constexpr std::string_view kOfAServer[] = {"api-key", "served-model-name"};

// Shows thinking dimmed on a terminal, and a blank line between it and the answer.
class AnswerPrinter {
 public:
  void show(const OutputDelta& delta) {
    if (!delta.reasoning.empty()) {
      write_text(stdout_is_terminal() ? fmt::format("\033[2m{}\033[0m", delta.reasoning) : delta.reasoning);
      reasoned_ = true;
    }
    std::string_view content = delta.content;
    if (content.empty()) return;
    if (reasoned_) {
      // Models end the thinking block with line breaks of their own.
      content.remove_prefix(std::min(content.find_first_not_of('\n'), content.size()));
      if (content.empty()) return;
      write_text("\n\n");
      reasoned_ = false;
    }
    write_text(content);
  }

 private:
  bool reasoned_ = false;
};

class Chat {
 public:
  explicit Chat(std::unique_ptr<ChatPartner> partner) : partner_(std::move(partner)) {}

  Conversation& conversation() { return conversation_; }
  std::string partner_name() const { return partner_->name(); }

  // One answer to everything said so far; an interrupt ends it, and what was said of it stays. On an error, or when not
  // a token of an answer was made, the last message is taken back.
  Status answer(const std::string& said) {
    ChatMessage message;
    message.content = said;
    conversation_.messages.push_back(std::move(message));
    AnswerPrinter printer;
    Result<ChatReply> reply = partner_->answer(conversation_, [&](const OutputDelta& delta) { printer.show(delta); });
    if (!reply.ok() || reply->end == ChatReply::End::kNeverBegan) conversation_.messages.pop_back();
    if (!reply.ok()) return std::move(reply).error();
    if (reply->end == ChatReply::End::kNeverBegan) {
      print_notice("(stopped before the answer began; the message is taken back)");
      return {};
    }
    write_text("\n");
    if (reply->end == ChatReply::End::kLength) {
      print_notice(fmt::format("(cut off after {} tokens)", reply->output_tokens));
    } else if (reply->end == ChatReply::End::kFull) {
      print_notice(
          fmt::format("(cut off after {} tokens: the context is full; /clear begins anew)", reply->output_tokens));
    } else if (reply->end == ChatReply::End::kStopped) {
      print_notice("(stopped)");
    }
    take(std::move(*reply));
    return {};
  }

 private:
  void take(ChatReply&& reply) {
    ChatMessage message;
    message.role = ChatRole::kAssistant;
    message.content = std::move(reply.said.content);
    if (!reply.said.reasoning.empty()) message.reasoning_content = std::move(reply.said.reasoning);
    conversation_.messages.push_back(std::move(message));
    ConversationStats& stats = conversation_.stats;
    ++stats.turns;
    stats.prompt_tokens += reply.prompt_tokens;
    stats.output_tokens += reply.output_tokens;
    stats.prefill_seconds += reply.prefill_seconds;
    stats.decode_seconds += reply.decode_seconds;
  }

  std::unique_ptr<ChatPartner> partner_;
  Conversation conversation_;
};

Status save(const Conversation& conversation, const std::string& path) {
  std::ofstream file(path);
  file << conversation.as_json() << "\n";
  file.close();
  if (!file) return Error(ErrorCode::kIo, fmt::format("{}: cannot be written: {}", path, std::strerror(errno)));
  print_notice(fmt::format("{} messages written to {}", conversation.messages.size(), path));
  return {};
}

// False: the user wants to leave.
Result<bool> obey(const ChatCommand& command, Chat& chat) {
  Conversation& conversation = chat.conversation();
  switch (command.kind) {
    case ChatCommand::Kind::kMessage:
      if (!command.argument.empty()) RETURN_IF_ERROR(chat.answer(command.argument));
      return true;
    case ChatCommand::Kind::kHelp: write_text(chat_help()); return true;
    case ChatCommand::Kind::kSystem: conversation.set_system(command.argument); return true;
    case ChatCommand::Kind::kClear: conversation.clear(); return true;
    case ChatCommand::Kind::kSave: RETURN_IF_ERROR(save(conversation, command.argument)); return true;
    case ChatCommand::Kind::kStats: write_text(conversation.stats_text() + "\n"); return true;
    case ChatCommand::Kind::kThink:
      conversation.thinking = command.argument == "auto" ? std::nullopt : std::optional(command.argument == "on");
      return true;
    case ChatCommand::Kind::kQuit: return false;
  }
  return true;
}

}  // namespace

Status check_chat(const Values& values) {
  const auto asked = [&](std::string_view name) { return values.origin(name) == Values::Origin::kCommandLine; };
  for (const std::string_view name : kOfAModelHere) {
    if (!values.given("url") || !asked(name)) continue;
    return Error(
        ErrorCode::kInvalidArgument,
        fmt::format("--{} is for a model in this process, and with --url a server has it; leave one of them out{}",
                    name, name == "model" ? ", or name the server's model by --served-model-name" : ""));
  }
  for (const std::string_view name : kOfAServer) {
    if (values.given("url") || !asked(name)) continue;
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("--{} is for a server; name it with --url, or leave the flag out", name));
  }
  return {};
}

Result<int> run_chat(const Values& values) {
  const bool quiet = values.is_on("quiet");
  ASSIGN_OR_RETURN(std::unique_ptr<ChatPartner> partner,
                   values.given("url") ? remote_partner(values) : local_partner(values));
  Chat chat(std::move(partner));
  chat.conversation().set_system(values.text("system"));
  if (values.given("think")) chat.conversation().thinking = values.is_on("think");

  if (!quiet) print_notice(fmt::format("{}; /help lists the commands", chat.partner_name()));
  LineEditor editor;
  // Ctrl-C ends an answer or throws a line away; at an empty line it leaves, as any other signal does anywhere.
  const auto must_leave = [&] { return !editor.interactive() || interrupt_exit_code() != kInterrupted; };
  while (true) {
    const LineEditor::Line line = editor.read("> ");
    if (line.end_of_input) break;
    if (line.interrupted) {
      if (line.text.empty() || must_leave()) break;
      clear_interrupt();
      continue;
    }
    Result<ChatCommand> command = parse_chat_line(line.text);
    Result<bool> go_on = command.ok() ? obey(*command, chat) : Result<bool>(std::move(command).error());
    if (!go_on.ok()) {
      print_error(go_on.error().message());
    } else if (!*go_on) {
      break;
    }
    if (output_lost()) break;
    if (interrupted()) {
      if (must_leave()) break;
      clear_interrupt();
    }
  }
  if (!quiet && chat.conversation().stats.turns > 0) print_notice(chat.conversation().stats_text());
  return interrupted() ? interrupt_exit_code() : static_cast<int>(kSuccess);
}

}  // namespace lantern::cli
