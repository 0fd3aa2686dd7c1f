#include "engine/prefix_index.h"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <random>
#include <vector>

namespace lantern {
namespace {

constexpr int32_t kSize = 4;

class PrefixIndexTest : public testing::Test {
 protected:
  std::vector<BlockHash> chain_of(const std::vector<int32_t>& tokens, std::string_view salt = "") const {
    std::vector<BlockHash> chain;
    BlockHash parent = hasher_.root(salt);
    for (size_t i = 0; i + kSize <= tokens.size(); i += kSize) {
      parent = hasher_.extend(parent, std::span(tokens).subspan(i, kSize));
      chain.push_back(parent);
    }
    return chain;
  }
  std::vector<BlockLease> publish(const std::vector<int32_t>& tokens, std::string_view salt = "") {
    std::vector<BlockLease> leases;
    const std::vector<BlockHash> chain = chain_of(tokens, salt);
    for (size_t i = 0; i < chain.size(); ++i) {
      leases.push_back(pool_.allocate());
      index_.publish(leases.back().id(), i == 0 ? hasher_.root(salt) : chain[i - 1], chain[i],
                     std::span(tokens).subspan(i * kSize, kSize));
    }
    return leases;
  }
  int32_t hits(const std::vector<int32_t>& tokens, std::string_view salt = "") {
    return index_.match(hasher_.root(salt), chain_of(tokens, salt), tokens, found_);
  }

  BlockHasher hasher_{HashKey::from_seed(7)};
  BlockPool pool_{9};
  PrefixIndex index_{pool_, kSize};
  std::array<BlockId, 16> found_{};
};

TEST_F(PrefixIndexTest, FindsTheLongestKnownPrefixOfFullBlocks) {
  const auto leases = publish({1, 2, 3, 4, 5, 6, 7, 8, 9});
  ASSERT_EQ(leases.size(), 2u);
  EXPECT_EQ(hits({1, 2, 3, 4, 5, 6, 7, 8}), 2);
  EXPECT_EQ(found_[0], leases[0].id());
  EXPECT_EQ(found_[1], leases[1].id());
  EXPECT_EQ(hits({1, 2, 3, 4, 5, 6, 7}), 1);
  EXPECT_EQ(hits({1, 2, 3, 4, 5, 6, 7, 9}), 1);
  EXPECT_EQ(hits({1, 2, 3}), 0);
  EXPECT_EQ(hits({5, 6, 7, 8}), 0) << "the same tokens after another text are another block";
}

TEST_F(PrefixIndexTest, SaltsSeparate) {
  const auto leases = publish({1, 2, 3, 4}, "alice");
  EXPECT_EQ(hits({1, 2, 3, 4}, "alice"), 1);
  EXPECT_EQ(hits({1, 2, 3, 4}, "bob"), 0);
  EXPECT_EQ(hits({1, 2, 3, 4}), 0);
}

TEST_F(PrefixIndexTest, KeysSeparate) {
  const std::array<int32_t, kSize> tokens{1, 2, 3, 4};
  const BlockHasher other(HashKey::from_seed(8));
  EXPECT_NE(hasher_.root(""), other.root(""));
  EXPECT_NE(hasher_.extend(hasher_.root(""), tokens), other.extend(hasher_.root(""), tokens));
  EXPECT_NE(HashKey::random().secret, HashKey::random().secret);
}

TEST_F(PrefixIndexTest, EqualHashesOfDifferentTokensAreNoHit) {
  const auto leases = publish({1, 2, 3, 4});
  const std::vector<BlockHash> chain = chain_of({1, 2, 3, 4});
  const std::vector<int32_t> other{9, 9, 9, 9};
  EXPECT_EQ(index_.match(hasher_.root(""), chain, other, found_), 0) << "as if {9,9,9,9} had this hash";
  const BlockLease lease = pool_.allocate();
  EXPECT_FALSE(index_.publish(lease.id(), hasher_.root(""), chain[0], other));
  EXPECT_EQ(index_.stats().mistaken_hashes, 1);
  EXPECT_FALSE(pool_.indexed(lease.id()));
}

TEST_F(PrefixIndexTest, ContentsAreKnownUnderOneBlockOnly) {
  const auto first = publish({1, 2, 3, 4});
  const auto second = publish({1, 2, 3, 4});
  EXPECT_TRUE(pool_.indexed(first[0].id()));
  EXPECT_FALSE(pool_.indexed(second[0].id()));
  EXPECT_EQ(index_.size(), 1);
  EXPECT_EQ(index_.stats().mistaken_hashes, 0);
}

TEST_F(PrefixIndexTest, OutlivesTheLeasesUntilTheBlockIsNeeded) {
  publish({1, 2, 3, 4}).clear();
  EXPECT_EQ(hits({1, 2, 3, 4}), 1);
  std::vector<BlockLease> all;
  all.reserve(8);
  for (int i = 0; i < 7; ++i) all.push_back(pool_.allocate());
  EXPECT_EQ(hits({1, 2, 3, 4}), 1);
  all.push_back(pool_.allocate());
  EXPECT_EQ(hits({1, 2, 3, 4}), 0);
  EXPECT_EQ(index_.stats().evicted_blocks, 1);
}

// Entries come and go in a table that is nearly as full as it can be, against a map.
TEST_F(PrefixIndexTest, AgreesWithAMapThroughManyEvictions) {
  BlockPool pool(40);
  PrefixIndex index(pool, kSize);
  std::map<std::vector<int32_t>, BlockId> known;
  std::vector<std::vector<int32_t>> contents(40);
  std::mt19937 random(5);
  for (int turn = 0; turn < 5000; ++turn) {
    std::vector<int32_t> tokens;
    tokens.reserve(kSize);
    for (int i = 0; i < kSize; ++i) tokens.push_back(static_cast<int32_t>(random() % 3));
    const BlockHash hash = hasher_.extend(hasher_.root(""), tokens);
    const int32_t found = index.match(hasher_.root(""), {&hash, 1}, tokens, found_);
    ASSERT_EQ(found, known.count(tokens));
    if (found == 1) {
      ASSERT_EQ(found_[0], known[tokens]);
      pool.lease(found_[0]).reset();  // used just now
      continue;
    }
    const BlockLease lease = pool.allocate();
    known.erase(contents[static_cast<size_t>(lease.id())]);
    ASSERT_TRUE(index.publish(lease.id(), hasher_.root(""), hash, tokens));
    known[tokens] = lease.id();
    contents[static_cast<size_t>(lease.id())] = tokens;
    ASSERT_EQ(index.size(), static_cast<int32_t>(known.size()));
  }
  EXPECT_GT(index.stats().evicted_blocks, 1000);
}

}  // namespace
}  // namespace lantern
