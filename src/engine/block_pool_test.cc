#include "engine/block_pool.h"

#include <gtest/gtest.h>

#include <vector>

namespace lantern {
namespace {

TEST(BlockPool, NullBlockIsNeverLeased) {
  BlockPool pool(4);
  std::vector<BlockLease> leases;
  leases.reserve(3);
  for (int i = 0; i < 3; ++i) leases.push_back(pool.allocate());
  for (const BlockLease& lease : leases) EXPECT_NE(lease.id(), kNullBlock);
  EXPECT_EQ(pool.num_available(), 0);
  EXPECT_DEATH(static_cast<void>(pool.allocate()), "no block is available");
}

TEST(BlockPool, LeasesAreCountedAndMoveWithoutCounting) {
  BlockPool pool(3);
  BlockLease first = pool.allocate();
  const BlockId block = first.id();
  BlockLease second = first.share();
  EXPECT_EQ(pool.ref_count(block), 2);
  BlockLease moved = std::move(first);
  EXPECT_EQ(pool.ref_count(block), 2);
  EXPECT_FALSE(first);  // NOLINT(bugprone-use-after-move): what a moved-from lease is, is the point
  moved.reset();
  moved.reset();
  EXPECT_EQ(pool.ref_count(block), 1);
  second = pool.allocate();
  EXPECT_EQ(pool.ref_count(block), 0) << "assignment ends the old lease";
  EXPECT_EQ(pool.num_free(), 1);
}

TEST(BlockPool, CachedBlocksAreGivenAwayOldestFirstAndOnlyWhenNoneIsFree) {
  struct Listener final : BlockPool::EvictionListener {
    std::vector<BlockId> evicted;
    void on_eviction(BlockId block) override { evicted.push_back(block); }
  } listener;
  BlockPool pool(4);
  pool.set_eviction_listener(&listener);
  std::vector<BlockLease> leases;
  leases.reserve(3);
  for (int i = 0; i < 3; ++i) leases.push_back(pool.allocate());
  const std::vector<BlockId> ids{leases[0].id(), leases[1].id(), leases[2].id()};
  pool.set_indexed(ids[0], true);
  pool.set_indexed(ids[1], true);
  leases[1].reset();
  leases[0].reset();
  leases[2].reset();
  EXPECT_EQ(pool.num_cached(), 2);
  EXPECT_EQ(pool.num_free(), 1);

  // A lease brings a cached block back, and its turn starts anew.
  pool.lease(ids[1]).reset();
  const BlockLease a = pool.allocate();
  EXPECT_EQ(a.id(), ids[2]);
  EXPECT_TRUE(listener.evicted.empty());
  const BlockLease b = pool.allocate();
  const BlockLease c = pool.allocate();
  EXPECT_EQ(listener.evicted, (std::vector<BlockId>{ids[0], ids[1]}));
  EXPECT_FALSE(pool.indexed(c.id()));
}

TEST(BlockPool, CachedBlocksAreFreedAndLeasedOnesKept) {
  struct Listener final : BlockPool::EvictionListener {
    int count = 0;
    void on_eviction(BlockId) override { ++count; }
  } listener;
  BlockPool pool(4);
  pool.set_eviction_listener(&listener);
  BlockLease cached = pool.allocate();
  const BlockLease leased = pool.allocate();
  const BlockId block = cached.id();
  pool.set_indexed(block, true);
  pool.set_indexed(leased.id(), true);
  cached.reset();
  EXPECT_EQ(pool.free_cached(), 1);
  EXPECT_EQ(listener.count, 1);
  EXPECT_EQ(pool.state(block), BlockState::kFree);
  EXPECT_EQ(pool.num_free(), 2);
  EXPECT_TRUE(pool.indexed(leased.id()));
  EXPECT_EQ(pool.free_cached(), 0);
}

TEST(BlockPool, MistakesEndTheProcess) {
  BlockPool pool(3);
  EXPECT_DEATH(static_cast<void>(pool.lease(1)), "block 1 is free");
  EXPECT_DEATH(static_cast<void>(pool.lease(kNullBlock)), "block 0 of 3");
  EXPECT_DEATH(pool.set_indexed(1, true), "is not leased");
  EXPECT_DEATH(BlockPool(1), "none beside the null block");
  EXPECT_DEATH(
      {
        auto* dying = new BlockPool(3);
        const BlockLease lease = dying->allocate();
        delete dying;
      },
      "1 blocks are still leased");
}

}  // namespace
}  // namespace lantern
