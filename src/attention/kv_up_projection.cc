#include "attention/kv_up_projection.h"

#include <algorithm>
#include <cstring>

#include "attention/host_math.h"
#include "base/check.h"

namespace lantern {
namespace {

float scale_at(const KvUpProjection& kv_b, int64_t row, int64_t column) {
  const int64_t index = row / kv_b.block_rows * kv_b.scale_row_stride + column / kv_b.block_cols;
  if (kv_b.scale_dtype == DType::kF8E8M0) {
    return to_float(e8m0_t{static_cast<uint8_t>(kv_b.scales[index])}) * kv_b.global_scale;
  }
  float scale;
  std::memcpy(&scale, kv_b.scales.get() + index * 4, sizeof(scale));
  return scale * kv_b.global_scale;
}

}  // namespace

void decode_kv_b(const KvUpProjection& kv_b, int64_t row, int64_t begin, int64_t count, float* out) {
  const auto element_bytes = static_cast<int64_t>(dtype_bytes(kv_b.dtype, 1));
  const std::byte* data = kv_b.data.get() + row * kv_b.row_bytes;
  if (!kv_b.scales) {
    host_math::decode_values(kv_b.dtype, data + begin * element_bytes, count, kv_b.global_scale, out);
    return;
  }
  const int64_t end = begin + count;
  while (begin < end) {
    const int64_t stop = std::min<int64_t>(end, (begin / kv_b.block_cols + 1) * kv_b.block_cols);
    host_math::decode_values(kv_b.dtype, data + begin * element_bytes, stop - begin, scale_at(kv_b, row, begin), out);
    out += stop - begin;
    begin = stop;
  }
}

void kv_b_codes(const KvUpProjection& kv_b, int64_t row, int64_t most, int64_t begin, int64_t count, KvCodes& out) {
  CHECK(count <= KvCodes::kMostCols, "{} columns of kv_b_proj at a time", count);
  out.rows = 0;
  const int64_t block_cols = kv_b.scales ? kv_b.block_cols : KvCodes::kMostCols;
  if (kv_b.dtype != DType::kF8E4M3 || begin % block_cols != 0 || block_cols % 32 != 0) return;
  for (int64_t i = 0; i * block_cols < count; ++i) {
    out.scales[i] = kv_b.scales ? scale_at(kv_b, row, begin + i * block_cols) : kv_b.global_scale;
  }
  out.codes = {.data = kv_b.data.get() + row * kv_b.row_bytes + begin,
               .row_bytes = kv_b.row_bytes,
               .scales = out.scales,
               .block_cols = block_cols};
  if (!host_math::multiply_row_takes(out.codes, count)) return;
  out.rows = kv_b.scales ? std::min<int64_t>(most, kv_b.block_rows - row % kv_b.block_rows) : most;
}

void check_kv_b(const KvUpProjection& kv_b) {
  const DType dtype = kv_b.dtype;
  CHECK(dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16 || dtype == DType::kF8E4M3,
        "kv_b_proj of dtype {}; attention reads F32, F16, BF16 and F8_E4M3", to_string(dtype));
  CHECK(!kv_b.scales || (kv_b.block_rows > 0 && kv_b.block_cols > 0 &&
                         (kv_b.scale_dtype == DType::kF32 || kv_b.scale_dtype == DType::kF8E8M0)),
        "kv_b_proj has scales of dtype {} over blocks of {} x {}", to_string(kv_b.scale_dtype), kv_b.block_rows,
        kv_b.block_cols);
}

}  // namespace lantern
