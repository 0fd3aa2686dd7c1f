#include "ops/quantized_matrix.h"

#include <cstring>

#include "ops/row_scales.h"

namespace lantern {

float block_scale(const QuantizedMatrix& w, int64_t row, int64_t col) {
  const bool scaled = w.block_rows != 0;
  CHECK(!scaled || w.scale_dtype == DType::kF32 || w.scale_dtype == DType::kF8E8M0,
        "block scales are F32 or F8_E8M0, not {}", to_string(w.scale_dtype));
  return RowScales(w, row)[scaled ? col / w.block_cols : 0];
}

float dequantized(const QuantizedMatrix& w, int64_t row, int64_t col) {
  const std::byte* data = w.data.get() + row * w.row_bytes;
  float q = 0.0f;
  switch (w.dtype) {
    case DType::kF32: std::memcpy(&q, data + col * 4, sizeof(q)); break;
    case DType::kF16:
    case DType::kBF16: {
      uint16_t bits;
      std::memcpy(&bits, data + col * 2, sizeof(bits));
      q = w.dtype == DType::kF16 ? to_float(f16_t{bits}) : to_float(bf16_t{bits});
      break;
    }
    case DType::kF8E4M3: q = to_float(e4m3_t{static_cast<uint8_t>(data[col])}); break;
    default: CHECK(false, "weights of dtype {} are not readable", to_string(w.dtype));
  }
  return q * block_scale(w, row, col);
}

int64_t matrix_bytes(const QuantizedMatrix& w) {
  if (w.empty()) return 0;
  int64_t bytes = w.rows * static_cast<int64_t>(dtype_bytes(w.dtype, static_cast<size_t>(w.cols)));
  if (w.block_rows != 0) {
    const int64_t scale_count =
        ((w.rows + w.block_rows - 1) / w.block_rows) * ((w.cols + w.block_cols - 1) / w.block_cols);
    bytes += scale_count * (w.scale_dtype == DType::kF8E8M0 ? 1 : 4);
  }
  return bytes;
}

}  // namespace lantern
