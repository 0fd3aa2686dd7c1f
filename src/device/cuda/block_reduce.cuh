// Reductions over a warp or a block in one fixed order, so that results do not depend on timing.
#pragma once

#include <cstdint>

namespace lantern::cuda {

constexpr int kWarp = 32;

// Every lane gets the result. A butterfly: all lanes add the same pairs in the same order.
template <class T, class Op>
__device__ inline T warp_reduce(T value, const Op& op) {
  for (int offset = kWarp / 2; offset > 0; offset /= 2) value = op(value, __shfl_xor_sync(~0u, value, offset));
  return value;
}
template <class T>
__device__ inline T warp_sum(T value) {
  return warp_reduce(value, [](T a, T b) { return a + b; });
}

// Every thread gets the result. `shared` has one element for each warp; the block's size is a multiple of a warp's.
template <class T, class Op>
__device__ inline T block_reduce(T value, T neutral, T* shared, const Op& op) {
  const unsigned warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, warps = blockDim.x / kWarp;
  value = warp_reduce(value, op);
  __syncthreads();  // an earlier use of `shared` is over
  if (lane == 0) shared[warp] = value;
  __syncthreads();
  value = lane < warps ? shared[lane] : neutral;
  return warp_reduce(value, op);
}
template <class T>
__device__ inline T block_sum(T value, T* shared) {
  return block_reduce(value, T{}, shared, [](T a, T b) { return a + b; });
}

// Sum of the values of the threads before this one; *total: of all.
template <class T>
__device__ inline T block_exclusive_sum(T value, T* shared, T* total) {
  const unsigned warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, warps = blockDim.x / kWarp;
  T sum = value;
  for (int offset = 1; offset < kWarp; offset *= 2) {
    const T before = __shfl_up_sync(~0u, sum, offset);
    if (lane >= static_cast<unsigned>(offset)) sum += before;
  }
  __syncthreads();
  if (lane == kWarp - 1) shared[warp] = sum;
  __syncthreads();
  T base{};
  *total = T{};
  for (unsigned w = 0; w < warps; ++w) {
    if (w == warp) base = *total;
    *total += shared[w];
  }
  return base + sum - value;
}

}  // namespace lantern::cuda
