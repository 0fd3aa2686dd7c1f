#include "base/median.h"

#include <gtest/gtest.h>

namespace lantern {
namespace {

TEST(Median, IsTheMiddleOne) {
  EXPECT_EQ(median({4}), 4);
  EXPECT_EQ(median({9, 1, 5}), 5);
  EXPECT_EQ(median({9, 1, 5, 100}), 7);
  EXPECT_EQ(median({2, 2, 2, 8}), 2);
  EXPECT_DEATH(median({}), "no values");
}

}  // namespace
}  // namespace lantern
