// Rows of x rounded to bf16 in scratch, once for all blocks of a product.
#pragma once

#include "device/cuda/convert.cuh"
#include "device/cuda/launch.cuh"
#include "device/cuda/ptx.cuh"
#include "ops/cuda_scratch.h"

namespace lantern::cuda {

struct RoundRowsParams {
  const float* x;
  int64_t x_stride;       // a multiple of 4
  const int32_t* x_rows;  // optional
  bf16_t* out;            // [rows, cols], contiguous
  int64_t rows;
  int64_t cols;  // a multiple of 4
  RowCount real_rows;
};

inline bf16_t* rounded_rows_at(std::byte* scratch) {
  return reinterpret_cast<bf16_t*>((reinterpret_cast<uintptr_t>(scratch) + 255) / 256 * 256);
}

template <int kThreads>
__global__ void round_rows_kernel(RoundRowsParams p) {
  ptx::begin_overlapped();
  const int64_t r = blockIdx.y;
  const int64_t i = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * 4;
  if (i >= p.cols || r >= p.real_rows.of(p.rows)) return;
  const float4 v = *reinterpret_cast<const float4*>(p.x + (p.x_rows ? p.x_rows[r] : r) * p.x_stride + i);
  *reinterpret_cast<uint2*>(p.out + r * p.cols + i) = make_uint2(ptx::pack_bf16(v.x, v.y), ptx::pack_bf16(v.z, v.w));
}

inline void round_rows(void* stream, const RoundRowsParams& p) {
  constexpr int kThreads = 256;
  launch_overlapped(stream, "round rows", &round_rows_kernel<kThreads>,
                    dim3(blocks_for(p.cols, 4 * kThreads), static_cast<unsigned>(p.rows)), kThreads, 0, p);
}

// Whether a row of x can be read in pieces of 16 bytes.
inline bool aligned_rows(const float* x, int64_t stride) {
  return reinterpret_cast<uintptr_t>(x) % 16 == 0 && stride % 4 == 0;
}

}  // namespace lantern::cuda
