// Values of kv_b_proj on the device.
#pragma once

#include "attention/cuda_choice.h"
#include "attention/mla.h"
#include "device/cuda/block_reduce.cuh"
#include "device/cuda/convert.cuh"

namespace lantern::cuda {

// The scale of element (row, col), 1 where there are none but the global one.
__device__ inline float scale_at(const KvUpProjection& w, int32_t row, int32_t col) {
  if (w.block_rows == 0) return w.global_scale;
  const int64_t scale = row / w.block_rows * w.scale_row_stride + col / w.block_cols;
  return scale_element(w.scales.get(), w.scale_dtype, scale) * w.global_scale;
}
// Element (row, col).
__device__ inline float weight_at(const KvUpProjection& w, int64_t row, int32_t col) {
  return element(w.data.get() + row * w.row_bytes, w.dtype, col) * scale_at(w, static_cast<int32_t>(row), col);
}

// kCount neighbouring values of a row without their scale, from column `col` on, a multiple of kCount.
template <class T, int kCount>
__device__ inline void load_codes(const KvUpProjection& w, int64_t row, int32_t col, uint32_t* words) {
  constexpr int kWords = kCount * static_cast<int>(sizeof(T)) / 4;
  const auto* at = reinterpret_cast<const T*>(w.data.get() + row * w.row_bytes) + col;
  if constexpr (kWords % 4 == 0) {
#pragma unroll
    for (int i = 0; i < kWords / 4; ++i)
      *(reinterpret_cast<uint4*>(words) + i) = __ldg(reinterpret_cast<const uint4*>(at) + i);
  } else if constexpr (kWords == 2) {
    *reinterpret_cast<uint2*>(words) = __ldg(reinterpret_cast<const uint2*>(at));
  } else {
    *words = __ldg(reinterpret_cast<const uint32_t*>(at));
  }
}
// Values 4 i .. 4 i + 3 of them.
template <class T>
__device__ inline float4 four_of(const uint32_t* words, int i) {
  if constexpr (sizeof(T) == 1) {
    const float2 low = widen_e4m3_pair(words[i] & 0xffffu), high = widen_e4m3_pair(words[i] >> 16);
    return make_float4(low.x, low.y, high.x, high.y);
  } else {
    const uint32_t a = words[2 * i], b = words[2 * i + 1];
    return make_float4(__uint_as_float(a << 16), __uint_as_float(a & 0xffff0000u), __uint_as_float(b << 16),
                       __uint_as_float(b & 0xffff0000u));
  }
}
__device__ inline float4 scaled(const float4& v, float scale) {
  return make_float4(v.x * scale, v.y * scale, v.z * scale, v.w * scale);
}

// The kernels of many tokens (kv_projection_many_cuda.cu), with the same sums bit by bit.
void absorb_many(void* stream, const AbsorbQueryParams& p);
void project_many(void* stream, const ProjectValueParams& p);

}  // namespace lantern::cuda
