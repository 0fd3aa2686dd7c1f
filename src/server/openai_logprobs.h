// Log-probabilities in the shapes of the OpenAI API, and of vLLM where that has none. For this room's sources only.
#pragma once

#include <boost/json.hpp>

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>

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

// Of an answer's text in pieces: which tokens it came of. What was thought, calls of tools and the marks around both
// are tokens too, but none of the text.
class TextLogprobs {
 public:
  // `top`: as chat_logprobs. The tokenizer outlives this.
  TextLogprobs(const Tokenizer& tokenizer, int32_t top, bool as_ids)
      : tokenizer_(tokenizer), top_(top), as_ids_(as_ids) {}

  // Tokens whose text has come, or will.
  void add(std::span<const int32_t> tokens, const Logprobs& rows);
  // Of the text that comes next: entries as those of chat_logprobs. Text that begins or ends within a token has it
  // once, with its beginning.
  boost::json::array take(std::string_view text);
  // What was added and not taken is none of the text.
  void drop() { entries_.clear(); }

 private:
  struct Entry {
    std::string bytes;
    boost::json::value told;
  };
  const Tokenizer& tokenizer_;
  int32_t top_;
  bool as_ids_;
  std::deque<Entry> entries_ = {};
  std::string rest_ = {};  // of the last one's bytes: text that has not come yet
};

// "prompt_logprobs": null, then by token an object of token ids. `tokens` is the whole prompt.
boost::json::array prompt_logprobs(const Tokenizer& tokenizer, std::span<const int32_t> tokens, const Logprobs& rows,
                                   int32_t top);

}  // namespace lantern
