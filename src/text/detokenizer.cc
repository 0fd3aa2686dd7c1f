#include "text/detokenizer.h"

#include "text/utf8.h"

namespace lantern {

std::string Detokenizer::add(TokenId id) {
  std::string text;
  add_to(id, text);
  return text;
}

void Detokenizer::add_to(TokenId id, std::string& text) {
  if (skip_special_ && tokenizer_->is_special(id)) return;
  pending_ += tokenizer_->token_bytes(id);
  const size_t held = incomplete_utf8_tail(pending_);
  append_valid_utf8(text, std::string_view(pending_).substr(0, pending_.size() - held));
  pending_.erase(0, pending_.size() - held);
}

std::string Detokenizer::flush() {
  std::string text = replace_invalid_utf8(pending_);
  pending_.clear();
  return text;
}

}  // namespace lantern
