#include "device/workspace.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <vector>

namespace lantern {
namespace {

static_assert(!std::is_copy_constructible_v<Workspace>);
static_assert(!std::is_move_assignable_v<Workspace>);

struct Layout {
  Fixed<float> hidden;
  Fixed<std::byte> attention_scratch;
  Fixed<double> mlp_scratch;
  Fixed<int32_t> tokens;
};

// Two scratch regions that share memory, between two that do not.
Layout lay_out(Workspace& workspace) {
  Layout layout;
  layout.hidden = workspace.take<float>(65);
  const size_t mark = workspace.mark();
  layout.attention_scratch = workspace.take<std::byte>(1001);
  workspace.rewind(mark);
  layout.mlp_scratch = workspace.take<double>(40);
  layout.tokens = workspace.take<int32_t>(3);
  return layout;
}

TEST(Workspace, TheCountingPassGivesTheBytesOfTheRealOne) {
  Workspace counting = Workspace::counting();
  const Layout counted = lay_out(counting);
  EXPECT_EQ(counted.hidden.data(), nullptr);
  EXPECT_EQ(counted.hidden.size(), 65);
  // hidden 260 bytes, rounded to 512; then the widest of 1001, and 320 rounded to 512 plus 12.
  EXPECT_EQ(counting.peak_bytes(), 512u + 1001u);

  const auto device = make_host_device(1);
  auto real = Workspace::create(*device, counting.peak_bytes());
  ASSERT_TRUE(real.ok());
  const Layout layout = lay_out(*real);
  EXPECT_EQ(real->peak_bytes(), counting.peak_bytes());
  EXPECT_EQ(device->ledger().total_bytes(MemoryClass::kWorkspace), counting.peak_bytes());
  EXPECT_EQ(static_cast<const void*>(layout.attention_scratch.data()),
            static_cast<const void*>(layout.mlp_scratch.data()));
  for (const void* address :
       {static_cast<const void*>(layout.hidden.data()), static_cast<const void*>(layout.mlp_scratch.data()),
        static_cast<const void*>(layout.tokens.data())}) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(address) % 256, 0u);
  }
  EXPECT_TRUE(device->ledger().contains(layout.tokens.data(), 12));
  // Regions that do not share are disjoint and inside of the allocation.
  std::memset(layout.hidden.data(), 1, 260);
  std::memset(layout.mlp_scratch.data(), 2, 320);
  std::memset(layout.tokens.data(), 3, 12);
  EXPECT_EQ(reinterpret_cast<const unsigned char*>(layout.hidden.data())[259], 1);
  EXPECT_EQ(reinterpret_cast<const unsigned char*>(layout.mlp_scratch.data())[319], 2);
}

TEST(Workspace, MovesItsMemoryAndReturnsItOnce) {
  const auto device = make_host_device(1);
  {
    auto made = Workspace::create(*device, 4096);
    ASSERT_TRUE(made.ok());
    Workspace moved = std::move(made).value();
    EXPECT_NE(moved.take<float>(10).data(), nullptr);
    EXPECT_EQ(device->ledger().entries().size(), 1u);
  }
  EXPECT_TRUE(device->ledger().entries().empty());
}

TEST(Workspace, IsRefusedWithNumbersWhenTooLarge) {
  const auto device = make_host_device(1);
  const auto made = Workspace::create(*device, size_t{1} << 60);
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().code(), ErrorCode::kOutOfMemory);
}

TEST(WorkspaceDeathTest, ALayoutThatDiffersFromTheCountedOneIsFound) {
  const auto device = make_host_device(1);
  auto made = Workspace::create(*device, 1024);
  ASSERT_TRUE(made.ok());
  (void)made->take<std::byte>(1024);
  EXPECT_DEATH((void)made->take<std::byte>(1), "workspace of 1024 bytes was laid out for 1025");
}

TEST(WorkspaceDeathTest, ImpossibleSizesAreBrokenInvariants) {
  Workspace counting = Workspace::counting();
  EXPECT_DEATH((void)counting.take<float>(-1), "-1 elements");
  EXPECT_DEATH((void)counting.take<double>(std::numeric_limits<int64_t>::max()), "elements of 8 bytes");
  EXPECT_DEATH(counting.rewind(1), "rewound forward");
}

}  // namespace
}  // namespace lantern
