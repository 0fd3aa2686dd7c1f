#include "attention/top_k.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

namespace lantern {
namespace {

std::vector<int32_t> select(const std::vector<float>& scores, int32_t k) {
  std::vector<uint32_t> bins(kTopKBins, 0xdeadbeef);
  std::vector<int32_t> positions(static_cast<size_t>(k) + 1, -7);
  select_top_k(scores.data(), static_cast<int32_t>(scores.size()), k, bins.data(), positions.data());
  EXPECT_EQ(positions.back(), -7) << "wrote beyond k";
  positions.pop_back();
  return positions;
}

// A stable sort by descending score keeps lower positions first among equals.
std::vector<int32_t> sorted_choice(const std::vector<float>& scores, int32_t k) {
  std::vector<int32_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return scores[static_cast<size_t>(a)] > scores[static_cast<size_t>(b)];
  });
  order.resize(static_cast<size_t>(k));
  std::sort(order.begin(), order.end());
  return order;
}

TEST(TopK, EqualsAStableSortOnEveryKindOfScores) {
  std::mt19937 generator(5);
  std::normal_distribution<float> normal;
  const auto draw = [&](int kind) -> float {
    switch (kind) {
      case 0: return normal(generator);
      case 1: return std::max(0.0f, normal(generator));                    // half of them tie at zero
      case 2: return std::floor(2.0f * normal(generator));                 // few distinct values
      case 3: return 1.0f + 1e-7f * std::floor(8.0f * normal(generator));  // neighbours in the last places
      case 4: return normal(generator) * std::exp2(30.0f * normal(generator));
      default: return 3.5f;  // all tie
    }
  };
  for (int kind = 0; kind < 6; ++kind) {
    for (const int32_t count : {1, 2, 63, 65, 500, 5000}) {
      std::vector<float> scores(static_cast<size_t>(count));
      for (float& s : scores) s = draw(kind);
      for (const int32_t k : {1, count / 3 + 1, count - 1, count}) {
        if (k < 1) continue;
        EXPECT_EQ(select(scores, k), sorted_choice(scores, k)) << "kind " << kind << ", " << k << " of " << count;
      }
    }
  }
}

TEST(TopK, TiesTakeTheLowerPosition) {
  EXPECT_EQ(select({1, 2, 2, 2, 0}, 2), (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(select({0, 0, 5, 0, 0}, 3), (std::vector<int32_t>{0, 1, 2}));
  // The two zeros are equal, so the first of them is taken.
  EXPECT_EQ(select({-1.0f, -0.0f, 0.0f}, 1), (std::vector<int32_t>{1}));
}

TEST(TopK, InfinitiesAndNaNHaveAPlace) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(select({-infinity, 1, infinity, -1}, 2), (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(select({-infinity, 1, infinity, -1}, 3), (std::vector<int32_t>{1, 2, 3}));
  EXPECT_EQ(select({1, infinity, std::copysign(nan, 1.0f)}, 1), (std::vector<int32_t>{2}));
  EXPECT_EQ(select({std::copysign(nan, -1.0f), -infinity, 0}, 2), (std::vector<int32_t>{1, 2}));
}

}  // namespace
}  // namespace lantern
