#include "engine/output_text.h"

#include <algorithm>

namespace lantern {

OutputText::OutputText(const Tokenizer& tokenizer, const OutputTextRules& rules)
    : detokenizer_(tokenizer, rules.skip_special_tokens),
      stop_(rules.stop),
      stop_token_ids_(rules.stop_token_ids),
      include_stop_(rules.include_stop),
      min_tokens_(rules.min_tokens) {
  constexpr size_t kLongToken = 128;  // bytes
  piece_.reserve(kLongToken);
}

std::string OutputText::add(int32_t token) {
  std::string text;
  take(token, &text);
  return text;
}

void OutputText::take(int32_t token, std::string* text) {
  if (stopped() || stop_token_ >= 0) return;
  ++count_;
  if (count_ >= min_tokens_ && std::ranges::find(stop_token_ids_, token) != stop_token_ids_.end()) {
    stop_token_ = token;
    if (!include_stop_) return;
  }
  piece_.clear();
  detokenizer_.add_to(token, piece_);
  if (count_ <= min_tokens_) {
    if (text != nullptr) *text += piece_;
    return;
  }
  stop_.feed_to(piece_, text);
  if (text != nullptr && stopped() && include_stop_) *text += stop_.matched();
}

std::string OutputText::finish() {
  if (stopped()) return {};
  std::string text = stop_.feed(detokenizer_.flush());
  if (stopped()) return include_stop_ ? text + std::string(stop_.matched()) : text;
  return text + stop_.flush();
}

}  // namespace lantern
