// What shapes the launches of a step: every graph is captured for one bucket and replayed for steps that fit it.
// Nothing else may shape a launch; sequence lengths reach kernels through device memory only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace lantern {

enum class StepKind : int32_t {
  kDecode,  // decodes only
  kMixed,   // with prefills
  // Parts behind a step, with a bucket of their own:
  kDraftFill,   // the drafter's pass over the step's tokens
  kDraftClear,  // zeros instead of what it would write
  kDrafts,      // its further passes, query_width of them
  // What lies between two places of attention, where attention runs eagerly. Shaped by the number of tokens alone:
  kPiece,           // of a step
  kDraftFillPiece,  // of the drafter's pass over the step's tokens
};

struct BucketKey {
  int32_t tokens = 0;
  int32_t requests = 0;
  int32_t query_width = 1;  // tokens of a decoding request, at most
  StepKind kind = StepKind::kDecode;
  int32_t piece = 0;  // which, of a kind that is one of several

  friend bool operator==(const BucketKey&, const BucketKey&) = default;
};

// "decode bucket of 12 tokens, 4 requests, query width 4"
std::string to_string(const BucketKey& bucket);

}  // namespace lantern

template <>
struct std::hash<lantern::BucketKey> {
  size_t operator()(const lantern::BucketKey& bucket) const noexcept;
};
