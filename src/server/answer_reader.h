// One choice's output, told apart while it comes: thinking, answer and tool calls. Completions are passed on as they
// are.
#pragma once

#include <cstdint>
#include <optional>

#include "engine/engine.h"
#include "server/openai_request.h"
#include "text/output_parser.h"

namespace lantern {

class AnswerReader {
 public:
  AnswerReader(const OpenAiRequest& request, const Tokenizer& tokenizer);

  // With the choice's last output also what was held back.
  OutputDelta push(const Output& output);
  int64_t tokens() const { return tokens_; }
  int64_t reasoning_tokens() const { return reasoning_tokens_; }  // the one that ends the thinking among them
  bool has_calls() const { return parser_ && parser_->num_calls() > 0; }

 private:
  std::optional<OutputParser> parser_;  // of a chat
  std::optional<TokenId> end_of_thinking_;
  int64_t tokens_ = 0;
  int64_t reasoning_tokens_ = 0;
};

}  // namespace lantern
