// One choice's tokens to the text that its reader sees: whole code points, nothing of a stop string, no stop token.
// The engine thread runs it to find a stop string, the delivery thread to make the text; both see the same tokens and
// so end at the same one.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/stop_strings.h"
#include "text/detokenizer.h"

namespace lantern {

struct OutputTextRules {
  std::vector<std::string> stop;
  bool include_stop = false;        // what ended the text is part of it
  bool skip_special_tokens = true;  // special tokens give no text
  std::vector<int32_t> stop_token_ids = {};
  int32_t min_tokens = 0;  // neither a stop token nor a stop string ends the text among so many tokens
};

class OutputText {
 public:
  // The tokenizer must outlive this.
  OutputText(const Tokenizer& tokenizer, const OutputTextRules& rules);

  // The text that this token makes certain; may be empty.
  std::string add(int32_t token);
  // The same for who wants to know where the text ends alone; allocates nothing.
  void look_at(int32_t token) { take(token, nullptr); }
  // The rest, once no token follows.
  std::string finish();

  // A stop string was met: nothing follows.
  bool stopped() const { return stop_.stopped(); }
  std::string_view matched() const { return stop_.matched(); }
  // The token that ended the text, or -1.
  int32_t stop_token() const { return stop_token_; }

 private:
  void take(int32_t token, std::string* text);

  Detokenizer detokenizer_;
  StopStrings stop_;
  std::string piece_;  // what the last token added, before stop strings
  std::vector<int32_t> stop_token_ids_;
  bool include_stop_;
  int32_t min_tokens_;
  int32_t count_ = 0;
  int32_t stop_token_ = -1;
};

}  // namespace lantern
