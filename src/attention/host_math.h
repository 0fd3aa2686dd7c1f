// The inner loops of attention on the host, one vectorised source for every instruction set (Highway), chosen at run
// time. Every value has one reduction order that depends on its own row and column alone, never on how many rows or
// columns travel together: that is what makes results independent of batch, chunk and thread count.
#pragma once

#include <cstddef>
#include <cstdint>

#include "attention/cache_layout.h"
#include "base/dtype.h"

namespace lantern::host_math {

// Keys of one tile of every attention loop.
inline constexpr int32_t kTile = 64;
// Row strides of float tiles are multiples of this.
inline constexpr int32_t kPad = 16;
constexpr int32_t padded(int32_t width) { return (width + kPad - 1) / kPad * kPad; }

// dst[i] = value i times scale. dtype: kF32, kF16 (finite), kBF16 or kF8E4M3.
void decode_values(DType dtype, const std::byte* src, int64_t count, float scale, float* dst);

// Decodes `count` latent rows: the latent to latent + r * latent_stride, the rope part to rope + r * rope_stride.
void decode_latent_rows(LatentLayout layout, const std::byte* const* rows, int32_t count, int32_t kv_lora_rank,
                        int32_t rope_dim, float* latent, int64_t latent_stride, float* rope, int64_t rope_stride);

// c[i, j] = c[i, j] * factor(i) + sum_k a[i, k] * b[k, j], k ascending, by fused multiply-add.
// factor(i): 0 without reading c when c_factor is null and not accumulate; 1 when accumulate; else c_factor[i].
void multiply_nn(int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* b, int64_t ldb, float* c,
                 int64_t ldc, bool accumulate, const float* c_factor = nullptr);

// c[i, j] (+)= sum_k a[i, k] * b[j, k]: one partial sum per vector lane, lanes added in a fixed tree.
void multiply_nt(int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* b, int64_t ldb, float* c,
                 int64_t ldc, bool accumulate);

// Rows of e4m3 codes: element (r, j) is code * scales[j / block_cols], rounded once.
struct E4m3Rows {
  const std::byte* data = nullptr;
  int64_t row_bytes = 0;
  const float* scales = nullptr;
  int64_t block_cols = 0;
};
// Whether the two products below take `cols` columns of b: cols and block_cols are multiples of 32, and no scale is
// too large to be multiplied by 2^8.
bool multiply_row_takes(const E4m3Rows& b, int64_t cols);
// multiply_nn and multiply_nt for m = 1, bit by bit, without a copy of b as floats: c[j] (+)= sum_k a[k] * b[k, j].
void multiply_row_e4m3_nn(int64_t n, int64_t k, const float* a, const E4m3Rows& b, float* c, bool accumulate);
// c[j] (+)= sum_k a[k] * b[j, k].
void multiply_row_e4m3_nt(int64_t n, int64_t k, const float* a, const E4m3Rows& b, float* c, bool accumulate);

// dst[j, i] = src[i, j] for i < rows, j < cols.
void transpose(int64_t rows, int64_t cols, const float* src, int64_t src_stride, float* dst, int64_t dst_stride);

// One tile of an online softmax for `rows` queries. Row r of `scores` (stride kTile) holds dot products and receives
// the probabilities exp(scale * score - max), 0 where the key is not visible; max, sum and factor (by which the row's
// accumulator must be multiplied) are updated. visible[r]: bit j says that key j takes part. A NaN among the scores
// that take part makes its probability and the sum NaN, and others' perhaps.
void softmax_tile(int64_t rows, float* scores, const uint64_t* visible, float scale, float* max, float* sum,
                  float* factor);

// out[j] = sum_h weights[h] * max(scores[h, j], 0), h ascending, for kTile keys; scores has row stride kTile.
// A NaN stays.
void relu_weighted_sum(int64_t heads, const float* scores, const float* weights, float* out);

// x[i] = x[i] * x_factor + y[i] * y_factor.
void combine(int64_t count, float* x, float x_factor, const float* y, float y_factor);
// x[i] *= factor.
void scale(int64_t count, float* x, float factor);
// The exponential of the softmax: exp(0) is exactly 1; 0 below the smallest normal float. x <= 0.
float exponential(float x);

// The instruction set in use, e.g. "AVX3".
const char* target_name();

}  // namespace lantern::host_math
