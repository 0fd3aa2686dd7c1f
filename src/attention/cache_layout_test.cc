#include "attention/cache_layout.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "attention/cache_write.h"
#include "attention/test_support.h"
#include "base/dtype.h"
#include "base/e4m3_encode.h"

namespace lantern {
namespace {

float f32_at(const std::vector<std::byte>& bytes, size_t offset) {
  float value;
  std::memcpy(&value, bytes.data() + offset, 4);
  return value;
}

uint16_t u16_at(const std::vector<std::byte>& bytes, size_t offset) {
  uint16_t value;
  std::memcpy(&value, bytes.data() + offset, 2);
  return value;
}

TEST(CacheLayout, SizesAreThoseOfThePublicFormats) {
  EXPECT_EQ(latent_row_bytes(LatentLayout::kF32, 512, 64).value(), 2304);
  EXPECT_EQ(latent_row_bytes(LatentLayout::kBf16, 512, 64).value(), 1152);
  EXPECT_EQ(latent_row_bytes(LatentLayout::kFp8, 512, 64).value(), 656);
  EXPECT_EQ(latent_row_bytes(LatentLayout::kBf16, 32, 8).value(), 80);
  EXPECT_EQ(index_block_bytes(IndexKeyLayout::kFp8, 128, 64), 8448);
  EXPECT_EQ(index_block_bytes(IndexKeyLayout::kBf16, 128, 64), 16384);
  EXPECT_EQ(index_block_bytes(IndexKeyLayout::kF32, 128, 64), 32768);
}

TEST(CacheLayout, Fp8NeedsWholeScaleGroups) {
  const auto bytes = latent_row_bytes(LatentLayout::kFp8, 32, 8);
  ASSERT_FALSE(bytes.ok());
  EXPECT_EQ(bytes.error().code(), ErrorCode::kUnsupported);
  EXPECT_NE(bytes.error().message().find("kv_lora_rank 32"), std::string::npos) << bytes.error().message();
}

TEST(CacheLayout, ScalesArePowersOfTwoRoundedUp) {
  for (int k = -13; k <= 20; ++k) {
    const float power = std::ldexp(1.0f, k);
    const float edge = 448.0f * power;  // exactly representable with scale 2^k
    EXPECT_EQ(latent_fp8_scale(edge), power);
    EXPECT_EQ(latent_fp8_scale(std::nextafter(edge, 1e30f)), 2.0f * power);
    EXPECT_EQ(index_key_fp8_scale(edge), power);
    EXPECT_EQ(index_key_fp8_scale(std::nextafter(edge, 1e30f)), 2.0f * power);
    EXPECT_EQ(index_query_fp8_scale(edge), power);
    EXPECT_EQ(index_query_fp8_scale(std::nextafter(edge, 1e30f)), 2.0f * power);
  }
  // The floors: 1e-4 <= 2^-13; 1e-4 / 448 = 2.23e-7 <= 2^-22; 1e-10 / 448 = 2.23e-13 <= 2^-42.
  EXPECT_EQ(latent_fp8_scale(0.0f), std::ldexp(1.0f, -13));
  EXPECT_EQ(latent_fp8_scale(448.0f * 1e-5f), std::ldexp(1.0f, -13));
  EXPECT_EQ(index_key_fp8_scale(0.0f), std::ldexp(1.0f, -22));
  EXPECT_EQ(index_key_fp8_scale(1e-5f), std::ldexp(1.0f, -22));
  EXPECT_EQ(index_query_fp8_scale(0.0f), std::ldexp(1.0f, -42));
  EXPECT_EQ(index_query_fp8_scale(1e-5f), std::ldexp(1.0f, -25));  // 2.23e-8: below the key's floor
}

// The encoder of the writers is the one of base/, at every float around every rounding boundary.
TEST(CacheLayout, FastE4m3EncoderEqualsTheExactOne) {
  const auto check = [](float x) {
    for (const float y : {x, std::nextafter(x, 1e38f), std::nextafter(x, -1e38f)}) {
      ASSERT_EQ(encode_e4m3(y).bits, to_e4m3_saturate(y).bits) << y;
      ASSERT_EQ(encode_e4m3(-y).bits, to_e4m3_saturate(-y).bits) << -y;
    }
  };
  for (uint32_t code = 0; code < 0x7e; ++code) {
    const float low = to_float(e4m3_t{static_cast<uint8_t>(code)});
    const float high = to_float(e4m3_t{static_cast<uint8_t>(code + 1)});
    check(low);
    check((low + high) / 2);
    check(high);
  }
  for (const float x : {464.0f, 480.0f, 1e30f, std::numeric_limits<float>::max(), 1e-30f, 1e-40f}) check(x);
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(encode_e4m3(infinity).bits, 0x7e);
  EXPECT_EQ(encode_e4m3(-infinity).bits, 0xfe);
  EXPECT_EQ(encode_e4m3(std::numeric_limits<float>::quiet_NaN()).bits & 0x7f, 0x7f);
  std::mt19937 generator(3);
  for (int i = 0; i < 1000000; ++i) {
    const float x = std::bit_cast<float>(static_cast<uint32_t>(generator()));
    if (std::isnan(x)) continue;
    ASSERT_EQ(encode_e4m3(x).bits, to_e4m3_saturate(x).bits) << x;
  }
}

TEST(CacheLayout, LatentFp8RowByHand) {
  std::vector<float> latent(512 + 64, 0.0f);
  latent[0] = 448.0f;       // group 0: scale 1
  latent[1] = -1.0f;        // 0xb8
  latent[2] = 0.3f;         // between 0.28125 and 0.3125: 0x2a
  latent[128] = 449.0f;     // group 1: scale 2, 224.5 rounds to 224 = 0x76
  latent[129] = 2.0f;       // 1.0 = 0x38
  latent[256] = 7.0f;       // group 2: 7 / 448 = 2^-6, 448 = 0x7e
  latent[257] = 1.0f / 64;  // 1.0
  // Group 3 is zero: scale 2^-13.
  latent[512] = 1.0f;         // bf16 0x3f80
  latent[575] = -3.140625f;   // bf16 0xc049
  latent[513] = 1.00390625f;  // halfway between 1 and 1 + 2^-7: to even, 0x3f80
  std::vector<std::byte> row(656, std::byte{0xaa});
  encode_latent(LatentLayout::kFp8, latent.data(), 512, 64, row.data());
  EXPECT_EQ(row[0], std::byte{0x7e});
  EXPECT_EQ(row[1], std::byte{0xb8});
  EXPECT_EQ(row[2], std::byte{0x2a});
  EXPECT_EQ(row[3], std::byte{0x00});
  EXPECT_EQ(row[128], std::byte{0x76});
  EXPECT_EQ(row[129], std::byte{0x38});
  EXPECT_EQ(row[256], std::byte{0x7e});
  EXPECT_EQ(row[257], std::byte{0x38});
  EXPECT_EQ(row[511], std::byte{0x00});
  EXPECT_EQ(f32_at(row, 512), 1.0f);
  EXPECT_EQ(f32_at(row, 516), 2.0f);
  EXPECT_EQ(f32_at(row, 520), 1.0f / 64);
  EXPECT_EQ(f32_at(row, 524), std::ldexp(1.0f, -13));
  EXPECT_EQ(u16_at(row, 528), 0x3f80);
  EXPECT_EQ(u16_at(row, 530), 0x3f80);
  EXPECT_EQ(u16_at(row, 654), 0xc049);

  std::vector<float> back(576);
  decode_latent(LatentLayout::kFp8, row.data(), 512, 64, back.data());
  EXPECT_EQ(back[0], 448.0f);
  EXPECT_EQ(back[1], -1.0f);
  EXPECT_EQ(back[2], 0.3125f);
  EXPECT_EQ(back[128], 448.0f);
  EXPECT_EQ(back[256], 7.0f);
  EXPECT_EQ(back[512], 1.0f);
  EXPECT_EQ(back[575], -3.140625f);
}

TEST(CacheLayout, IndexKeysArePlanarInABlock) {
  std::vector<std::byte> block(8448, std::byte{0xaa});
  std::vector<float> key(128, 0.0f);
  key[0] = 896.0f;  // scale 2, 448
  key[127] = -2.0f;
  encode_index_key(IndexKeyLayout::kFp8, key.data(), 128, 64, 3, block.data());
  for (size_t i = 0; i < block.size(); ++i) {
    const bool inside = (i >= 384 && i < 512) || (i >= 8192 + 12 && i < 8192 + 16);
    ASSERT_TRUE(inside || block[i] == std::byte{0xaa}) << i;
  }
  EXPECT_EQ(block[384], std::byte{0x7e});
  EXPECT_EQ(block[385], std::byte{0x00});
  EXPECT_EQ(block[511], std::byte{0xb8});
  EXPECT_EQ(f32_at(block, 8192 + 12), 2.0f);
  std::vector<float> back(128);
  decode_index_key(IndexKeyLayout::kFp8, block.data(), 128, 64, 3, back.data());
  EXPECT_EQ(back, key);
}

TEST(CacheLayout, RoundTripStaysWithinHalfAStep) {
  std::mt19937 generator(11);
  for (int trial = 0; trial < 50; ++trial) {
    const std::vector<float> latent =
        test::random_floats(generator, 576, std::exp2(static_cast<float>(trial % 11 - 5)));
    std::vector<std::byte> row(2304);
    std::vector<float> back(576);
    encode_latent(LatentLayout::kF32, latent.data(), 512, 64, row.data());
    decode_latent(LatentLayout::kF32, row.data(), 512, 64, back.data());
    EXPECT_EQ(back, latent);
    encode_latent(LatentLayout::kBf16, latent.data(), 512, 64, row.data());
    decode_latent(LatentLayout::kBf16, row.data(), 512, 64, back.data());
    for (size_t i = 0; i < 576; ++i) EXPECT_LE(std::fabs(back[i] - latent[i]), std::fabs(latent[i]) / 256);
    encode_latent(LatentLayout::kFp8, latent.data(), 512, 64, row.data());
    decode_latent(LatentLayout::kFp8, row.data(), 512, 64, back.data());
    for (size_t i = 0; i < 512; ++i) {
      float amax = 0.0f;
      for (size_t j = i / 128 * 128; j < i / 128 * 128 + 128; ++j) amax = std::max(amax, std::fabs(latent[j]));
      // Half a step: 2^-4 of the value, or half of the smallest step 2^-9 of the scale.
      const float bound = std::max(std::fabs(latent[i]) / 16, latent_fp8_scale(amax) * std::ldexp(1.0f, -10));
      EXPECT_LE(std::fabs(back[i] - latent[i]), bound);
    }
  }
}

TEST(CacheLayout, ZeroedMemoryDecodesToZeros) {
  const std::vector<std::byte> zeros(32768);
  for (const LatentLayout layout : {LatentLayout::kF32, LatentLayout::kBf16, LatentLayout::kFp8}) {
    std::vector<float> latent(576, 1.0f);
    decode_latent(layout, zeros.data(), 512, 64, latent.data());
    EXPECT_EQ(latent, std::vector<float>(576, 0.0f));
  }
  for (const IndexKeyLayout layout : {IndexKeyLayout::kF32, IndexKeyLayout::kBf16, IndexKeyLayout::kFp8}) {
    std::vector<float> key(128, 1.0f);
    decode_index_key(layout, zeros.data(), 128, 64, 63, key.data());
    EXPECT_EQ(key, std::vector<float>(128, 0.0f));
  }
}

TEST(CacheWrite, WritesTheSlotsAndNothingElse) {
  test::Host host(2);
  std::mt19937 generator(1);
  // Rows further apart than they are long.
  std::vector<float> latent = test::random_floats(generator, 4 * 600);
  std::vector<int32_t> slots = {70, -1, 64, 129};
  std::vector<std::byte> cache(192 * 656, std::byte{0x5a});
  LatentWriteParams p;
  p.latent = test::in(latent);
  p.latent_stride = 600;
  p.slot_mapping = test::in(slots);
  p.cache = test::fixed(cache);
  p.row_bytes = 656;
  p.layout = LatentLayout::kFp8;
  p.kv_lora_rank = 512;
  p.rope_dim = 64;
  p.tokens = 4;
  write_latent(host.stream, p);
  std::vector<std::byte> want(192 * 656, std::byte{0x5a});
  for (const size_t t : {size_t{0}, size_t{2}, size_t{3}}) {
    encode_latent(LatentLayout::kFp8, latent.data() + t * 600, 512, 64,
                  want.data() + static_cast<size_t>(slots[t]) * 656);
  }
  EXPECT_EQ(cache, want);

  std::vector<std::byte> blocks(3 * 8464, std::byte{0x5a});  // padded blocks
  IndexKeyWriteParams k;
  k.key = test::in(latent);
  k.key_stride = 600;
  k.slot_mapping = test::in(slots);
  k.cache = test::fixed(blocks);
  k.block_bytes = 8464;
  k.dim = 128;
  k.tokens = 4;
  write_index_key(host.stream, k);
  std::vector<std::byte> want_blocks(3 * 8464, std::byte{0x5a});
  for (const size_t t : {size_t{0}, size_t{2}, size_t{3}}) {
    encode_index_key(IndexKeyLayout::kFp8, latent.data() + t * 600, 128, 64, slots[t] % 64,
                     want_blocks.data() + slots[t] / 64 * 8464);
  }
  EXPECT_EQ(blocks, want_blocks);
}

TEST(CacheWrite, HadamardEqualsTheMatrixAndIsItsOwnInverse) {
  std::mt19937 generator(9);
  const std::vector<float> x = test::random_floats(generator, 128);
  std::vector<float> y = x;
  hadamard_transform(y.data(), 128);
  for (size_t i = 0; i < 128; ++i) {
    double sum = 0.0;
    for (size_t j = 0; j < 128; ++j) sum += (std::popcount(i & j) % 2 == 0 ? 1.0 : -1.0) * double{x[j]};
    EXPECT_NEAR(y[i], sum / std::sqrt(128.0), 2e-6);
  }
  hadamard_transform(y.data(), 128);
  for (size_t i = 0; i < 128; ++i) EXPECT_NEAR(y[i], x[i], 2e-6);
}

}  // namespace
}  // namespace lantern
