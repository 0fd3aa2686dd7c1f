// Scratch that the fast CUDA kernels of this room need beside what the host's need: rows of x rounded to bf16. The
// sizes count in builds without CUDA too, so that a workspace is the same everywhere.
#pragma once

#include <algorithm>
#include <cstdint>

namespace lantern {

// Rows of linear() that are rounded and multiplied at a time.
constexpr int64_t kCudaRowsPerPass = 256;
// Fewer rows are rounded where they are used.
constexpr int64_t kCudaRowsRoundedInPlace = 2;

constexpr int64_t rounded_rows_bytes(int64_t rows, int64_t cols) { return (rows * cols * 2 + 255) / 256 * 256; }

constexpr int64_t cuda_linear_scratch_bytes(int64_t max_rows, int64_t max_cols) {
  return rounded_rows_bytes(std::min(max_rows, kCudaRowsPerPass), max_cols) + 256;
}

// The activation and x of mlp(), whose passes are of `max_tokens` at most.
constexpr int64_t cuda_mlp_scratch_bytes(int64_t max_tokens, int64_t hidden, int64_t intermediate) {
  return rounded_rows_bytes(max_tokens, intermediate) + rounded_rows_bytes(max_tokens, hidden) + 256;
}

}  // namespace lantern
