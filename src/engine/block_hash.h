// Names for the contents of full blocks: a block's hash covers its tokens and, through its parent's hash, all tokens
// before them and the salt of the request. Blocks of requests with different salts never meet.
//
// The hash is keyed by a secret (XXH3 with 128 bits and a secret of its own, https://github.com/Cyan4973/xxHash), so
// that nobody outside can construct collisions; a hit compares tokens all the same (prefix_index.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace lantern {

struct BlockHash {
  uint64_t low = 0;
  uint64_t high = 0;
  bool operator==(const BlockHash&) const = default;
};

// Engines that must take the same decisions (the ranks of one model) share a key.
struct HashKey {
  static constexpr size_t kBytes = 192;
  std::array<std::byte, kBytes> secret{};

  static HashKey random();                  // from the operating system
  static HashKey from_seed(uint64_t seed);  // reproducible: tests, replicas
};

class BlockHasher {
 public:
  explicit BlockHasher(const HashKey& key) : key_(key) {}

  // The parent of a request's first block.
  BlockHash root(std::string_view salt) const;
  BlockHash extend(const BlockHash& parent, std::span<const int32_t> tokens) const;

 private:
  HashKey key_;
};

}  // namespace lantern
