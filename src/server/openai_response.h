// Answers of the OpenAI API, whole ones.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "server/openai_request.h"

namespace lantern {

// What came of one choice.
struct OpenAiChoice {
  std::string text;
  int32_t completion_tokens = 0;
  std::vector<int32_t> tokens;  // with logprobs alone
  Logprobs logprobs;
  EndReason end_reason = EndReason::kNone;
  std::string stop_string;
  int32_t stop_token = -1;
  std::string error;

  void add(const Output& output);
};

// The choices of an OpenAiRequest, as outputs come.
class OpenAiCollector {
 public:
  // The tokenizer outlives this.
  OpenAiCollector(const OpenAiRequest& request, const Tokenizer& tokenizer);

  // `prompt` is an index into OpenAiRequest::prompts.
  void add(size_t prompt, const Output& output);
  bool complete() const { return open_ == 0; }
  int64_t completion_tokens() const;

  // The answer's body, or what went wrong with one of the choices (failed, out of time, cancelled). `id` is without
  // prefix; `created` in seconds since 1970.
  std::variant<std::string, OpenAiError> body(const std::string& id, int64_t created, const std::string& model) const;

 private:
  struct Prompt {
    int32_t prompt_tokens = 0;
    int32_t cached_tokens = 0;
    std::string echo;
    bool skip_special_tokens = true;
    std::vector<int32_t> tokens;  // with logprobs alone
    Logprobs logprobs;
    std::vector<OpenAiChoice> choices;
  };
  OpenAiEndpoint endpoint_;
  const Tokenizer& tokenizer_;
  bool starts_thinking_;
  bool hides_output_;
  int32_t logprobs_;
  int32_t prompt_logprobs_;
  bool echoes_;
  std::vector<int32_t> stop_token_ids_;  // that the client named
  std::vector<Prompt> prompts_;
  int64_t open_ = 0;
};

// {"error": {...}}
std::string openai_error_body(const OpenAiError& error);

}  // namespace lantern
