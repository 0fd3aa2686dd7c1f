// The turns of a chat and what a user can do with them; knows neither terminal nor model.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/chat.h"

namespace lantern::cli {

struct ConversationStats {
  int64_t turns = 0;
  int64_t prompt_tokens = 0;  // of every turn, the history counted each time
  int64_t output_tokens = 0;
  double prefill_seconds = 0;
  double decode_seconds = 0;
};

struct Conversation {
  std::vector<ChatMessage> messages;
  std::optional<bool> thinking;  // unset: as the model's format does by itself
  ConversationStats stats;

  // Replaces the system message; empty takes it away.
  void set_system(std::string text);
  // Forgets all turns, keeps the system message.
  void clear();
  // A JSON array of {"role", "content"[, "reasoning_content"]}.
  std::string as_json() const;
  std::string stats_text() const;
};

// What a line of input asks for.
struct ChatCommand {
  enum class Kind { kMessage, kHelp, kSystem, kClear, kSave, kStats, kThink, kQuit };
  Kind kind = Kind::kMessage;
  std::string argument;  // the message itself; for kThink "on", "off" or "auto"
};
// A line that begins with '/' is a command, with "//" a message that begins with one '/'. Errors: an unknown command, a
// missing argument.
Result<ChatCommand> parse_chat_line(std::string_view line);
std::string chat_help();

}  // namespace lantern::cli
