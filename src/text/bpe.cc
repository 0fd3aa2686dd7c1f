#include "text/bpe.h"

#include <algorithm>
#include <cstring>

namespace lantern {

BpeModel::BpeModel(size_t num_ids) : tokens_(num_ids) {
  std::fill(std::begin(byte_ids_), std::end(byte_ids_), -1);
  token_slots_.assign(1024, -1);
  merge_slots_.assign(1024, {});
}

uint64_t BpeModel::hash_pair(uint64_t pair) {
  pair *= 0x9E3779B97F4A7C15ull;
  pair ^= pair >> 32;
  pair *= 0xD6E8FEB86659FD93ull;
  return pair ^ (pair >> 29);
}

uint64_t BpeModel::hash_bytes(std::string_view bytes) {
  uint64_t hash = bytes.size() * 0x9E3779B97F4A7C15ull;
  size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    uint64_t part;
    std::memcpy(&part, bytes.data() + i, 8);
    hash = hash_pair(hash ^ part);
  }
  uint64_t rest = 0;
  if (i < bytes.size()) std::memcpy(&rest, bytes.data() + i, bytes.size() - i);
  return hash_pair(hash ^ rest);
}

void BpeModel::grow_tokens() {
  std::vector<TokenId> old(token_slots_.size() * 2, -1);
  old.swap(token_slots_);
  const size_t mask = token_slots_.size() - 1;
  for (const TokenId id : old) {
    if (id < 0) continue;
    size_t slot = hash_bytes(tokens_[static_cast<size_t>(id)]) & mask;
    while (token_slots_[slot] >= 0) slot = (slot + 1) & mask;
    token_slots_[slot] = id;
  }
}

bool BpeModel::set_token(TokenId id, std::string bytes) {
  if (find(bytes) >= 0) return false;
  if ((num_tokens_ + 1) * 2 > token_slots_.size()) grow_tokens();
  const size_t mask = token_slots_.size() - 1;
  size_t slot = hash_bytes(bytes) & mask;
  while (token_slots_[slot] >= 0) slot = (slot + 1) & mask;
  token_slots_[slot] = id;
  ++num_tokens_;
  if (bytes.size() == 1) byte_ids_[static_cast<uint8_t>(bytes[0])] = id;
  tokens_[static_cast<size_t>(id)] = std::move(bytes);
  return true;
}

TokenId BpeModel::find(std::string_view bytes) const {
  const size_t mask = token_slots_.size() - 1;
  for (size_t slot = hash_bytes(bytes) & mask;; slot = (slot + 1) & mask) {
    const TokenId id = token_slots_[slot];
    if (id < 0 || tokens_[static_cast<size_t>(id)] == bytes) return id;
  }
}

void BpeModel::grow_merges() {
  std::vector<Merge> old(merge_slots_.size() * 2);
  old.swap(merge_slots_);
  const size_t mask = merge_slots_.size() - 1;
  for (const Merge& merge : old) {
    if (merge.merged < 0) continue;
    size_t slot = hash_pair(merge.pair) & mask;
    while (merge_slots_[slot].merged >= 0) slot = (slot + 1) & mask;
    merge_slots_[slot] = merge;
  }
}

void BpeModel::set_merge(TokenId left, TokenId right, uint32_t rank, TokenId merged) {
  if ((num_merges_ + 1) * 2 > merge_slots_.size()) grow_merges();
  const uint64_t pair = static_cast<uint64_t>(left) << 32 | static_cast<uint32_t>(right);
  const size_t mask = merge_slots_.size() - 1;
  size_t slot = hash_pair(pair) & mask;
  while (merge_slots_[slot].merged >= 0 && merge_slots_[slot].pair != pair) slot = (slot + 1) & mask;
  if (merge_slots_[slot].merged < 0) ++num_merges_;
  merge_slots_[slot] = {pair, rank, merged};
}

const BpeModel::Merge* BpeModel::find_merge(TokenId left, TokenId right) const {
  const uint64_t pair = static_cast<uint64_t>(left) << 32 | static_cast<uint32_t>(right);
  const size_t mask = merge_slots_.size() - 1;
  for (size_t slot = hash_pair(pair) & mask;; slot = (slot + 1) & mask) {
    const Merge& merge = merge_slots_[slot];
    if (merge.merged < 0) return nullptr;
    if (merge.pair == pair) return &merge;
  }
}

int BpeModel::missing_byte() const {
  for (int byte = 0; byte < 256; ++byte) {
    const bool in_utf8 = byte != 0xC0 && byte != 0xC1 && byte < 0xF5;
    if (in_utf8 && byte_ids_[byte] < 0) return byte;
  }
  return -1;
}

void BpeModel::finish() { whole_ = std::make_unique<std::atomic<uint8_t>[]>(tokens_.size()); }

// A word as a linked list of symbols, and a heap of the merges that were possible when they were pushed.
struct BpeModel::Scratch {
  struct Symbol {
    TokenId id;
    uint32_t begin, size;  // bytes of the word; size 0 once merged into its left neighbour
    int32_t previous, next;
  };
  struct Candidate {
    uint32_t rank;
    int32_t position;
    TokenId merged;

    // For std::push_heap: the lowest rank, then the leftmost, on top.
    bool operator<(const Candidate& other) const {
      return rank != other.rank ? rank > other.rank : position > other.position;
    }
  };
  std::vector<Symbol> symbols;
  std::vector<Candidate> heap;
};

void BpeModel::merge_word(std::string_view word, Scratch& scratch) const {
  auto& symbols = scratch.symbols;
  auto& heap = scratch.heap;
  symbols.clear();
  heap.clear();
  const auto count = static_cast<int32_t>(word.size());
  for (int32_t i = 0; i < count; ++i) {
    symbols.push_back({byte_ids_[static_cast<uint8_t>(word[static_cast<size_t>(i)])], static_cast<uint32_t>(i), 1,
                       i - 1, i + 1 == count ? -1 : i + 1});
  }
  const auto at = [&](int32_t i) -> Scratch::Symbol& { return symbols[static_cast<size_t>(i)]; };
  // What the symbol at `position` and its right neighbour merge to.
  const auto candidate = [&](int32_t position, Scratch::Candidate* out) {
    const auto& left = at(position);
    if (left.next < 0) return false;
    const auto& right = at(left.next);
    if (by_bytes_) {
      const TokenId id = find(word.substr(left.begin, left.size + right.size));
      *out = {static_cast<uint32_t>(id), position, id};
      return id >= 0;
    }
    const Merge* merge = find_merge(left.id, right.id);
    if (merge != nullptr) *out = {merge->rank, position, merge->merged};
    return merge != nullptr;
  };
  Scratch::Candidate top{};
  for (int32_t i = 0; i < count; ++i) {
    if (candidate(i, &top)) heap.push_back(top);
  }
  std::make_heap(heap.begin(), heap.end());
  const auto push = [&](int32_t position) {
    Scratch::Candidate found{};
    if (!candidate(position, &found)) return;
    heap.push_back(found);
    std::push_heap(heap.begin(), heap.end());
  };
  while (!heap.empty()) {
    top = heap.front();
    std::pop_heap(heap.begin(), heap.end());
    heap.pop_back();
    // Stale if either side has changed since; the tokenizers package compares the result of the merge too.
    auto& left = at(top.position);
    Scratch::Candidate now{};
    if (left.size == 0 || !candidate(top.position, &now) || now.merged != top.merged) continue;
    auto& right = at(left.next);
    left.id = top.merged;
    left.size += right.size;
    left.next = right.next;
    right.size = 0;
    if (left.next >= 0) at(left.next).previous = top.position;
    if (left.previous >= 0) push(left.previous);
    push(top.position);
  }
}

void BpeModel::encode(std::string_view word, std::vector<TokenId>& ids) const {
  if (word.empty()) return;
  const TokenId whole = find(word);
  if (whole >= 0) {
    const uint8_t known =
        ignore_merges_ ? uint8_t{kYes} : whole_[static_cast<size_t>(whole)].load(std::memory_order_relaxed);
    if (known == kYes) {
      ids.push_back(whole);
      return;
    }
  }
  thread_local Scratch scratch;
  merge_word(word, scratch);
  if (whole >= 0) {
    const bool single = scratch.symbols[0].size == word.size() && scratch.symbols[0].id == whole;
    whole_[static_cast<size_t>(whole)].store(single ? kYes : kNo, std::memory_order_relaxed);
  }
  for (int32_t i = 0; i >= 0; i = scratch.symbols[static_cast<size_t>(i)].next) {
    ids.push_back(scratch.symbols[static_cast<size_t>(i)].id);
  }
  // One huge word must not pin its memory for the life of the thread.
  if (scratch.symbols.capacity() > (1u << 20)) scratch = {};
}

}  // namespace lantern
