// Scratch of the CUDA indexer: a group of tokens' queries, weights and rows of scores at a time.
#pragma once

#include <cstdint>

namespace lantern {

constexpr int32_t kIndexGroup = 64;

// Floats of one token of the group; the row of scores has a multiple of 4.
constexpr int64_t index_token_floats(int64_t row_stride, int64_t heads, int64_t dim) {
  return heads * dim + (heads + 3) / 4 * 4 + row_stride;
}
// For a whole group, whose scores are rounded up to a block table's reach.
constexpr int64_t cuda_index_scratch_bytes(int64_t max_context, int64_t heads, int64_t dim) {
  return kIndexGroup * index_token_floats((max_context + 127) / 64 * 64, heads, dim) * 4;
}

}  // namespace lantern
