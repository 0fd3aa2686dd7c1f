#include "engine/stop_strings.h"

#include <algorithm>

namespace lantern {

StopStrings::StopStrings(std::vector<std::string> strings) : strings_(std::move(strings)) {
  std::erase_if(strings_, [](const std::string& string) { return string.empty(); });
  // What is held back, and a token behind it.
  size_t longest = 0;
  for (const std::string& string : strings_) longest = std::max(longest, string.size());
  held_.reserve(longest + 128);
}

std::string StopStrings::feed(std::string_view text) {
  std::string out;
  feed_to(text, &out);
  return out;
}

void StopStrings::feed_to(std::string_view text, std::string* out) {
  if (stopped()) return;
  held_ += text;
  size_t best_end = std::string::npos;
  size_t best_begin = 0;
  for (const std::string& string : strings_) {
    const size_t begin = held_.find(string);
    if (begin == std::string::npos) continue;
    const size_t end = begin + string.size();
    if (end < best_end || (end == best_end && begin < best_begin)) {
      best_end = end;
      best_begin = begin;
      matched_ = &string;
    }
  }
  const size_t certain = stopped() ? best_begin : held_.size() - partial_match_bytes();
  if (out != nullptr) out->append(held_, 0, certain);
  held_.erase(0, certain);
  if (stopped()) held_.clear();
}

std::string StopStrings::flush() {
  std::string out;
  out.swap(held_);
  return out;
}

size_t StopStrings::partial_match_bytes() const {
  size_t longest = 0;
  for (const std::string& string : strings_) {
    for (size_t length = std::min(string.size() - 1, held_.size()); length > longest; --length) {
      if (std::string_view(held_).ends_with(std::string_view(string).substr(0, length))) longest = length;
    }
  }
  return longest;
}

}  // namespace lantern
