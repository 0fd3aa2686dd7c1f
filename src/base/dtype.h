// Element types of checkpoints, caches and activations, with exact scalar conversions.
// Every conversion to a narrower type rounds to nearest, ties to even. Sources: IEEE 754; OCP 8-bit floating point
// specification 1.0 (E4M3 "fn" kind: no infinities, 0x7f and 0xff are NaN; E5M2); OCP microscaling formats 1.0
// (E8M0: 2^(b-127), 0xff is NaN; E2M1).
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/result.h"

namespace lantern {

enum class DType : uint8_t {
  kF32,
  kF16,
  kBF16,
  kF8E4M3,
  kF8E5M2,
  kF8E8M0,
  kF4E2M1,
  kI8,
  kU8,
  kI32,
  kI64,
  kBool,
};

// Bits per element: 4 for kF4E2M1 (two per byte, low nibble first), else a multiple of 8.
int dtype_bits(DType dtype);
// Bytes of `count` elements, rounded up to whole bytes.
size_t dtype_bytes(DType dtype, size_t count);
// The safetensors spelling: "F32", "BF16", "F8_E4M3", ...
std::string_view to_string(DType dtype);
Result<DType> parse_dtype(std::string_view safetensors_name);

// Storage types. They hold bits only; arithmetic happens in float.
struct bf16_t {
  uint16_t bits;
};
struct f16_t {
  uint16_t bits;
};
struct e4m3_t {
  uint8_t bits;
};
struct e5m2_t {
  uint8_t bits;
};
struct e8m0_t {
  uint8_t bits;
};

inline float to_float(bf16_t x) { return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16); }
float to_float(f16_t x);
float to_float(e4m3_t x);
float to_float(e5m2_t x);
float to_float(e8m0_t x);
float e2m1_to_float(uint8_t code);  // code in [0, 15]

inline bf16_t to_bf16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>((bits >> 16) | 0x40u)};  // quiet NaN
  return {static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}
f16_t to_f16(float x);
// Finite values beyond the largest finite one and infinities saturate (448, 57344); NaN stays NaN.
e4m3_t to_e4m3_saturate(float x);
e5m2_t to_e5m2_saturate(float x);
// Smallest power of two >= x, clamped to [2^-127, 2^127]; NaN for NaN. x must not be negative.
e8m0_t to_e8m0_ceil(float x);
// Nearest E2M1 code (0..15), saturating at 6. The type has no NaN: NaN gives 6.
uint8_t to_e2m1_saturate(float x);

// 2^ceil(log2(x)) exactly, for x > 0 (the "ue8m0" scale rounding of DeepSeek V3.1 and later); infinity beyond 2^127,
// NaN for NaN.
float round_up_to_power_of_two(float x);

}  // namespace lantern
