// Anthropic's Messages API on top of chats: https://docs.anthropic.com/en/api/messages
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "server/openai_stream.h"

namespace lantern {

// The body of POST /v1/messages as one of POST /v1/chat/completions, or what is wrong with it. `answered`: there is to
// be an answer; a conversation whose tokens are counted alone may end with one.
std::variant<std::string, OpenAiError> chat_of_messages(std::string_view body, bool answered = true);
// What is wrong with the chat, by the name of the field of messages that it came from.
OpenAiError message_error_of(OpenAiError error);
// The answer to a chat as one to messages.
std::string messages_of_chat(std::string_view chat_body);
// {"type": "error", "error": {...}}
std::string anthropic_error_body(const OpenAiError& error);
// "invalid_request_error", ...
std::string_view anthropic_error_type(int32_t status);

// A message with blocks of thinking, text and tool use.
class MessagesStreamer final : public AnswerStream {
 public:
  // The tokenizer outlives this.
  MessagesStreamer(const OpenAiRequest& request, const Tokenizer& tokenizer, std::string id, std::string model);

  void add(size_t prompt, Output&& output, std::vector<std::string>& events) override;
  void add_error(const OpenAiError& error, std::vector<std::string>& events) override;
  bool complete() const override { return complete_; }
  OpenAiUsage usage() const override;
  std::string_view outcome() const override { return outcome_; }

 private:
  enum class Block : uint8_t { kNone, kThinking, kText, kTool };
  void open(Block block, std::string_view start, std::vector<std::string>& events);
  void close(std::vector<std::string>& events);
  void add_delta(std::string_view delta, std::vector<std::string>& events);

  std::string id_;
  std::string model_;
  AnswerReader reader_;
  int64_t prompt_tokens_ = 0;
  int64_t cached_tokens_ = 0;
  Block block_ = Block::kNone;
  int32_t blocks_ = 0;  // opened
  int32_t calls_ = 0;   // tool calls that have begun
  bool began_ = false;
  bool complete_ = false;
  std::string_view outcome_ = "stop";
};

}  // namespace lantern
