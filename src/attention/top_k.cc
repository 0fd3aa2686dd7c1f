#include "attention/top_k.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace lantern {
namespace {

// An unsigned number that grows with the score.
inline uint32_t order_key(float score) {
  const uint32_t bits = std::bit_cast<uint32_t>(score + 0.0f);  // -0 becomes +0
  const uint32_t flip = static_cast<uint32_t>(static_cast<int32_t>(bits) >> 31) | 0x80000000u;
  return bits ^ flip;
}

struct Digit {
  int shift;
  uint32_t bits;
};
// 32 bits from the top.
constexpr Digit kDigits[] = {{21, 11}, {10, 11}, {0, 10}};

}  // namespace

void select_top_k(const float* scores, int32_t count, int32_t k, uint32_t* bins, int32_t* positions) {
  CHECK(k > 0 && k <= count, "the top {} of {} scores", k, count);
  // Radix selection of the k-th largest key: the digits found so far are `prefix`, and `wanted` keys that start with it
  // belong to the k largest.
  uint32_t prefix = 0;
  uint32_t mask = 0;
  auto wanted = static_cast<uint32_t>(k);
  for (const Digit& digit : kDigits) {
    const uint32_t digit_mask = (1u << digit.bits) - 1;
    std::fill_n(bins, digit_mask + 1, 0u);
    for (int32_t i = 0; i < count; ++i) {
      const uint32_t key = order_key(scores[i]);
      if ((key & mask) == prefix) ++bins[(key >> digit.shift) & digit_mask];
    }
    uint32_t bin = digit_mask;
    while (bins[bin] < wanted) wanted -= bins[bin--];
    prefix |= bin << digit.shift;
    mask |= digit_mask << digit.shift;
  }
  int32_t found = 0;
  for (int32_t i = 0; i < count && found < k; ++i) {
    const uint32_t key = order_key(scores[i]);
    if (key > prefix) {
      positions[found++] = i;
    } else if (key == prefix && wanted > 0) {
      positions[found++] = i;
      --wanted;
    }
  }
}

}  // namespace lantern
