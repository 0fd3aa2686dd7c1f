// Rows of floats, four columns at a time: one load of 16 bytes where the row lies at a multiple of 16, else four of 4.
// Neither depends on the other lanes, so that a thread's loads are under way together.
#pragma once

#include <cstdint>

namespace lantern::cuda {

constexpr int kQuad = 4;

__device__ inline bool is_aligned(const float* row) { return reinterpret_cast<uintptr_t>(row) % sizeof(float4) == 0; }

// Columns i to i + 3 of a row of `cols`, i a multiple of 4; `beyond` in place of those that it does not have.
__device__ inline void load_quad(float (&v)[kQuad], const float* row, int64_t i, int64_t cols, bool aligned,
                                 float beyond) {
  if (aligned && i + kQuad <= cols) {
    const float4 quad = *reinterpret_cast<const float4*>(row + i);
    v[0] = quad.x;
    v[1] = quad.y;
    v[2] = quad.z;
    v[3] = quad.w;
    return;
  }
#pragma unroll
  for (int j = 0; j < kQuad; ++j) v[j] = i + j < cols ? row[i + j] : beyond;
}

__device__ inline void store_quad(float* row, int64_t i, int64_t cols, bool aligned, const float (&v)[kQuad]) {
  if (aligned && i + kQuad <= cols) {
    *reinterpret_cast<float4*>(row + i) = make_float4(v[0], v[1], v[2], v[3]);
    return;
  }
#pragma unroll
  for (int j = 0; j < kQuad; ++j) {
    if (i + j < cols) row[i + j] = v[j];
  }
}

}  // namespace lantern::cuda
