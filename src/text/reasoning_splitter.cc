#include "text/reasoning_splitter.h"

#include <algorithm>

namespace lantern {
namespace {

constexpr std::string_view kOpen = "<think>";
constexpr std::string_view kClose = "</think>";

// Length of the longest end of `text` that a tag begins with, the whole tag excepted.
size_t partial_tag(std::string_view text, std::string_view tag) {
  for (size_t size = std::min(text.size(), tag.size() - 1); size > 0; --size) {
    if (text.ends_with(tag.substr(0, size))) return size;
  }
  return 0;
}

}  // namespace

ReasoningSplitter::Delta ReasoningSplitter::add(std::string_view text) {
  Delta delta;
  held_ += text;
  if (state_ == State::kStart) {
    const size_t begin = std::min(held_.find_first_not_of(" \t\r\n"), held_.size());
    const std::string_view visible = std::string_view(held_).substr(begin);
    if (visible.starts_with(kOpen)) {
      held_.erase(0, begin + kOpen.size());
      state_ = State::kThinking;
    } else if (kOpen.starts_with(visible)) {
      return delta;  // nothing yet, or a part of the tag
    } else {
      state_ = State::kContent;
    }
  }
  if (state_ == State::kThinking) {
    const size_t close = held_.find(kClose);
    if (close == std::string::npos) {
      const size_t certain = held_.size() - partial_tag(held_, kClose);
      delta.reasoning = held_.substr(0, certain);
      held_.erase(0, certain);
      return delta;
    }
    delta.reasoning = held_.substr(0, close);
    held_.erase(0, close + kClose.size());
    state_ = State::kContent;
  }
  delta.content = std::move(held_);
  held_.clear();
  return delta;
}

ReasoningSplitter::Delta ReasoningSplitter::flush() {
  Delta delta;
  (state_ == State::kThinking ? delta.reasoning : delta.content) = std::move(held_);
  held_.clear();
  return delta;
}

}  // namespace lantern
