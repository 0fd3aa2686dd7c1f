#include "text/detokenizer.h"

#include "text/utf8.h"

namespace lantern {

std::string Detokenizer::add(TokenId id) {
  if (skip_special_ && tokenizer_->is_special(id)) return {};
  pending_ += tokenizer_->token_bytes(id);
  const size_t held = incomplete_utf8_tail(pending_);
  std::string text = replace_invalid_utf8(std::string_view(pending_).substr(0, pending_.size() - held));
  pending_.erase(0, pending_.size() - held);
  return text;
}

std::string Detokenizer::flush() {
  std::string text = replace_invalid_utf8(pending_);
  pending_.clear();
  return text;
}

}  // namespace lantern
