// A weight as every operator sees it: W[rows, cols] (out, in), row-major, possibly quantised, read in place.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "device/fixed.h"

namespace lantern {

struct QuantizedMatrix {
  DevPtr<const std::byte> data;  // rows * row_bytes
  DType dtype = DType::kF32;     // kF32, kF16, kBF16 or kF8E4M3
  int64_t rows = 0;              // output features
  int64_t cols = 0;              // input features (the reduced dimension)
  int64_t row_bytes = 0;         // distance between rows; >= dtype_bytes(dtype, cols)
  // Block scales [ceil(rows / block_rows), scale_row_stride]; the value of element (i, j) is
  // q[i, j] * scale[i / block_rows, j / block_cols] * global_scale. Without scales block_rows is 0.
  DevPtr<const std::byte> scales;
  DType scale_dtype = DType::kF32;  // kF32 or kF8E8M0
  int32_t block_rows = 0;
  int32_t block_cols = 0;
  int64_t scale_row_stride = 0;  // elements; >= ceil(cols / block_cols)
  float global_scale = 1.0f;
  int32_t zero = 0;  // zero point of integer formats; 0 for all formats above

  bool empty() const { return rows == 0; }
};

// The scale of the block that holds element (row, col); global_scale included. Host memory only.
float block_scale(const QuantizedMatrix& w, int64_t row, int64_t col);
// Element (row, col) as a float. Host memory only; for references and small work, not for loops that matter.
float dequantized(const QuantizedMatrix& w, int64_t row, int64_t col);
// Bytes read when the whole matrix is used once, scales included.
int64_t matrix_bytes(const QuantizedMatrix& w);

}  // namespace lantern
