// Answers of the OpenAI API in pieces: server-sent events.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "server/openai_response.h"

namespace lantern {

// "data: TEXT\n\n"; `text` is one line.
std::string sse_event(std::string_view text);
inline constexpr std::string_view kSseDone = "data: [DONE]\n\n";

// The events of a request's choices, as outputs come.
class AnswerStream {
 public:
  virtual ~AnswerStream() = default;
  // Adds the events that `output` makes, behind the last output those that end the stream. Nothing comes after an
  // error.
  virtual void add(size_t prompt, Output&& output, std::vector<std::string>& events) = 0;
  // Ends the stream.
  virtual void add_error(const OpenAiError& error, std::vector<std::string>& events) = 0;
  // All was said.
  virtual bool complete() const = 0;
  virtual OpenAiUsage usage() const = 0;
  virtual std::string_view outcome() const = 0;  // "stop", "length" or "error", for logs
};

struct OpenAiStreamSettings {
  std::string id;  // without prefix
  int64_t created = 0;
  std::string model;
  std::string reasoning_field = "reasoning_content";
  int32_t interval = 1;  // tokens of a choice in one event, but for the first and the last
};

// For a chat: the role with what the first token gives, then text,
// then an empty delta with finish_reason; for both kinds, where the client wants it, an event with usage alone.
class OpenAiStreamer final : public AnswerStream {
 public:
  // The tokenizer outlives this.
  OpenAiStreamer(const OpenAiRequest& request, const Tokenizer& tokenizer, OpenAiStreamSettings settings);
  ~OpenAiStreamer() override;

  void add(size_t prompt, Output&& output, std::vector<std::string>& events) override;
  void add_error(const OpenAiError& error, std::vector<std::string>& events) override;
  bool complete() const override { return complete_; }
  OpenAiUsage usage() const override;
  std::string_view outcome() const override { return outcome_; }

 private:
  struct Choice;
  struct Prompt;

  void add_chunks(Prompt& prompt, Choice& choice, std::vector<std::string>& events);
  std::string chunk(Choice& choice, std::string_view body, std::string_view logprobs, std::string_view finish,
                    const Output* last) const;
  std::string tail(bool with_choices) const;
  std::string logprobs_of(const Prompt& prompt, Choice& choice) const;
  void end(std::vector<std::string>& events);

  OpenAiEndpoint endpoint_;
  const Tokenizer& tokenizer_;
  OpenAiStreamSettings settings_;
  std::string head_;  // of every event, up to the choices
  std::vector<int32_t> stop_token_ids_;
  bool include_usage_;
  bool continuous_usage_;
  bool include_reasoning_;
  bool return_token_ids_;
  bool return_drafted_;
  bool return_selections_;
  bool tokens_as_ids_;
  bool echoes_;
  bool hides_output_;
  int32_t logprobs_;
  std::vector<Prompt> prompts_;
  int64_t open_ = 0;
  bool complete_ = false;
  std::string_view outcome_ = "stop";
};

}  // namespace lantern
