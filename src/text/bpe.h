// Byte pair merging over raw bytes.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace lantern {

using TokenId = int32_t;

// Immutable after its building; encode is safe to call from several threads.
class BpeModel {
 public:
  // Number of ids, holes included. Ids lie in [0, num_ids).
  explicit BpeModel(size_t num_ids);

  // The bytes that a token stands for. Several tokens may not have the same bytes; returns false then.
  bool set_token(TokenId id, std::string bytes);
  // left and right become merged when no pair of lower rank is there. A pair given again replaces the first.
  void set_merge(TokenId left, TokenId right, uint32_t rank, TokenId merged);
  // The tiktoken rule instead: any two neighbours whose joined bytes are a token may merge, its id being the rank.
  void merge_by_bytes() { by_bytes_ = true; }
  // A word that is a token is that token, whatever the merges say.
  void set_ignore_merges(bool ignore) { ignore_merges_ = ignore; }

  // -1 if there is none.
  TokenId find(std::string_view bytes) const;

  // The smallest byte that can occur in UTF-8 and has no token; -1 if all have one. Must be -1 before encode.
  int missing_byte() const;
  // Called once, after the last set_token.
  void finish();

  void encode(std::string_view word, std::vector<TokenId>& ids) const;

 private:
  struct Merge {
    uint64_t pair = ~uint64_t{0};  // left << 32 | right
    uint32_t rank = 0;
    TokenId merged = -1;
  };
  struct Scratch;

  static uint64_t hash_bytes(std::string_view bytes);
  static uint64_t hash_pair(uint64_t pair);
  const Merge* find_merge(TokenId left, TokenId right) const;
  void grow_merges();
  void grow_tokens();
  void merge_word(std::string_view word, Scratch& scratch) const;

  std::vector<std::string> tokens_;   // by id
  std::vector<TokenId> token_slots_;  // open addressing, power of two; -1 is free
  size_t num_tokens_ = 0;
  std::vector<Merge> merge_slots_;  // open addressing, power of two
  size_t num_merges_ = 0;
  TokenId byte_ids_[256];
  bool by_bytes_ = false;
  bool ignore_merges_ = false;

  // Whether merging the token's own bytes gives the token: most words are one token, and this answer spares the merge.
  enum Whole : uint8_t { kUnknown, kYes, kNo };
  mutable std::unique_ptr<std::atomic<uint8_t>[]> whole_;
};

}  // namespace lantern
