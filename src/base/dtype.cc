#include "base/dtype.h"

#include <array>
#include <cmath>
#include <limits>

#include <fmt/core.h>

namespace lantern {
namespace {

struct DTypeInfo {
  DType dtype;
  int bits;
  std::string_view name;
};

constexpr std::array<DTypeInfo, 12> kDTypes{{
    {DType::kF32, 32, "F32"},
    {DType::kF16, 16, "F16"},
    {DType::kBF16, 16, "BF16"},
    {DType::kF8E4M3, 8, "F8_E4M3"},
    {DType::kF8E5M2, 8, "F8_E5M2"},
    {DType::kF8E8M0, 8, "F8_E8M0"},
    {DType::kF4E2M1, 4, "F4"},
    {DType::kI8, 8, "I8"},
    {DType::kU8, 8, "U8"},
    {DType::kI32, 32, "I32"},
    {DType::kI64, 64, "I64"},
    {DType::kBool, 8, "BOOL"},
}};

// Decodes a small float with a sign bit, `exponent_bits` and `mantissa_bits`, subnormals included.
float decode_small(uint32_t code, int exponent_bits, int mantissa_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const uint32_t mantissa = code & ((1u << mantissa_bits) - 1);
  const uint32_t exponent = (code >> mantissa_bits) & ((1u << exponent_bits) - 1);
  const bool negative = ((code >> (exponent_bits + mantissa_bits)) & 1u) != 0;
  const float fraction = static_cast<float>(mantissa);
  const float magnitude = exponent == 0 ? std::ldexp(fraction, 1 - bias - mantissa_bits)
                                        : std::ldexp(fraction + static_cast<float>(1u << mantissa_bits),
                                                     static_cast<int>(exponent) - bias - mantissa_bits);
  return negative ? -magnitude : magnitude;
}

// Nearest code (ties to even) of |x| <= largest finite value; the caller has handled NaN and saturation.
uint32_t encode_small(float x, int exponent_bits, int mantissa_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const uint32_t sign = std::signbit(x) ? 1u : 0u;
  const float magnitude = std::fabs(x);
  // The exponent of the binade, not below that of the subnormals.
  int exponent = magnitude > 0 ? std::ilogb(magnitude) : -bias;
  exponent = std::max(exponent, 1 - bias);
  // In units of the binade's last place; nearbyint rounds ties to even. A carry into the next binade is right by
  // itself.
  const float units = std::nearbyint(std::ldexp(magnitude, mantissa_bits - exponent));
  const auto integer = static_cast<uint32_t>(units);
  const uint32_t code = (static_cast<uint32_t>(exponent + bias - 1) << mantissa_bits) + integer;
  return code | (sign << (exponent_bits + mantissa_bits));
}

template <class Code>
std::array<float, 256> make_table(Code decode) {
  std::array<float, 256> table{};
  for (uint32_t code = 0; code < 256; ++code) table[code] = decode(code);
  return table;
}

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

}  // namespace

int dtype_bits(DType dtype) { return kDTypes[static_cast<size_t>(dtype)].bits; }

size_t dtype_bytes(DType dtype, size_t count) {
  const auto bits = static_cast<size_t>(dtype_bits(dtype));
  return bits >= 8 ? count * (bits / 8) : (count * bits + 7) / 8;
}

std::string_view to_string(DType dtype) { return kDTypes[static_cast<size_t>(dtype)].name; }

Result<DType> parse_dtype(std::string_view safetensors_name) {
  for (const DTypeInfo& info : kDTypes) {
    if (info.name == safetensors_name) return info.dtype;
  }
  return Error(ErrorCode::kUnsupported, fmt::format("dtype '{}' is not known to Lantern", safetensors_name));
}

float to_float(f16_t x) {
  const uint32_t exponent = (x.bits >> 10) & 0x1fu;
  if (exponent != 0x1f) return decode_small(x.bits, 5, 10);
  if ((x.bits & 0x3ffu) != 0) return kNaN;
  return (x.bits & 0x8000u) != 0 ? -kInfinity : kInfinity;
}

float to_float(e4m3_t x) {
  static const std::array<float, 256> table =
      make_table([](uint32_t code) { return (code & 0x7fu) == 0x7fu ? kNaN : decode_small(code, 4, 3); });
  return table[x.bits];
}

float to_float(e5m2_t x) {
  static const std::array<float, 256> table = make_table([](uint32_t code) {
    if ((code & 0x7cu) != 0x7cu) return decode_small(code, 5, 2);
    if ((code & 3u) != 0) return kNaN;
    return (code & 0x80u) != 0 ? -kInfinity : kInfinity;
  });
  return table[x.bits];
}

float to_float(e8m0_t x) { return x.bits == 0xff ? kNaN : std::ldexp(1.0f, static_cast<int>(x.bits) - 127); }

float e2m1_to_float(uint8_t code) { return decode_small(code & 0xfu, 2, 1); }

f16_t to_f16(float x) {
  if (std::isnan(x)) return {0x7e00};
  const auto sign = static_cast<uint16_t>(std::signbit(x) ? 0x8000u : 0u);
  // 65520 is halfway between the largest finite value and the next step, and rounds to infinity.
  if (std::fabs(x) >= 65520.0f) return {static_cast<uint16_t>(sign | 0x7c00u)};
  return {static_cast<uint16_t>(encode_small(x, 5, 10))};
}

e4m3_t to_e4m3_saturate(float x) {
  if (std::isnan(x)) return {0x7f};
  return {static_cast<uint8_t>(encode_small(std::fmin(std::fmax(x, -448.0f), 448.0f), 4, 3))};
}

e5m2_t to_e5m2_saturate(float x) {
  if (std::isnan(x)) return {0x7f};
  return {static_cast<uint8_t>(encode_small(std::fmin(std::fmax(x, -57344.0f), 57344.0f), 5, 2))};
}

e8m0_t to_e8m0_ceil(float x) {
  if (std::isnan(x)) return {0xff};
  if (!(x > 0)) return {0};
  int exponent = std::ilogb(x);
  if (std::ldexp(1.0f, exponent) < x) ++exponent;
  return {static_cast<uint8_t>(std::min(std::max(exponent, -127), 127) + 127)};
}

uint8_t to_e2m1_saturate(float x) {
  if (std::isnan(x)) return 0x7;
  return static_cast<uint8_t>(encode_small(std::fmin(std::fmax(x, -6.0f), 6.0f), 2, 1));
}

float round_up_to_power_of_two(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  if (std::isnan(x)) return x;
  if (bits < 0x800000u) return std::bit_cast<float>(std::bit_ceil(bits));  // subnormal
  const uint32_t up = (bits & 0x7fffffu) != 0 ? (bits & 0x7f800000u) + 0x800000u : bits;
  return std::bit_cast<float>(up);
}

}  // namespace lantern
