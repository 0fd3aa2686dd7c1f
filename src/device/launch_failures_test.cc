#include "device/launch_failures.h"

#include <gtest/gtest.h>

namespace lantern {
namespace {

TEST(LaunchFailures, KeepTheFirstAndEndWhereTheyBegan) {
  EXPECT_EQ(LaunchFailures::heard_by(), nullptr);
  LaunchFailures outer;
  {
    LaunchFailures inner;
    LaunchFailures::heard_by()->note("first");
    LaunchFailures::heard_by()->note("second");
    ASSERT_FALSE(inner.status().ok());
    EXPECT_EQ(inner.status().error().message(), "first");
  }
  EXPECT_EQ(LaunchFailures::heard_by(), &outer);
  EXPECT_TRUE(outer.status().ok());
}

}  // namespace
}  // namespace lantern
