// Floats as numbers whose order is that of the floats: for minima, maxima and counting over ranges of them.
#pragma once

#include <cstdint>

namespace lantern::cuda {

// Larger for larger values and never 0 for a number; +0 and -0 are equal, NaN is beyond both ends by its sign.
__device__ inline uint32_t order_of(float value) {
  const uint32_t bits = value == 0.0f ? 0 : __float_as_uint(value);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
__device__ inline float value_of(uint32_t order) {
  return __uint_as_float(order & 0x80000000u ? order ^ 0x80000000u : ~order);
}

}  // namespace lantern::cuda
