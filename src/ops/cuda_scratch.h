// Scratch that the fast CUDA kernels of this room need beside what the host's need (rows of x rounded to bf16) or in
// its place (what is known of a row of logits). The sizes count in builds without CUDA too, so that a workspace is the
// same everywhere.
#pragma once

#include <algorithm>
#include <cstdint>

namespace lantern {

// Rows of linear() that are rounded and multiplied at a time.
constexpr int64_t kCudaRowsPerPass = 1024;
// Fewer rows are rounded where they are used.
constexpr int64_t kCudaRowsRoundedInPlace = 2;

// Whole eights of rows, as products of many rows want them.
constexpr int64_t rounded_rows_bytes(int64_t rows, int64_t cols) {
  return ((rows + 7) / 8 * 8 * cols * 2 + 255) / 256 * 256;
}

constexpr int64_t cuda_linear_scratch_bytes(int64_t max_rows, int64_t max_cols) {
  return rounded_rows_bytes(std::min(max_rows, kCudaRowsPerPass), max_cols) + 256;
}

// The activation and x of mlp(), whose passes are of `max_tokens` at most.
constexpr int64_t cuda_mlp_scratch_bytes(int64_t max_tokens, int64_t hidden, int64_t intermediate) {
  return rounded_rows_bytes(max_tokens, intermediate) + rounded_rows_bytes(max_tokens, hidden) + 256;
}

// Logits of a row that one block takes.
constexpr int32_t kCudaVocabPart = 8192;
constexpr int32_t cuda_vocab_parts(int32_t vocab) { return (vocab + kCudaVocabPart - 1) / kCudaVocabPart; }

// A row of sample(): a float weight for each token, then bins that count weights (with 12 bytes each), then 16 bytes
// for each part.
constexpr int32_t kCudaSampleBins = 2048;
constexpr int64_t cuda_sample_weight_bytes(int32_t vocab) { return (int64_t{vocab} * 4 + 255) / 256 * 256; }
constexpr int64_t cuda_sample_row_bytes(int32_t vocab) {
  return cuda_sample_weight_bytes(vocab) + kCudaSampleBins * 12 +
         (int64_t{cuda_vocab_parts(vocab)} * 16 + 255) / 256 * 256;
}

}  // namespace lantern
