#include "device/memory_room.h"

#include <gtest/gtest.h>

#include <array>

namespace lantern {
namespace {

TEST(MemoryRoom, SaysWhatIsTooMuchTogether) {
  const auto device = make_host_device(1);
  constexpr int64_t kMiB = 1 << 20;
  EXPECT_TRUE(check_room(*device, std::array{MemoryNeed{"a", kMiB}, MemoryNeed{"b", kMiB}}, "take less").ok());
  // Sums that an int64_t cannot hold are too much as well.
  const Status refused = check_room(
      *device, std::array{MemoryNeed{"the caches", INT64_MAX}, MemoryNeed{"the rest", INT64_MAX}}, "take less");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), ErrorCode::kOutOfMemory);
  const std::string& message = refused.error().message();
  EXPECT_TRUE(
      message.starts_with("cpu (1 threads) needs 17179869184.00 GiB (8589934592.00 GiB for the caches, "
                          "8589934592.00 GiB for the rest), but only "))
      << message;
  EXPECT_TRUE(message.ends_with(" GiB are free; take less")) << message;
}

}  // namespace
}  // namespace lantern
