#include "text/chat.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>

#include "cli/command.h"
#include "cli/console.h"
#include "cli/conversation.h"
#include "cli/line_editor.h"
#include "cli/model_access.h"
#include "text/detokenizer.h"
#include "text/output_parser.h"

namespace lantern::cli {
namespace {

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
  // Model and encoder must outlive this.
  Chat(LoadedModel& model, const ChatEncoder& encoder, SamplingSettings sampling, int64_t max_tokens, bool quiet)
      : model_(model), encoder_(encoder), sampling_(sampling), max_tokens_(max_tokens), quiet_(quiet) {}

  Conversation& conversation() { return conversation_; }

  // One answer to everything said so far; an interrupt ends it, and what was said of it stays. On an error, or when not
  // a token of an answer was made, the last message is taken back.
  Status answer(const std::string& said) {
    ChatMessage message;
    message.content = said;
    conversation_.messages.push_back(std::move(message));
    Result<bool> answered = generate();
    if (!answered.ok() || !*answered) conversation_.messages.pop_back();
    return answered.ok() ? Status() : Status(std::move(answered).error());
  }

 private:
  // False: interrupted before the answer began.
  Result<bool> generate() {
    const ChatOptions options{.thinking = conversation_.thinking, .add_generation_prompt = true, .tools = {}};
    ASSIGN_OR_RETURN(const std::vector<ChatPiece> pieces,
                     render_chat(encoder_.format(), conversation_.messages, options));
    GenerateRequest request;
    ASSIGN_OR_RETURN(request.prompt, encoder_.encode(conversation_.messages, options));
    request.sampling = sampling_;
    const int64_t room = model_.session->max_model_len() - static_cast<int64_t>(request.prompt.size());
    request.max_tokens = static_cast<int32_t>(std::clamp<int64_t>(room, 1, max_tokens_));

    Detokenizer detokenizer(model_.tokenizer, /*skip_special=*/false);
    OutputParser parser(encoder_.format(), {.starts_thinking = encoder_.starts_thinking(pieces)});
    AnswerPrinter printer;
    ParsedOutput whole;
    const auto take = [&](const OutputDelta& delta) {
      whole.add(delta);
      printer.show(delta);
    };
    const std::vector<TokenId>& stops = encoder_.stop_ids();
    std::optional<Progress> progress;
    progress.emplace("prompt", static_cast<int64_t>(request.prompt.size()), quiet_);
    const auto on_token = [&](int32_t token) {
      progress.reset();
      if (std::find(stops.begin(), stops.end(), token) != stops.end()) return Session::Continue::kStop;
      take(parser.push(detokenizer.add(token)));
      return interrupted() || output_lost() ? Session::Continue::kCancel : Session::Continue::kYes;
    };
    const auto on_prefill = [&](int64_t done) {
      progress->update(done);
      return !interrupted();
    };
    ASSIGN_OR_RETURN(const GenerateResult result, model_.session->generate(request, on_token, on_prefill));
    progress.reset();
    if (result.finish_reason == FinishReason::kCancelled && result.tokens.empty()) {
      print_notice("(stopped before the answer began; the message is taken back)");
      return false;
    }
    take(parser.push(detokenizer.flush()));
    take(parser.finish());
    write_text("\n");
    if (result.finish_reason == FinishReason::kLength) {
      print_notice(fmt::format("(cut off after {} tokens)", result.tokens.size()));
    } else if (result.finish_reason == FinishReason::kCancelled) {
      print_notice("(stopped)");
    }

    ChatMessage reply;
    reply.role = ChatRole::kAssistant;
    reply.content = whole.content;
    if (!whole.reasoning.empty()) reply.reasoning_content = whole.reasoning;
    conversation_.messages.push_back(std::move(reply));
    ConversationStats& stats = conversation_.stats;
    ++stats.turns;
    stats.prompt_tokens += static_cast<int64_t>(request.prompt.size());
    stats.output_tokens += static_cast<int64_t>(result.tokens.size());
    stats.prefill_seconds += result.prefill_seconds;
    stats.decode_seconds += result.decode_seconds;
    return true;
  }

  LoadedModel& model_;
  const ChatEncoder& encoder_;
  SamplingSettings sampling_;
  int64_t max_tokens_;
  bool quiet_;
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

Result<int> run_chat(const Values& values) {
  ASSIGN_OR_RETURN(LoadedModel model, load_model(values, false, true));
  const std::string& name = values.text("chat-format");
  ASSIGN_OR_RETURN(const ChatFormat format,
                   name == "auto" ? detect_chat_format(model.session->config().model_type, model.tokenizer)
                                  : parse_chat_format(name));
  ASSIGN_OR_RETURN(const ChatEncoder encoder, ChatEncoder::create(format, model.tokenizer));
  ASSIGN_OR_RETURN(const SamplingSettings sampling, sampling_settings(values, model.name));
  const int64_t max_tokens = values.given("max-tokens") ? values.integer("max-tokens") : model.session->max_model_len();
  const bool quiet = values.is_on("quiet");
  Chat chat(model, encoder, sampling, max_tokens, quiet);
  chat.conversation().set_system(values.text("system"));
  if (values.given("think")) chat.conversation().thinking = values.is_on("think");

  if (!quiet) print_notice(fmt::format("{} ({} format); /help lists the commands", model.name, to_string(format)));
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
