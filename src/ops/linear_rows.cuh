// The product of some rows with one row of a weight: the inside of the plain matrix kernels.
#pragma once

#include "device/cuda/block_reduce.cuh"
#include "device/cuda/convert.cuh"
#include "ops/linear.h"

namespace lantern::cuda {

// Rows of x that one pass over the weight serves.
constexpr int kRowTile = 8;

template <bool kRound>
__device__ inline float input(float x) {
  return kRound ? rounded_bf16(x) : x;
}

// out[r] = W[o, :] . x[r] for the `rows` <= kRowTile rows, by one warp; each lane gets all. Lane l takes columns l, l +
// 32, ...; lanes are added in a butterfly: an order that no other row changes. With scales, one such sum for each block
// of block_cols columns, times the block's scale, in column order.
template <class T, bool kRound>
__device__ void multiply_rows(const QuantizedMatrix& w, int64_t o, const float* const* x, int rows, float* out) {
  const auto lane = static_cast<int64_t>(threadIdx.x % kWarp);
  const T* weights = reinterpret_cast<const T*>(w.data.get() + o * w.row_bytes);
  const int64_t step = w.block_rows > 0 ? w.block_cols : w.cols;
  const int64_t scale_row = w.block_rows > 0 ? o / w.block_rows * w.scale_row_stride : 0;
  for (int r = 0; r < kRowTile; ++r) out[r] = 0;
  for (int64_t begin = 0; begin < w.cols; begin += step) {
    const int64_t end = min(w.cols, begin + step);
    float sums[kRowTile] = {};
    for (int64_t i = begin + lane; i < end; i += kWarp) {
      const float weight = widen(weights[i]);
#pragma unroll
      for (int r = 0; r < kRowTile; ++r) {
        if (r < rows) sums[r] = __fmaf_rn(weight, input<kRound>(x[r][i]), sums[r]);
      }
    }
    const float scale =
        w.block_rows > 0
            ? scale_element(w.scales.get(), w.scale_dtype, scale_row + begin / w.block_cols) * w.global_scale
            : w.global_scale;
#pragma unroll
    for (int r = 0; r < kRowTile; ++r) {
      if (r < rows) out[r] += warp_sum(sums[r]) * scale;
    }
  }
}

// The same for the weight's own type. x is rounded to bf16 for bf16 and FP8 weights unless `exact`.
__device__ inline void multiply_rows(const QuantizedMatrix& w, bool exact, int64_t o, const float* const* x, int rows,
                                     float* out) {
  switch (w.dtype) {
    case DType::kBF16:
      return exact ? multiply_rows<bf16_t, false>(w, o, x, rows, out) : multiply_rows<bf16_t, true>(w, o, x, rows, out);
    case DType::kF8E4M3:
      return exact ? multiply_rows<e4m3_t, false>(w, o, x, rows, out) : multiply_rows<e4m3_t, true>(w, o, x, rows, out);
    case DType::kF16: return multiply_rows<f16_t, false>(w, o, x, rows, out);
    default: return multiply_rows<float, false>(w, o, x, rows, out);
  }
}

}  // namespace lantern::cuda
