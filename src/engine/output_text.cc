#include "engine/output_text.h"

#include <algorithm>

namespace lantern {

OutputText::OutputText(const Tokenizer& tokenizer, const OutputTextRules& rules)
    : detokenizer_(tokenizer, rules.skip_special_tokens),
      stop_(rules.stop),
      stop_token_ids_(rules.stop_token_ids),
      include_stop_(rules.include_stop),
      min_tokens_(rules.min_tokens) {}

std::string OutputText::add(int32_t token) {
  if (stopped() || stop_token_ >= 0) return {};
  ++count_;
  if (count_ >= min_tokens_ && std::ranges::find(stop_token_ids_, token) != stop_token_ids_.end()) {
    stop_token_ = token;
    if (!include_stop_) return {};
  }
  std::string text = detokenizer_.add(token);
  if (count_ <= min_tokens_) return text;
  text = stop_.feed(text);
  if (stopped() && include_stop_) text += stop_.matched();
  return text;
}

std::string OutputText::finish() {
  if (stopped()) return {};
  std::string text = stop_.feed(detokenizer_.flush());
  if (stopped()) return include_stop_ ? text + std::string(stop_.matched()) : text;
  return text + stop_.flush();
}

}  // namespace lantern
