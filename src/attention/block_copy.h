// Copies whole blocks of a paged cache.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/fixed.h"
#include "device/stream.h"

namespace lantern {

// Block pairs[2 i] goes to block pairs[2 i + 1] for i < count. No block may be the target of one pair and named by
// another: pairs run in any order.
struct BlockCopyParams {
  DevPtr<std::byte> cache;  // blocks * block_bytes
  int64_t block_bytes = 0;
  DevPtr<const int32_t> pairs;  // [2 * count]
  int32_t count = 0;
};
void copy_blocks(Stream& stream, const BlockCopyParams& params);

}  // namespace lantern
