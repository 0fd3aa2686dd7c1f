// Answers of the OpenAI API, whole ones.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "server/answer_reader.h"
#include "server/openai_request.h"
#include "server/openai_selections.h"

namespace lantern {

struct OpenAiUsage {
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
  int64_t cached_tokens = 0;     // of the prompt
  int64_t reasoning_tokens = 0;  // of the completion
  int64_t longest_choice = 0;    // tokens of the choice that has the most
};

// What came of one choice.
struct OpenAiChoice {
  AnswerReader reader;
  ParsedOutput answer = {};
  std::vector<int32_t> tokens = {};   // where they are told: with logprobs, or asked for
  std::vector<int32_t> drafted = {};  // places of tokens that drafts had foretold
  Logprobs logprobs = {};
  ToldSelections selections;
  EndReason end_reason = EndReason::kNone;
  std::string stop_string = {};
  int32_t stop_token = -1;
  std::string error = {};

  void add(const Output& output, bool keep_tokens);
};

// The choices of an OpenAiRequest, as outputs come.
class OpenAiCollector {
 public:
  // The tokenizer outlives this.
  OpenAiCollector(const OpenAiRequest& request, const Tokenizer& tokenizer);

  // `prompt` is an index into OpenAiRequest::prompts.
  void add(size_t prompt, const Output& output);
  bool complete() const { return open_ == 0; }
  int64_t completion_tokens() const { return usage().completion_tokens; }
  OpenAiUsage usage() const;
  // "stop", "length" or "error": how the answer as a whole ended, for logs.
  std::string_view outcome() const;

  // The answer's body, or what went wrong with one of the choices (failed, out of time, cancelled). `id` is without
  // prefix; `created` in seconds since 1970; `reasoning_field` is what a message's thinking is called.
  std::variant<std::string, OpenAiError> body(const std::string& id, int64_t created, const std::string& model,
                                              const std::string& reasoning_field = "reasoning_content") const;

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
  bool include_reasoning_;
  bool return_token_ids_;
  bool return_drafted_;
  bool return_selections_;
  bool tokens_as_ids_;
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
