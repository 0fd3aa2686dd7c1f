// The arithmetic of FP8 block quantisation, as the public FP8 checkpoints with ue8m0 scales hold it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"

namespace lantern {

inline constexpr int32_t kQuantizeBlock = 128;

// The scale of a block whose largest magnitude is `amax`: 2^ceil(log2(amax / 448)), so that no value saturates; 1 for a
// block of zeros. Exact powers of two, never below 2^-126 (a normal float, and within E8M0).
float fp8_block_scale(float amax);

// Nearest e4m3 value, ties to even, saturating at 448: to_e4m3_saturate for finite x, in a form that vectorises.
inline uint8_t encode_e4m3(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  const uint32_t magnitude = bits & 0x7fffffffu;
  // Below 2^-6 values are multiples of 2^-9: adding 2^14, whose last place is 2^-9, rounds to one.
  const uint32_t subnormal = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 16384.0f) - 0x46800000u;
  // From 2^-6 on three mantissa bits stay; the exponent bias falls from 127 to 7.
  const uint32_t normal = ((magnitude + 0x7ffffu + ((magnitude >> 20) & 1u)) >> 20) - (120u << 3);
  uint32_t code = magnitude < 0x3c800000u ? subnormal : normal;
  code = magnitude > 0x43e00000u ? 0x7eu : code;
  return static_cast<uint8_t>((bits >> 24 & 0x80u) | code);
}

// Quantises `rows` (at most one block of) rows of `cols` elements, contiguous, of dtype kF32, kF16 or kBF16: codes
// [rows, cols] and one scale for every 128 columns. Returns the index of the first element that is not finite, or -1;
// the outputs are undefined then.
int64_t quantize_strip(const std::byte* source, DType dtype, int64_t rows, int64_t cols, std::byte* codes,
                       float* scales);

}  // namespace lantern
