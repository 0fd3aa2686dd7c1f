#include "device/row_count.h"

#include <gtest/gtest.h>

namespace lantern {
namespace {

TEST(RowCount, WithoutACountAllRowsAreReal) { EXPECT_EQ(RowCount().of(7), 7); }

TEST(RowCount, CountsWhatTheLaunchHasOfTheRealRows) {
  int32_t count = 5;
  const RowCount all{.count = Fixed<const int32_t>(borrow_fixed(&count, int64_t{1}))};
  EXPECT_EQ(all.of(8), 5);
  EXPECT_EQ(all.of(3), 3);
  EXPECT_EQ(all.from(4).of(4), 1);
  EXPECT_EQ(all.from(4).from(2).of(4), 0);
  count = 0;
  EXPECT_EQ(all.of(8), 0);
}

}  // namespace
}  // namespace lantern
