// Which full blocks of tokens are in the caches already. Invariants X1 to X4 of CONTRACT.md.
//
// An entry belongs to a block id and keeps the block's tokens: a hit is a hit only if the tokens agree, whatever the
// hash says. Entries end when their block is given away (BlockPool's eviction); a block that nobody leases stays until
// then, least recently used first. Only full blocks of accepted tokens are published.
//
// One thread uses an index. After the constructor nothing allocates.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/block_hash.h"
#include "engine/block_pool.h"

namespace lantern {

class PrefixIndex final : public BlockPool::EvictionListener {
 public:
  struct Stats {
    int64_t published_blocks = 0;
    int64_t evicted_blocks = 0;
    int64_t mistaken_hashes = 0;  // equal hashes of different tokens
  };

  // Becomes the pool's eviction listener. The pool must outlive the index.
  PrefixIndex(BlockPool& pool, int32_t block_size);
  ~PrefixIndex();
  PrefixIndex(const PrefixIndex&) = delete;
  PrefixIndex& operator=(const PrefixIndex&) = delete;

  int32_t block_size() const { return block_size_; }
  int32_t size() const { return size_; }
  const Stats& stats() const { return stats_; }

  // How many leading full blocks of `tokens` are known; their ids go to `blocks`, which also bounds the search.
  // chain[i] is the hash of block i and root that of the request's salt. Leases nothing and changes nothing.
  int32_t match(const BlockHash& root, std::span<const BlockHash> chain, std::span<const int32_t> tokens,
                std::span<BlockId> blocks) const;

  // The leased block `block` holds `tokens` (block_size of them) after what `parent` names. Returns whether the index
  // now knows it under this id: false where the same contents are known already under another.
  bool publish(BlockId block, const BlockHash& parent, const BlockHash& hash, std::span<const int32_t> tokens);

  // Whether `block` is published, and with these contents: for validators.
  bool holds(BlockId block, const BlockHash& parent, const BlockHash& hash, std::span<const int32_t> tokens) const;
  // The block that a lookup of this hash finds, or kNullBlock.
  BlockId find(const BlockHash& hash) const;
  const BlockHash& hash_of(BlockId block) const { return entries_[static_cast<size_t>(block)].hash; }

  void on_eviction(BlockId block) override;

 private:
  struct Entry {
    BlockHash hash;
    BlockHash parent;
  };

  size_t home(const BlockHash& hash) const { return static_cast<size_t>(hash.low) & mask_; }
  // The bucket that holds `hash`, or the empty one where a search for it ends.
  size_t bucket_of(const BlockHash& hash) const;
  std::span<const int32_t> tokens_of(BlockId block) const;
  bool equals(BlockId block, const BlockHash& parent, std::span<const int32_t> tokens) const;

  BlockPool& pool_;
  int32_t block_size_;
  std::vector<Entry> entries_;    // by block id
  std::vector<int32_t> tokens_;   // [num_blocks][block_size]
  std::vector<BlockId> buckets_;  // linear probing; kNullBlock: empty. At most half full
  size_t mask_;
  int32_t size_ = 0;
  Stats stats_;
};

}  // namespace lantern
