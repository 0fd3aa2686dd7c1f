// Log-probabilities in the shapes of the OpenAI API, and of vLLM where that has none. For this room's sources only.
#pragma once

#include <boost/json.hpp>

#include <cstdint>
#include <span>

#include "engine/logprobs.h"
#include "text/detokenizer.h"
#include "text/tokenizer.h"

namespace lantern {

// "logprobs" of a completion: lists by token of its text, its log-probability, the likeliest tokens of its position
// (its own among them; of tokens with the same text the likelier), and where its text begins in the choice's.
class CompletionLogprobs {
 public:
  // `skip_special`: special tokens are not in the choice's text. `as_ids`: tokens are written "token_id:N". The
  // tokenizer outlives this.
  CompletionLogprobs(const Tokenizer& tokenizer, bool skip_special, bool as_ids = false)
      : tokenizer_(tokenizer), as_ids_(as_ids), detokenizer_(tokenizer, skip_special) {}

  // An echoed prompt: `rows` are those of the tokens but the first, for which there is nothing.
  void add_prompt(std::span<const int32_t> tokens, const Logprobs& rows, int32_t top);
  void add_output(std::span<const int32_t> tokens, const Logprobs& rows, int32_t top);
  // `text` is the choice's: a stop string may have cut it.
  boost::json::object take(std::string_view text);
  // Of a stream: the lists of what was added since the last one; offsets go on.
  boost::json::object take_piece();

 private:
  void add_text(int32_t token);
  void add_row(int32_t token, const Logprobs& rows, size_t row, int32_t top);

  const Tokenizer& tokenizer_;
  bool as_ids_;
  Detokenizer detokenizer_;
  int64_t code_points_ = 0;  // of the text up to here
  boost::json::array texts_ = {}, logprobs_ = {}, top_ = {};
  std::vector<int64_t> offsets_ = {};
};

// "logprobs" of a chat's choice.
boost::json::object chat_logprobs(const Tokenizer& tokenizer, std::span<const int32_t> tokens, const Logprobs& rows,
                                  int32_t top, bool as_ids = false);

// "prompt_logprobs": null, then by token an object of token ids. `tokens` is the whole prompt.
boost::json::array prompt_logprobs(const Tokenizer& tokenizer, std::span<const int32_t> tokens, const Logprobs& rows,
                                   int32_t top);

}  // namespace lantern
