#include "engine/prefix_index.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace lantern {

PrefixIndex::PrefixIndex(BlockPool& pool, int32_t block_size)
    : pool_(pool),
      block_size_(block_size),
      entries_(static_cast<size_t>(pool.num_blocks())),
      tokens_(static_cast<size_t>(pool.num_blocks()) * static_cast<size_t>(block_size)),
      buckets_(std::bit_ceil(static_cast<size_t>(pool.num_blocks()) * 2), kNullBlock),
      mask_(buckets_.size() - 1) {
  pool_.set_eviction_listener(this);
}

PrefixIndex::~PrefixIndex() { pool_.set_eviction_listener(nullptr); }

std::span<const int32_t> PrefixIndex::tokens_of(BlockId block) const {
  const auto size = static_cast<size_t>(block_size_);
  return std::span(tokens_).subspan(static_cast<size_t>(block) * size, size);
}

bool PrefixIndex::equals(BlockId block, const BlockHash& parent, std::span<const int32_t> tokens) const {
  return entries_[static_cast<size_t>(block)].parent == parent && std::ranges::equal(tokens_of(block), tokens);
}

size_t PrefixIndex::bucket_of(const BlockHash& hash) const {
  size_t bucket = home(hash);
  while (buckets_[bucket] != kNullBlock && hash_of(buckets_[bucket]) != hash) bucket = (bucket + 1) & mask_;
  return bucket;
}

BlockId PrefixIndex::find(const BlockHash& hash) const { return buckets_[bucket_of(hash)]; }

int32_t PrefixIndex::match(const BlockHash& root, std::span<const BlockHash> chain, std::span<const int32_t> tokens,
                           std::span<BlockId> blocks) const {
  const auto size = static_cast<size_t>(block_size_);
  const size_t most = std::min({chain.size(), blocks.size(), tokens.size() / size});
  for (size_t i = 0; i < most; ++i) {
    const BlockId block = find(chain[i]);
    const BlockHash& parent = i == 0 ? root : chain[i - 1];
    if (block == kNullBlock || !equals(block, parent, tokens.subspan(i * size, size))) return static_cast<int32_t>(i);
    blocks[i] = block;
  }
  return static_cast<int32_t>(most);
}

bool PrefixIndex::publish(BlockId block, const BlockHash& parent, const BlockHash& hash,
                          std::span<const int32_t> tokens) {
  CHECK(tokens.size() == static_cast<size_t>(block_size_), "{} tokens are no full block", tokens.size());
  CHECK(!pool_.indexed(block), "block {} is published already", block);
  const size_t bucket = bucket_of(hash);
  if (const BlockId known = buckets_[bucket]; known != kNullBlock) {
    if (!equals(known, parent, tokens)) ++stats_.mistaken_hashes;
    return false;
  }
  pool_.set_indexed(block, true);
  buckets_[bucket] = block;
  entries_[static_cast<size_t>(block)] = {hash, parent};
  std::ranges::copy(tokens, tokens_.begin() + static_cast<ptrdiff_t>(block) * block_size_);
  ++size_;
  ++stats_.published_blocks;
  return true;
}

bool PrefixIndex::holds(BlockId block, const BlockHash& parent, const BlockHash& hash,
                        std::span<const int32_t> tokens) const {
  return find(hash) == block && equals(block, parent, tokens);
}

void PrefixIndex::on_eviction(BlockId block) {
  size_t hole = bucket_of(hash_of(block));
  CHECK(buckets_[hole] == block, "block {} has no entry", block);
  buckets_[hole] = kNullBlock;
  // Whoever was pushed past the hole by a collision moves back, so that searches never meet a gap.
  for (size_t bucket = (hole + 1) & mask_; buckets_[bucket] != kNullBlock; bucket = (bucket + 1) & mask_) {
    const size_t distance_from_home = (bucket - home(hash_of(buckets_[bucket]))) & mask_;
    if (distance_from_home < ((bucket - hole) & mask_)) continue;
    buckets_[hole] = std::exchange(buckets_[bucket], kNullBlock);
    hole = bucket;
  }
  entries_[static_cast<size_t>(block)] = {};
  --size_;
  ++stats_.evicted_blocks;
}

}  // namespace lantern
