// Ids to text as they are generated.
#pragma once

#include <string>

#include "text/tokenizer.h"

namespace lantern {

// Gives text as soon as it is certain and never half a code point: the concatenation of what add and flush return
// equals Tokenizer::decode of all ids. One per sequence.
class Detokenizer {
 public:
  // The tokenizer must outlive this.
  explicit Detokenizer(const Tokenizer& tokenizer, bool skip_special = true)
      : tokenizer_(&tokenizer), skip_special_(skip_special) {
    pending_.reserve(kLongToken);
  }

  // The text that this id makes certain; may be empty.
  std::string add(TokenId id);
  // The same, behind what `text` has.
  void add_to(TokenId id, std::string& text);

  // What is still held back (an unfinished code point becomes U+FFFD). Ready for another sequence afterwards.
  std::string flush();

  // Bytes held back, at most three.
  const std::string& pending() const { return pending_; }

 private:
  static constexpr size_t kLongToken = 128;  // bytes; no allocation for tokens up to that

  const Tokenizer* tokenizer_;
  bool skip_special_;
  std::string pending_;
};

}  // namespace lantern
