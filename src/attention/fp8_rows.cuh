// FP8 rows on the device: scales and transforms as cache_layout.h and cache_write.h define them.
#pragma once

#include "device/cuda/block_reduce.cuh"
#include "device/cuda/convert.cuh"

namespace lantern::cuda {

__device__ inline float latent_scale(float amax) { return power_of_two_at_least(fmaxf(amax / 448.0f, 1e-4f)); }
__device__ inline float index_key_scale(float amax) { return power_of_two_at_least(fmaxf(amax, 1e-4f) / 448.0f); }
__device__ inline float index_query_scale(float amax) { return power_of_two_at_least(fmaxf(amax, 1e-10f) / 448.0f); }

// In place over shared memory, by one block: the same additions as hadamard_transform().
__device__ inline void hadamard(float* values, int32_t length) {
  for (int32_t half = 1; half < length; half *= 2) {
    __syncthreads();
    for (int32_t pair = static_cast<int32_t>(threadIdx.x); pair < length / 2;
         pair += static_cast<int32_t>(blockDim.x)) {
      const int32_t i = pair / half * 2 * half + pair % half;
      const float a = values[i], b = values[i + half];
      values[i] = a + b;
      values[i + half] = a - b;
    }
  }
  __syncthreads();
  const float scale = 1.0f / sqrtf(static_cast<float>(length));
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < length; i += static_cast<int32_t>(blockDim.x)) {
    values[i] *= scale;
  }
  __syncthreads();
}

// The largest magnitude of shared memory, by one block.
__device__ inline float largest_magnitude(const float* values, int32_t length, float* shared) {
  float amax = 0;
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < length; i += static_cast<int32_t>(blockDim.x)) {
    amax = fmaxf(amax, fabsf(values[i]));
  }
  return block_reduce(amax, 0.0f, shared, [](float a, float b) { return fmaxf(a, b); });
}

}  // namespace lantern::cuda
