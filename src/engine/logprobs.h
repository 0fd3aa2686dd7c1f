// Log-probabilities on their way from the executor to who reads them: of each token its own, its rank and the most
// likely tokens of its position, under the model's own logits (before penalties, temperature and filters), as
// ops/sampling.h has them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace lantern {

// Of `size()` consecutive tokens; a view.
struct LogprobRows {
  int32_t width = 0;                         // most likely tokens of each
  std::span<const float> logprobs = {};      // [size()], natural logarithms
  std::span<const int32_t> ranks = {};       // [size()], 1: the most likely token
  std::span<const int32_t> top_tokens = {};  // [size(), width], most likely first; -1 where fewer were asked for
  std::span<const float> top_logprobs = {};  // [size(), width]

  size_t size() const { return logprobs.size(); }
};

// The same with memory of its own.
struct Logprobs {
  int32_t width = 0;
  std::vector<float> logprobs = {};
  std::vector<int32_t> ranks = {};
  std::vector<int32_t> top_tokens = {};
  std::vector<float> top_logprobs = {};

  size_t size() const { return logprobs.size(); }
  bool empty() const { return logprobs.empty(); }
  void reserve(size_t rows);
  void resize(size_t rows);
  void clear() { resize(0); }
  LogprobRows rows(size_t first, size_t count) const;
  // Rows from `first` on become those of `from`. Precondition: the same width, and room for them.
  void copy_in(size_t first, const LogprobRows& from);
  // The leading `width` of the most likely tokens are kept. Precondition: `from` has as many.
  void append(const LogprobRows& from);
};

}  // namespace lantern
