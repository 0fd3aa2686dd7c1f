#include "engine/block_hash.h"

#include <cstring>
#include <random>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "ops/philox.h"

namespace lantern {
namespace {

BlockHash block_hash(const XXH128_hash_t& hash) { return {hash.low64, hash.high64}; }

}  // namespace

HashKey HashKey::random() {
  static_assert(kBytes >= XXH3_SECRET_SIZE_MIN);
  HashKey key;
  std::random_device device;
  for (size_t i = 0; i < kBytes; i += sizeof(uint32_t)) {
    const uint32_t word = device();
    std::memcpy(key.secret.data() + i, &word, sizeof(word));
  }
  return key;
}

HashKey HashKey::from_seed(uint64_t seed) {
  HashKey key;
  for (size_t i = 0; i < kBytes; i += 16) {
    const std::array<uint32_t, 4> words = philox_block(seed, i);
    std::memcpy(key.secret.data() + i, words.data(), 16);
  }
  return key;
}

BlockHash BlockHasher::root(std::string_view salt) const {
  return block_hash(XXH3_128bits_withSecret(salt.data(), salt.size(), key_.secret.data(), HashKey::kBytes));
}

BlockHash BlockHasher::extend(const BlockHash& parent, std::span<const int32_t> tokens) const {
  XXH3_state_t state;
  XXH3_INITSTATE(&state);
  XXH3_128bits_reset_withSecret(&state, key_.secret.data(), HashKey::kBytes);
  XXH3_128bits_update(&state, &parent, sizeof(parent));
  XXH3_128bits_update(&state, tokens.data(), tokens.size_bytes());
  return block_hash(XXH3_128bits_digest(&state));
}

}  // namespace lantern
