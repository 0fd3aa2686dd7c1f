// Block ids of one cache group and who uses them. The bytes lie elsewhere (model/kv_cache.h): a block id is an index
// into every cache of the group, so that latent rows, index keys and the MTP layer's rows of a token range live and die
// together. Invariants B1 to B3 of CONTRACT.md.
//
// A block is in exactly one state:
//   free     nobody uses it and nothing is known about its contents
//   leased   at least one BlockLease exists
//   cached   no lease exists, but the prefix index knows its contents; given away, oldest first, when no block is free
// Block 0 is the null block and in none of them.
//
// One thread uses a pool. After the constructor nothing allocates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace lantern {

using BlockId = int32_t;
constexpr BlockId kNullBlock = 0;

class BlockPool;

// The right to use one block, ended by the destructor. Must not outlive its pool.
class [[nodiscard]] BlockLease {
 public:
  BlockLease() = default;
  BlockLease(BlockLease&& other) noexcept
      : pool_(std::exchange(other.pool_, nullptr)), id_(std::exchange(other.id_, kNullBlock)) {}
  BlockLease& operator=(BlockLease&& other) noexcept {
    std::swap(pool_, other.pool_);
    std::swap(id_, other.id_);
    other.reset();
    return *this;
  }
  BlockLease(const BlockLease&) = delete;
  BlockLease& operator=(const BlockLease&) = delete;
  ~BlockLease() { reset(); }

  explicit operator bool() const { return pool_ != nullptr; }
  BlockId id() const { return id_; }
  // Another lease on the same block. Precondition: not empty.
  BlockLease share() const;
  void reset();

 private:
  friend class BlockPool;
  BlockLease(BlockPool* pool, BlockId id) : pool_(pool), id_(id) {}

  BlockPool* pool_ = nullptr;
  BlockId id_ = kNullBlock;
};

enum class BlockState : uint8_t { kFree, kLeased, kCached };

class BlockPool {
 public:
  // Told when a cached block is given away; must forget its contents before it returns.
  class EvictionListener {
   public:
    virtual void on_eviction(BlockId block) = 0;

   protected:
    ~EvictionListener() = default;
  };

  // `num_blocks` counts the null block.
  explicit BlockPool(int32_t num_blocks);
  // Every lease must have ended.
  ~BlockPool();
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  void set_eviction_listener(EvictionListener* listener) { listener_ = listener; }

  int32_t num_blocks() const { return static_cast<int32_t>(blocks_.size()); }
  int32_t num_usable() const { return num_blocks() - 1; }
  int32_t num_free() const { return static_cast<int32_t>(free_.size()); }
  int32_t num_cached() const { return num_cached_; }
  int32_t num_leased() const { return num_usable() - num_free() - num_cached_; }
  // Blocks that allocate() can still hand out.
  int32_t num_available() const { return num_free() + num_cached_; }

  BlockState state(BlockId block) const;
  int32_t ref_count(BlockId block) const { return at(block).refs; }
  bool indexed(BlockId block) const { return at(block).indexed; }
  // Cached blocks from the one to be given away next, for validators: next_cached(kNullBlock) is the first, and after
  // the last comes kNullBlock.
  BlockId next_cached(BlockId block) const { return blocks_[static_cast<size_t>(block)].next; }

  // A free block, or else the block that has been cached longest. Precondition: num_available() > 0.
  BlockLease allocate();
  // Every cached block becomes free; how many there were.
  int32_t free_cached();
  // A further lease on a block that is leased or cached.
  BlockLease lease(BlockId block);

  // The prefix index knows (no longer knows) the contents of a leased block.
  void set_indexed(BlockId block, bool indexed);

 private:
  friend class BlockLease;

  struct Block {
    int32_t refs = 0;
    bool indexed = false;
    // Neighbours among the cached blocks; those of block 0 are the two ends of the list.
    BlockId previous = kNullBlock;
    BlockId next = kNullBlock;
  };

  Block& at(BlockId block);
  const Block& at(BlockId block) const;
  void release(BlockId block);
  void free_oldest();
  void link_newest(BlockId block);
  void unlink(BlockId block);

  std::vector<Block> blocks_;
  std::vector<BlockId> free_;  // the last is handed out next
  int32_t num_cached_ = 0;
  EvictionListener* listener_ = nullptr;
};

inline void BlockLease::reset() {
  if (BlockPool* const pool = std::exchange(pool_, nullptr)) pool->release(std::exchange(id_, kNullBlock));
}

}  // namespace lantern
