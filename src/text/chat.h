// Conversations to token ids, in the formats that the model families were trained on. No template is run: each format
// is written out, and what a user wrote can never become a control token.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/tokenizer.h"

namespace lantern {

enum class ChatFormat {
  kDeepSeekV2,      // V2, V2-Lite: "User: ...\n\nAssistant:"
  kDeepSeekV3,      // V3, V3-0324, V2.5
  kDeepSeekR1,      // always thinks
  kDeepSeekV31,     // V3.1, hybrid
  kDeepSeekV32,     // V3.2, hybrid, tool calls in DSML
  kGlm45,           // GLM-4.5, 4.6, hybrid
  kGlm47,           // GLM-4.7, 4.7-Flash, 5, hybrid
  kGlm52,           // GLM-5.2, hybrid, thinks with an effort
  kKimiK2,          // Kimi-K2-Instruct
  kKimiK2Thinking,  // always thinks
  kMoonlight,
};

// "deepseek_v2", "deepseek_v3_0324", "deepseek_r1", "deepseek_v31", "deepseek_v32", "glm45", "glm47", "glm52",
// "kimi_k2", "kimi_k2_thinking", "moonlight".
std::string_view to_string(ChatFormat format);
// Also knows "glm46", "glm5" and "deepseek_v3". The error lists the names.
Result<ChatFormat> parse_chat_format(std::string_view name);

// Chooses by config.json's model_type and, where one type has several formats, by marks in the published chat template
// and in the vocabulary. Fails where they do not decide, naming the setting that does.
Result<ChatFormat> detect_chat_format(std::string_view model_type, const Tokenizer& tokenizer);

enum class ChatRole { kSystem, kDeveloper, kUser, kAssistant, kTool };
// "system", "developer", "user", "assistant", "tool".
std::string_view to_string(ChatRole role);

struct ChatToolCall {
  std::string id;  // Kimi writes it into the prompt ("functions.name:0"); the others ignore it
  std::string name;
  std::string arguments;  // the text of a JSON object
};

struct ChatMessage {
  ChatRole role = ChatRole::kUser;
  std::string content;
  // What an assistant thought. Formats drop it from turns before the last user message.
  std::optional<std::string> reasoning_content;
  std::vector<ChatToolCall> tool_calls;  // of an assistant
  std::string tool_call_id;              // of a tool result; required by Kimi
  std::string name;                      // Kimi: shown instead of the role
  // deepseek_v32 only: tools that this system or developer message declares.
  std::vector<std::string> tools;
};

// How long a model that knows the difference shall think.
enum class ReasoningEffort { kHigh, kMax };

struct ChatOptions {
  // Unset: as the format does when nothing is said. Asking a format for what it cannot do is an error.
  std::optional<bool> thinking;
  // For formats that write it (GLM-5.2, unset: the greatest); the others pass over it.
  std::optional<ReasoningEffort> effort = std::nullopt;
  // Ends the prompt where the assistant's answer begins.
  bool add_generation_prompt = true;
  // Tool definitions, each the text of a JSON object in the OpenAI form {"type": "function", "function": {...}} or of
  // the function alone.
  std::vector<std::string> tools;
};

// A control token, or text in which no token is recognised. Neighbouring text is one piece.
struct ChatPiece {
  std::string text;
  bool special = false;

  friend bool operator==(const ChatPiece&, const ChatPiece&) = default;
};

// The pieces of a prompt; needs no vocabulary. Errors: a role, tools or thinking that the format has no form for,
// arguments or tools that are no JSON objects, tool results that answer no call.
Result<std::vector<ChatPiece>> render_chat(ChatFormat format, const std::vector<ChatMessage>& messages,
                                           const ChatOptions& options);

// The prompt as one string, as a chat template would give it. Not for tokenizing: in it, control tokens and the same
// characters in user text look alike.
std::string to_text(const std::vector<ChatPiece>& pieces);

class ChatEncoder {
 public:
  // The tokenizer must outlive this. Fails if the vocabulary lacks a token that every prompt of the format needs.
  static Result<ChatEncoder> create(ChatFormat format, const Tokenizer& tokenizer);

  ChatFormat format() const { return format_; }

  // Errors: those of render_chat, and a control token that the vocabulary lacks.
  Result<std::vector<TokenId>> encode(const std::vector<ChatMessage>& messages, const ChatOptions& options) const;

  // Ids that end the assistant's turn.
  const std::vector<TokenId>& stop_ids() const { return stop_ids_; }

  // Whether text generated after such a prompt begins inside of a thinking block that the prompt opened.
  bool starts_thinking(const std::vector<ChatPiece>& pieces) const;

 private:
  ChatEncoder(ChatFormat format, const Tokenizer& tokenizer) : format_(format), tokenizer_(&tokenizer) {}

  ChatFormat format_;
  const Tokenizer* tokenizer_;
  std::vector<TokenId> stop_ids_;
};

}  // namespace lantern
