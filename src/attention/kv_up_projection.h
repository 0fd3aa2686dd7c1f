// Reading kv_b_proj on the host: ranges of a row as floats, scales applied.
#pragma once

#include <cstdint>

#include "attention/host_math.h"
#include "attention/mla.h"

namespace lantern {

// out[j] = W[row, begin + j] for j < count. Each value is rounded once, after its product with the block's scale
// (exact for power-of-two scales).
void decode_kv_b(const KvUpProjection& kv_b, int64_t row, int64_t begin, int64_t count, float* out);

// Asks for what decode_kv_b() will read: rows this short end before the hardware has begun to look ahead.
inline void fetch_kv_b(const KvUpProjection& kv_b, int64_t row, int64_t begin, int64_t count) {
  const auto element_bytes = static_cast<int64_t>(dtype_bytes(kv_b.dtype, 1));
  const std::byte* data = kv_b.data.get() + row * kv_b.row_bytes + begin * element_bytes;
  for (int64_t byte = 0; byte < count * element_bytes; byte += 64) __builtin_prefetch(data + byte);
}

// Rows of kv_b_proj as codes for multiply_row_e4m3_*(), which take them as decode_kv_b() would give them.
struct KvCodes {
  static constexpr int64_t kMostCols = 512;
  int64_t rows = 0;  // 0: not to be had, for other weights and scale blocks
  host_math::E4m3Rows codes;
  float scales[kMostCols / 32];
};
// Of the rows [row, row + most), as many as have the same scales; columns [begin, begin + count), count <= kMostCols.
void kv_b_codes(const KvUpProjection& kv_b, int64_t row, int64_t most, int64_t begin, int64_t count, KvCodes& out);

// Refuses what no caller may pass: an unknown dtype or scales without blocks.
void check_kv_b(const KvUpProjection& kv_b);

}  // namespace lantern
