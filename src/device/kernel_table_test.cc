#include "device/kernel_table.h"

#include <gtest/gtest.h>

namespace lantern {
namespace {

TEST(KernelTable, AsksOnceForEachKernelOfEachDevice) {
  KernelTable<int> table;
  const int kernels[2] = {};
  int asked = 0;
  const auto ask = [&] { return std::optional<int>(++asked); };
  EXPECT_EQ(table.find(&kernels[0], 0, [] { return std::optional<int>(); }), nullptr);  // is not kept
  const int* const first = table.find(&kernels[0], 0, ask);
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(*first, 1);
  EXPECT_EQ(*table.find(&kernels[0], 1, ask), 2);
  EXPECT_EQ(*table.find(&kernels[1], 0, ask), 3);
  EXPECT_EQ(table.find(&kernels[0], 0, ask), first);
  EXPECT_EQ(asked, 3);
}

}  // namespace
}  // namespace lantern
