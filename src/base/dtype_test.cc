#include "base/dtype.h"

#include <gtest/gtest.h>

#include <cctype>
#include <cmath>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

namespace lantern {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// The decimal integers of `"key": [...]` in tests/golden/data/dtypes.json, flattened. The file holds bits, made by
// torch and ml_dtypes where both agree (tools/make_goldens/make_dtypes.py).
std::vector<uint32_t> golden(const std::string& key) {
  static const std::string text = [] {
    std::ifstream file(LANTERN_SOURCE_DIR "/tests/golden/data/dtypes.json");
    std::stringstream content;
    content << file.rdbuf();
    return content.str();
  }();
  std::vector<uint32_t> numbers;
  const size_t begin = text.find("\"" + key + "\": [");
  if (begin == std::string::npos) return numbers;
  const size_t end = text.find('\n', begin);  // one key a line
  for (size_t i = text.find('[', begin); i < end;) {
    if (std::isdigit(static_cast<unsigned char>(text[i])) == 0) {
      ++i;
      continue;
    }
    size_t digits = 0;
    numbers.push_back(static_cast<uint32_t>(std::stoul(text.substr(i, 12), &digits)));
    i += digits;
  }
  return numbers;
}

uint32_t bits_of(float x) { return std::bit_cast<uint32_t>(x); }
float float_of(uint32_t bits) { return std::bit_cast<float>(bits); }

// Equal bits, or NaN where NaN is expected: NaN payloads are free.
void expect_value(uint32_t expected, float actual, uint32_t code) {
  if (std::isnan(float_of(expected))) {
    EXPECT_TRUE(std::isnan(actual)) << "code " << code;
  } else {
    EXPECT_EQ(bits_of(actual), expected) << "code " << code << ": " << actual << ", not " << float_of(expected);
  }
}

TEST(DTypeTables, All256CodesOfEveryByteFormat) {
  const auto e4m3 = golden("e4m3fn");
  const auto e5m2 = golden("e5m2");
  const auto e8m0 = golden("e8m0");
  ASSERT_EQ(e4m3.size(), 256u);
  ASSERT_EQ(e5m2.size(), 256u);
  ASSERT_EQ(e8m0.size(), 256u);
  for (uint32_t code = 0; code < 256; ++code) {
    const auto byte = static_cast<uint8_t>(code);
    expect_value(e4m3[code], to_float(e4m3_t{byte}), code);
    expect_value(e5m2[code], to_float(e5m2_t{byte}), code);
    expect_value(e8m0[code], to_float(e8m0_t{byte}), code);
  }
  const auto e2m1 = golden("e2m1");
  ASSERT_EQ(e2m1.size(), 16u);
  for (uint32_t code = 0; code < 16; ++code) expect_value(e2m1[code], e2m1_to_float(static_cast<uint8_t>(code)), code);
}

TEST(DTypeTables, HalfPrecisionCodes) {
  const auto pairs = golden("f16_to_f32");
  ASSERT_GE(pairs.size(), 2u * 80);
  for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
    expect_value(pairs[i + 1], to_float(f16_t{static_cast<uint16_t>(pairs[i])}), pairs[i]);
  }
}

// Every rounding case of `key`, in both signs: values, half-ways and their neighbours over the whole range. Every
// format has its sign in the top bit of its `bits`, and rounds to nearest even: the sign passes through.
template <class Convert, class Back>
void expect_rounding(const std::string& key, int bits, size_t least, const Convert& convert, const Back& back) {
  const auto pairs = golden(key);
  ASSERT_GE(pairs.size(), 2 * least) << key;
  for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
    for (uint32_t sign : {0u, 1u}) {
      const float x = float_of(pairs[i] | sign << 31);
      const uint32_t code = convert(x);
      if (std::isnan(x)) {
        EXPECT_TRUE(std::isnan(back(code))) << key;
      } else {
        EXPECT_EQ(code, pairs[i + 1] | sign << (bits - 1)) << key << " of " << x << " (bits " << pairs[i] << ")";
      }
    }
  }
}

TEST(DTypeRounding, EqualsTorchAndMlDtypesOnEveryEdge) {
  expect_rounding(
      "f32_to_bf16", 16, 950, [](float x) { return uint32_t{to_bf16(x).bits}; },
      [](uint32_t code) { return to_float(bf16_t{static_cast<uint16_t>(code)}); });
  expect_rounding(
      "f32_to_f16", 16, 950, [](float x) { return uint32_t{to_f16(x).bits}; },
      [](uint32_t code) { return to_float(f16_t{static_cast<uint16_t>(code)}); });
  expect_rounding(
      "f32_to_e4m3fn_sat", 8, 500, [](float x) { return uint32_t{to_e4m3_saturate(x).bits}; },
      [](uint32_t code) { return to_float(e4m3_t{static_cast<uint8_t>(code)}); });
  expect_rounding(
      "f32_to_e5m2_sat", 8, 500, [](float x) { return uint32_t{to_e5m2_saturate(x).bits}; },
      [](uint32_t code) { return to_float(e5m2_t{static_cast<uint8_t>(code)}); });
}

TEST(DTypeRounding, EveryCodeSurvivesARoundTrip) {
  for (uint32_t code = 0; code < 65536; ++code) {
    const auto bits = static_cast<uint16_t>(code);
    if (!std::isnan(to_float(bf16_t{bits}))) {
      ASSERT_EQ(to_bf16(to_float(bf16_t{bits})).bits, bits);
    } else {
      ASSERT_TRUE(std::isnan(to_float(to_bf16(to_float(bf16_t{bits})))));
    }
    if (!std::isnan(to_float(f16_t{bits}))) {
      ASSERT_EQ(to_f16(to_float(f16_t{bits})).bits, bits);
    }
  }
  for (uint32_t code = 0; code < 256; ++code) {
    const auto bits = static_cast<uint8_t>(code);
    if (!std::isnan(to_float(e4m3_t{bits}))) {
      EXPECT_EQ(to_e4m3_saturate(to_float(e4m3_t{bits})).bits, bits);
    }
    if (std::isfinite(to_float(e5m2_t{bits}))) {
      EXPECT_EQ(to_e5m2_saturate(to_float(e5m2_t{bits})).bits, bits);
    }
    EXPECT_EQ(to_e8m0_ceil(to_float(e8m0_t{bits})).bits, bits);
  }
  for (uint8_t code = 0; code < 16; ++code) EXPECT_EQ(to_e2m1_saturate(e2m1_to_float(code)), code);
}

TEST(DTypeRounding, E2m1TakesTheNearestAndTiesToEven) {
  // Half-way points of {0, .5, 1, 1.5, 2, 3, 4, 6} go to the code with an even last bit.
  const float half_ways[] = {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f};
  const uint8_t even[] = {0, 2, 2, 4, 4, 6, 6};
  for (size_t i = 0; i < 7; ++i) {
    EXPECT_EQ(to_e2m1_saturate(half_ways[i]), even[i]) << half_ways[i];
    EXPECT_EQ(to_e2m1_saturate(-half_ways[i]), even[i] | 8) << half_ways[i];
    EXPECT_EQ(to_e2m1_saturate(std::nextafter(half_ways[i], kInf)), i + 1);
    EXPECT_EQ(to_e2m1_saturate(std::nextafter(half_ways[i], 0.0f)), i);
  }
  EXPECT_EQ(to_e2m1_saturate(1e30f), 7);
  EXPECT_EQ(to_e2m1_saturate(-kInf), 15);
  EXPECT_EQ(to_e2m1_saturate(kNaN), 7);
}

TEST(PowersOfTwo, E8m0RoundsUpAndClamps) {
  EXPECT_EQ(to_e8m0_ceil(1.0f).bits, 127);
  EXPECT_EQ(to_e8m0_ceil(std::nextafter(1.0f, 2.0f)).bits, 128);
  EXPECT_EQ(to_e8m0_ceil(std::nextafter(1.0f, 0.0f)).bits, 127);
  EXPECT_EQ(to_e8m0_ceil(0.0f).bits, 0);
  EXPECT_EQ(to_e8m0_ceil(1e-45f).bits, 0);
  EXPECT_EQ(to_e8m0_ceil(3.4e38f).bits, 254);
  EXPECT_EQ(to_e8m0_ceil(kInf).bits, 254);
  EXPECT_EQ(to_e8m0_ceil(kNaN).bits, 255);
}

TEST(PowersOfTwo, RoundUpIsExactFromSubnormalsToTheTop) {
  for (int exponent = -149; exponent <= 127; ++exponent) {
    const float power = std::ldexp(1.0f, exponent);
    EXPECT_EQ(round_up_to_power_of_two(power), power);
    const float above = std::nextafter(power, kInf);
    // 2^-149 is followed by 2^-148 itself.
    if (above > power && exponent < 127) {
      EXPECT_EQ(round_up_to_power_of_two(above), 2 * power) << exponent;
    }
  }
  EXPECT_EQ(round_up_to_power_of_two(448.0f / 448.0f), 1.0f);
  EXPECT_EQ(round_up_to_power_of_two(3e38f), kInf);
  EXPECT_EQ(round_up_to_power_of_two(kInf), kInf);
  EXPECT_TRUE(std::isnan(round_up_to_power_of_two(kNaN)));
}

TEST(DTypeNames, RoundTripAndSizes) {
  const std::vector<std::pair<DType, std::pair<std::string, int>>> all{
      {DType::kF32, {"F32", 32}},       {DType::kF16, {"F16", 16}},       {DType::kBF16, {"BF16", 16}},
      {DType::kF8E4M3, {"F8_E4M3", 8}}, {DType::kF8E5M2, {"F8_E5M2", 8}}, {DType::kF8E8M0, {"F8_E8M0", 8}},
      {DType::kF4E2M1, {"F4", 4}},      {DType::kI8, {"I8", 8}},          {DType::kU8, {"U8", 8}},
      {DType::kI32, {"I32", 32}},       {DType::kI64, {"I64", 64}},       {DType::kBool, {"BOOL", 8}},
  };
  for (const auto& [dtype, expected] : all) {
    EXPECT_EQ(to_string(dtype), expected.first);
    EXPECT_EQ(dtype_bits(dtype), expected.second);
    const auto parsed = parse_dtype(expected.first);
    ASSERT_TRUE(parsed.ok());
    EXPECT_EQ(*parsed, dtype);
    EXPECT_EQ(dtype_bytes(dtype, 7), static_cast<size_t>((7 * expected.second + 7) / 8));
  }
  EXPECT_EQ(dtype_bytes(DType::kF4E2M1, 0), 0u);
  const auto unknown = parse_dtype("F7_E1M5");
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.error().code(), ErrorCode::kUnsupported);
  EXPECT_NE(unknown.error().message().find("F7_E1M5"), std::string::npos);
  EXPECT_FALSE(parse_dtype("").ok());
  EXPECT_FALSE(parse_dtype("bf16").ok()) << "the spelling is that of safetensors";
}

}  // namespace
}  // namespace lantern
