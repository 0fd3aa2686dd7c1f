#include "device/launch_pointers.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <random>
#include <vector>

namespace lantern {
namespace {

template <class Params>
std::vector<LaunchPointer> pointers_in(const Params& params) {
  static_assert(std::is_trivially_copyable_v<Params>);
  const std::span bytes(reinterpret_cast<const std::byte*>(&params), sizeof(params));
  std::vector<LaunchPointer> found;
  for (auto next = next_pointer(bytes, 0); next; next = next_pointer(bytes, next->offset + 16)) found.push_back(*next);
  return found;
}

struct Inner {
  int32_t rows = 3;
  DevPtr<const double> weights;
};
struct Params {
  bool flag = true;
  DevPtr<float> x;
  int32_t count = -1;
  Inner inner[2];
  DevPtr<std::byte> none;
  DevPtr<const int32_t> y;
};

TEST(LaunchPointers, AreFoundWhereverTheyAreWithTheirExtent) {
  std::vector<float> x(9);
  std::vector<double> weights(7);
  std::vector<int32_t> y(5);
  Params params;
  params.x = borrow_fixed(x.data(), 9);
  params.inner[1].weights = borrow_fixed(weights.data(), 7).sub(2, 4);
  params.y = borrow_fixed(y.data(), 0);
  const std::vector<LaunchPointer> found = pointers_in(params);
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].offset, offsetof(Params, x));
  EXPECT_EQ(found[0].address, x.data());
  EXPECT_EQ(found[0].bytes, 36u);
  EXPECT_EQ(found[1].offset, offsetof(Params, inner) + sizeof(Inner) + offsetof(Inner, weights));
  EXPECT_EQ(found[1].address, weights.data() + 2);
  EXPECT_EQ(found[1].bytes, 32u);
  EXPECT_EQ(found[2].offset, offsetof(Params, y));
  EXPECT_EQ(found[2].bytes, 0u);
}

TEST(LaunchPointers, SizesThatMakeNoSenseAreFarTooLong) {
  double value = 0;
  struct One {
    DevPtr<double> x;
  };
  for (const int64_t size : {int64_t{-1}, std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max(),
                             int64_t{1} << 61, int64_t{1} << 45}) {
    const auto found = pointers_in(One{borrow_fixed(&value, size)});
    ASSERT_EQ(found.size(), 1u);
    EXPECT_EQ(found[0].bytes, kDeviceExtentMask) << size;
  }
}

// Words that parameters hold beside pointers: counts, strides, floats, seeds.
TEST(LaunchPointers, NumbersAreNotTakenForPointers) {
  std::mt19937_64 random(7);
  std::vector<uint64_t> words;
  for (int i = 0; i < 100000; ++i) {
    const auto small = static_cast<int32_t>(random() % 200000) - 65536;
    const auto other = static_cast<int32_t>(random() % 2000000);
    const float scale = std::ldexp(1.0f + static_cast<float>(random() % 1000) / 1000, static_cast<int>(random() % 40));
    uint32_t bits;
    std::memcpy(&bits, &scale, sizeof(bits));
    words.push_back(static_cast<uint64_t>(int64_t{small} * (1 << 20)));
    words.push_back((uint64_t{static_cast<uint32_t>(small)} << 32) | static_cast<uint32_t>(other));
    words.push_back((uint64_t{bits} << 32) | static_cast<uint32_t>(other));
  }
  const std::span bytes(reinterpret_cast<const std::byte*>(words.data()), words.size() * 8);
  EXPECT_FALSE(next_pointer(bytes, 0).has_value());
}

// A count, a size, and four bytes of padding that hold what makes them look like a pointer.
TEST(LaunchPointers, ACountBesidePaddingIsNotTakenForAPointer) {
  struct CountAndSize {
    uint64_t rows;
    uint64_t vocab_and_padding;
  };
  for (uint64_t rows = 1; rows < 65536; rows += 5) {
    for (const uint64_t vocab : {uint64_t{32}, uint64_t{2048}, uint64_t{129280}}) {
      const CountAndSize params{rows, device_extent(rows, vocab)};
      EXPECT_TRUE(pointers_in(params).empty()) << rows << " rows of " << vocab;
    }
  }
}

}  // namespace
}  // namespace lantern
