// How the fast CUDA decode cuts a token's keys among blocks, and the scratch that its parts need. The cut follows from
// the token's keys alone, so that its result does not depend on the batch.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/host_device.h"

namespace lantern {

constexpr int32_t kMlaKeyTile = 64;
constexpr int32_t kMlaMaxSplits = 16;
constexpr int32_t kMlaTilesPerSplit = 8;  // at least, where there is more than one
// Tokens whose parts fit into the scratch at a time, at the most splits.
constexpr int64_t kMlaTokensPerPass = 32;
// Tokens that prefill brings into the latent space at a time: as many as a tile of the projections has.
constexpr int64_t kMlaPrefillTokens = 64;

struct MlaSplits {
  int32_t tiles;  // of each but the last
  int32_t count;
};
LANTERN_HOST_DEVICE constexpr MlaSplits mla_splits(int32_t keys) {
  const int32_t tiles = (keys + kMlaKeyTile - 1) / kMlaKeyTile;
  int32_t splits = (tiles + kMlaTilesPerSplit - 1) / kMlaTilesPerSplit;
  splits = splits < 1 ? 1 : splits > kMlaMaxSplits ? kMlaMaxSplits : splits;
  const int32_t each = tiles < 1 ? 1 : (tiles + splits - 1) / splits;
  return {each, tiles < 1 ? 1 : (tiles + each - 1) / each};
}

// Of one token: `splits` results, each with its log-sum-exp.
constexpr int64_t mla_split_floats(int32_t splits, int64_t heads, int64_t rank) { return splits * heads * (rank + 1); }

constexpr int64_t cuda_mla_decode_scratch_bytes(int64_t max_tokens, int64_t heads, int64_t rank) {
  return std::min(max_tokens, kMlaTokensPerPass) * mla_split_floats(kMlaMaxSplits, heads, rank) * 4;
}
constexpr int64_t cuda_mla_prefill_scratch_bytes(int64_t max_tokens, int64_t heads, int64_t rank) {
  return std::min(max_tokens, kMlaPrefillTokens) * heads * rank * 2 * 4 +
         cuda_mla_decode_scratch_bytes(max_tokens, heads, rank);
}

}  // namespace lantern
