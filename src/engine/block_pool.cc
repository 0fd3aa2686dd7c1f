#include "engine/block_pool.h"

#include "base/check.h"

namespace lantern {

BlockLease BlockLease::share() const {
  CHECK(pool_ != nullptr, "an empty lease cannot be shared");
  return pool_->lease(id_);
}

BlockPool::BlockPool(int32_t num_blocks) {
  CHECK(num_blocks >= 2, "a pool of {} blocks has none beside the null block", num_blocks);
  blocks_.resize(static_cast<size_t>(num_blocks));
  free_.reserve(static_cast<size_t>(num_blocks));
  for (BlockId block = num_blocks - 1; block > kNullBlock; --block) free_.push_back(block);
}

BlockPool::~BlockPool() { CHECK(num_leased() == 0, "{} blocks are still leased", num_leased()); }

BlockPool::Block& BlockPool::at(BlockId block) {
  CHECK(block > kNullBlock && block < num_blocks(), "block {} of {}", block, num_blocks());
  return blocks_[static_cast<size_t>(block)];
}
const BlockPool::Block& BlockPool::at(BlockId block) const {
  CHECK(block > kNullBlock && block < num_blocks(), "block {} of {}", block, num_blocks());
  return blocks_[static_cast<size_t>(block)];
}

BlockState BlockPool::state(BlockId block) const {
  const Block& entry = at(block);
  if (entry.refs > 0) return BlockState::kLeased;
  return entry.indexed ? BlockState::kCached : BlockState::kFree;
}

BlockLease BlockPool::allocate() {
  if (free_.empty()) {
    CHECK(num_cached_ > 0, "no block is available; what a step needs is counted before it is reserved");
    free_oldest();
  }
  const BlockId block = free_.back();
  free_.pop_back();
  at(block).refs = 1;
  return {this, block};
}

int32_t BlockPool::free_cached() {
  const int32_t count = num_cached_;
  while (num_cached_ > 0) free_oldest();
  return count;
}

void BlockPool::free_oldest() {
  const BlockId oldest = blocks_[kNullBlock].next;
  unlink(oldest);
  at(oldest).indexed = false;
  if (listener_ != nullptr) listener_->on_eviction(oldest);
  free_.push_back(oldest);
}

BlockLease BlockPool::lease(BlockId block) {
  Block& entry = at(block);
  CHECK(entry.refs > 0 || entry.indexed, "block {} is free", block);
  if (entry.refs == 0) unlink(block);
  ++entry.refs;
  return {this, block};
}

void BlockPool::set_indexed(BlockId block, bool indexed) {
  Block& entry = at(block);
  CHECK(entry.refs > 0, "block {} is not leased", block);
  entry.indexed = indexed;
}

void BlockPool::release(BlockId block) {
  Block& entry = at(block);
  CHECK(entry.refs > 0, "block {} is released more often than it was leased", block);
  if (--entry.refs > 0) return;
  if (entry.indexed) {
    link_newest(block);
  } else {
    free_.push_back(block);
  }
}

void BlockPool::link_newest(BlockId block) {
  Block& end = blocks_[kNullBlock];
  Block& entry = at(block);
  entry.previous = end.previous;
  entry.next = kNullBlock;
  blocks_[static_cast<size_t>(end.previous)].next = block;
  end.previous = block;
  ++num_cached_;
}

void BlockPool::unlink(BlockId block) {
  Block& entry = at(block);
  blocks_[static_cast<size_t>(entry.previous)].next = entry.next;
  blocks_[static_cast<size_t>(entry.next)].previous = entry.previous;
  entry.previous = kNullBlock;
  entry.next = kNullBlock;
  --num_cached_;
}

}  // namespace lantern
