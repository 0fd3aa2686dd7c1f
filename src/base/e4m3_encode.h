// Branch-free e4m3 encoding for caches, index queries and checkpoints: the same codes as to_e4m3_saturate (tests
// compare them), at a few instructions per value.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "base/dtype.h"

namespace lantern {

inline e4m3_t encode_e4m3(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t sign = (bits >> 24) & 0x80u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  constexpr uint32_t kLargest = 0x43e00000u;         // 448
  constexpr uint32_t kSmallestNormal = 0x3c800000u;  // 2^-6
  const uint32_t clamped = magnitude < kLargest ? magnitude : kLargest;
  // Normal: keep 3 mantissa bits, nearest even, and change the exponent's bias from 127 to 7.
  const uint32_t normal = ((clamped + 0x7ffffu + ((clamped >> 20) & 1u)) >> 20) - (120u << 3);
  // Subnormal: the last place is 2^-9, that of floats in [2^14, 2^15); the addition rounds to nearest even.
  const uint32_t subnormal = std::bit_cast<uint32_t>(std::bit_cast<float>(clamped) + 16384.0f) - 0x46800000u;
  const uint32_t finite = (clamped < kSmallestNormal ? subnormal : normal) | sign;
  return {static_cast<uint8_t>(magnitude > 0x7f800000u ? 0x7fu : finite)};
}

// out[i] = e4m3(values[i] / scale); scale is a power of two, so that the division is exact.
inline void encode_e4m3_row(const float* values, int32_t count, float scale, std::byte* out) {
  for (int32_t i = 0; i < count; ++i) out[i] = static_cast<std::byte>(encode_e4m3(values[i] / scale).bits);
}

}  // namespace lantern
