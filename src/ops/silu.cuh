#pragma once

namespace lantern::cuda {

__device__ inline float silu(float x) {
  // e^-|x| cannot overflow.
  const float e = expf(-fabsf(x));
  return (x < 0 ? x * e : x) / (1.0f + e);
}

}  // namespace lantern::cuda
