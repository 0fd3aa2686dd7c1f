#include "engine/logprobs.h"

#include <algorithm>

#include "base/check.h"

namespace lantern {

void Logprobs::reserve(size_t rows) {
  logprobs.reserve(rows);
  ranks.reserve(rows);
  top_tokens.reserve(rows * static_cast<size_t>(width));
  top_logprobs.reserve(rows * static_cast<size_t>(width));
}

void Logprobs::resize(size_t rows) {
  logprobs.resize(rows);
  ranks.resize(rows);
  top_tokens.resize(rows * static_cast<size_t>(width));
  top_logprobs.resize(rows * static_cast<size_t>(width));
}

LogprobRows Logprobs::rows(size_t first, size_t count) const {
  const auto k = static_cast<size_t>(width);
  return {.width = width,
          .logprobs = std::span(logprobs).subspan(first, count),
          .ranks = std::span(ranks).subspan(first, count),
          .top_tokens = std::span(top_tokens).subspan(first * k, count * k),
          .top_logprobs = std::span(top_logprobs).subspan(first * k, count * k)};
}

void Logprobs::copy_in(size_t first, const LogprobRows& from) {
  CHECK(from.width == width && first + from.size() <= size(), "{} rows of {} go to row {} of {}, each of {}",
        from.size(), from.width, first, size(), width);
  const auto at = static_cast<ptrdiff_t>(first);
  const ptrdiff_t top = at * width;
  std::ranges::copy(from.logprobs, logprobs.begin() + at);
  std::ranges::copy(from.ranks, ranks.begin() + at);
  std::ranges::copy(from.top_tokens, top_tokens.begin() + top);
  std::ranges::copy(from.top_logprobs, top_logprobs.begin() + top);
}

void Logprobs::append(const LogprobRows& from) {
  if (from.size() == 0) return;
  CHECK(width <= from.width, "{} tokens are kept of {}", width, from.width);
  logprobs.insert(logprobs.end(), from.logprobs.begin(), from.logprobs.end());
  ranks.insert(ranks.end(), from.ranks.begin(), from.ranks.end());
  for (size_t r = 0; r < from.size(); ++r) {
    const ptrdiff_t begin = static_cast<ptrdiff_t>(r) * from.width;
    top_tokens.insert(top_tokens.end(), from.top_tokens.begin() + begin, from.top_tokens.begin() + begin + width);
    top_logprobs.insert(top_logprobs.end(), from.top_logprobs.begin() + begin,
                        from.top_logprobs.begin() + begin + width);
  }
}

}  // namespace lantern
