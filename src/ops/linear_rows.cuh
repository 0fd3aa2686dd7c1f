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

// out[r] = W[o, begin .. end) . x[r] for kRows rows, by one warp; each lane gets all. Lane l takes columns l, l + 32,
// ...; lanes are added in a butterfly: an order that no other row changes. With scales, of which `begin` is at a
// border, one such sum for each block of block_cols columns, times the block's scale, in column order. Loads are not
// behind branches, so that many are on their way at once.
template <class T, bool kRound, int kRows>
__device__ void multiply_rows(const QuantizedMatrix& w, int64_t o, int64_t begin, int64_t end, const float* const* x,
                              float* out) {
  constexpr int kBatch = sizeof(T) == 1 ? 4 : 8;
  const auto lane = static_cast<int64_t>(threadIdx.x % kWarp);
  const T* weights = reinterpret_cast<const T*>(w.data.get() + o * w.row_bytes);
  const int64_t step = w.block_rows > 0 ? w.block_cols : w.cols;
  const int64_t scale_row = w.block_rows > 0 ? o / w.block_rows * w.scale_row_stride : 0;
  for (int r = 0; r < kRows; ++r) out[r] = 0;
  for (int64_t block = begin; block < end; block += step) {
    const int64_t block_end = min(end, block + step);
    float sums[kRows] = {};
    int64_t i = block + lane;
    for (; i + (kBatch - 1) * kWarp < block_end; i += kBatch * kWarp) {
      T batch[kBatch];
#pragma unroll
      for (int b = 0; b < kBatch; ++b) batch[b] = weights[i + b * kWarp];
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
#pragma unroll
        for (int b = 0; b < kBatch; ++b) {
          sums[r] = __fmaf_rn(widen(batch[b]), input<kRound>(x[r][i + b * kWarp]), sums[r]);
        }
      }
    }
    for (; i < block_end; i += kWarp) {
      const float weight = widen(weights[i]);
#pragma unroll
      for (int r = 0; r < kRows; ++r) sums[r] = __fmaf_rn(weight, input<kRound>(x[r][i]), sums[r]);
    }
    const float scale =
        w.block_rows > 0
            ? scale_element(w.scales.get(), w.scale_dtype, scale_row + block / w.block_cols) * w.global_scale
            : w.global_scale;
#pragma unroll
    for (int r = 0; r < kRows; ++r) out[r] += warp_sum(sums[r]) * scale;
  }
}

// The same for the weight's own type and up to kRowTile rows; x[r] is readable for all r. x is rounded to bf16 for bf16
// and FP8 weights unless `exact`.
template <int kRows>
__device__ void multiply_rows(const QuantizedMatrix& w, bool exact, int64_t o, int64_t begin, int64_t end,
                              const float* const* x, float* out) {
  switch (w.dtype) {
    case DType::kBF16:
      return exact ? multiply_rows<bf16_t, false, kRows>(w, o, begin, end, x, out)
                   : multiply_rows<bf16_t, true, kRows>(w, o, begin, end, x, out);
    case DType::kF8E4M3:
      return exact ? multiply_rows<e4m3_t, false, kRows>(w, o, begin, end, x, out)
                   : multiply_rows<e4m3_t, true, kRows>(w, o, begin, end, x, out);
    case DType::kF16: return multiply_rows<f16_t, false, kRows>(w, o, begin, end, x, out);
    default: return multiply_rows<float, false, kRows>(w, o, begin, end, x, out);
  }
}
__device__ inline void multiply_rows(const QuantizedMatrix& w, bool exact, int64_t o, int64_t begin, int64_t end,
                                     const float* const* x, int rows, float* out) {
  return rows == 1 ? multiply_rows<1>(w, exact, o, begin, end, x, out)
                   : multiply_rows<kRowTile>(w, exact, o, begin, end, x, out);
}

}  // namespace lantern::cuda
