#include "ops/random_fill.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/dtype.h"
#include "ops/host_op_test.h"

namespace lantern {
namespace {

std::vector<std::byte> filled(int threads, RandomValues values, uint64_t key, float width, int64_t bytes) {
  HostOps ops(threads);
  std::vector<std::byte> memory(static_cast<size_t>(bytes) + 8, std::byte{0x5a});
  random_fill(ops.stream,
              {.data = fixed(memory).sub(0, bytes), .bytes = bytes, .values = values, .key = key, .width = width});
  EXPECT_EQ(std::count(memory.end() - 8, memory.end(), std::byte{0x5a}), 8) << "written beyond the end";
  memory.resize(static_cast<size_t>(bytes));
  return memory;
}

std::vector<double> numbers(const std::vector<std::byte>& memory, RandomValues values) {
  std::vector<double> all;
  const size_t size = values == RandomValues::kF32 ? 4 : values == RandomValues::kBf16 ? 2 : 1;
  for (size_t at = 0; at + size <= memory.size(); at += size) {
    uint32_t bits = 0;
    std::memcpy(&bits, memory.data() + at, size);
    if (values == RandomValues::kF32) all.push_back(std::bit_cast<float>(bits));
    if (values == RandomValues::kBf16) all.push_back(to_float(bf16_t{static_cast<uint16_t>(bits)}));
    if (values == RandomValues::kE4m3) all.push_back(to_float(e4m3_t{static_cast<uint8_t>(bits)}));
  }
  return all;
}

TEST(RandomFill, IsUniformAndFinite) {
  for (const RandomValues kind : {RandomValues::kF32, RandomValues::kBf16}) {
    const std::vector<double> all = numbers(filled(2, kind, 1, 3.0f, 1 << 18), kind);
    double sum = 0, squares = 0, largest = 0;
    for (const double value : all) {
      sum += value;
      squares += value * value;
      largest = std::max(largest, std::fabs(value));
    }
    const auto count = static_cast<double>(all.size());
    EXPECT_LE(largest, 3.0);
    EXPECT_GT(largest, 2.98);  // the bf16 below 3 is 2.984
    // The mean of 65536 values has a standard deviation of 0.007.
    EXPECT_NEAR(sum / count, 0, 0.035);
    EXPECT_NEAR(std::sqrt(squares / count), std::sqrt(3.0), 0.02);
  }
}

TEST(RandomFill, HasEveryE4m3CodeButNaN) {
  const std::vector<std::byte> memory = filled(2, RandomValues::kE4m3, 5, 0, 1 << 18);
  const std::set<std::byte> codes(memory.begin(), memory.end());
  EXPECT_EQ(codes.size(), 254u);
  EXPECT_FALSE(codes.contains(std::byte{0x7f}) || codes.contains(std::byte{0xff}));
}

TEST(RandomFill, WeightsKeepTheSizeOfWhatTheyAreMultipliedWith) {
  for (const int64_t cols : {48, 2048, 7168}) {
    const auto rms_of = [](RandomValues kind, float width) {
      double squares = 0;
      const std::vector<double> all = numbers(filled(2, kind, 5, width, 1 << 18), kind);
      for (const double value : all) squares += value * value;
      return std::sqrt(squares / static_cast<double>(all.size()));
    };
    const double wanted = 1 / std::sqrt(static_cast<double>(cols));
    EXPECT_NEAR(rms_of(RandomValues::kBf16, random_weight_width(cols)) / wanted, 1, 0.01);
    const float scale = random_weight_scale(cols);
    EXPECT_EQ(std::log2(scale), std::round(std::log2(scale)));
    EXPECT_LE(std::fabs(std::log2(scale * rms_of(RandomValues::kE4m3, 0) / wanted)), 0.52);
  }
}

// The words of splitmix64 from the state 0, as its authors' program prints them.
TEST(RandomFill, IsSplitmix64) {
  EXPECT_EQ(random_word(0, 0), 0xe220a8397b1dcdafu);
  EXPECT_EQ(random_word(0, 1), 0x6e789e6aa1b965f4u);
}

TEST(RandomFill, DependsOnKeyAndPlaceAlone) {
  for (const RandomValues kind : {RandomValues::kF32, RandomValues::kBf16, RandomValues::kE4m3}) {
    const std::vector<std::byte> one = filled(1, kind, 7, 1, 300'004);
    EXPECT_EQ(one, filled(2, kind, 7, 1, 300'004));
    EXPECT_NE(one, filled(1, kind, 8, 1, 300'004));
    for (const int64_t bytes : {0, 1, 7, 8, 4095}) {
      EXPECT_EQ(filled(2, kind, 7, 1, bytes), std::vector<std::byte>(one.begin(), one.begin() + bytes)) << bytes;
    }
  }
}

}  // namespace
}  // namespace lantern
