#include "engine/step_cost.h"

#include <gtest/gtest.h>

namespace lantern {
namespace {

TEST(TokenCost, IsStraightBetweenPowersOfTwo) {
  const double measured[] = {1.0, 1.5, 3.5, 4.0};  // of 1, 2, 4 and 8 tokens
  const TokenCost cost = TokenCost::from_powers(measured, 4);
  EXPECT_EQ(cost.at(0), 0);
  EXPECT_EQ(cost.at(1), 1.0);
  EXPECT_EQ(cost.at(2), 1.5);
  EXPECT_EQ(cost.at(3), 2.5);
  EXPECT_EQ(cost.at(4), 3.5);
  EXPECT_DOUBLE_EQ(cost.at(5), 3.625);
  EXPECT_EQ(cost.at(8), 4.0);
  // 0.5 for four tokens, from there on.
  EXPECT_DOUBLE_EQ(cost.at(16), 5.0);
  EXPECT_DOUBLE_EQ(cost.at(12), 4.5);
  EXPECT_DOUBLE_EQ(cost.at(1024), 4.0 + 1016 * 0.125);
  EXPECT_DOUBLE_EQ(cost.at(1 << 20), 4.0 + ((1 << 20) - 8) * 0.125);
}

// A size that was disturbed costs no more than a larger one that was not: else the larger one seemed to come for
// nothing.
TEST(TokenCost, NeverFallsWithTheSize) {
  const double disturbed[] = {1.0, 5.0, 2.0, 6.0};
  const TokenCost cost = TokenCost::from_powers(disturbed, 4);
  EXPECT_EQ(cost.at(1), 1.0);
  EXPECT_EQ(cost.at(2), 2.0);
  EXPECT_EQ(cost.at(4), 2.0);
  EXPECT_EQ(cost.at(8), 6.0);
  const double falling[] = {3.0, 2.0};
  EXPECT_EQ(TokenCost::from_powers(falling, 2).at(1), 2.0);
  EXPECT_EQ(TokenCost::from_powers(falling, 2).at(100), 2.0);
  const double one[] = {2.0};
  EXPECT_EQ(TokenCost::from_powers(one, 1).at(8), 16.0);
}

TEST(TokenCost, Linear) {
  const TokenCost cost = TokenCost::linear(1.0, 0.25);
  for (const int32_t tokens : {1, 2, 3, 7, 100, 65536, 200000}) {
    EXPECT_DOUBLE_EQ(cost.at(tokens), 1.0 + 0.25 * tokens) << tokens;
  }
}

}  // namespace
}  // namespace lantern
