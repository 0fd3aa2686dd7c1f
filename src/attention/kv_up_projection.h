// Reading kv_b_proj on the host: ranges of a row as floats, scales applied.
#pragma once

#include <cstdint>

#include "attention/mla.h"

namespace lantern {

// out[j] = W[row, begin + j] for j < count. Each value is rounded once, after its product with the block's scale
// (exact for power-of-two scales).
void decode_kv_b(const KvUpProjection& kv_b, int64_t row, int64_t begin, int64_t count, float* out);

// Refuses what no caller may pass: an unknown dtype or scales without blocks.
void check_kv_b(const KvUpProjection& kv_b);

}  // namespace lantern
