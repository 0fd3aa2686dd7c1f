// Random weights in every format.
#pragma once

#include <cmath>
#include <cstring>
#include <vector>

#include "base/dtype.h"
#include "conformance/conformance.h"
#include "ops/quantized_matrix.h"

namespace lantern::conformance {

inline std::vector<std::byte> encode(const std::vector<float>& values, DType dtype) {
  std::vector<std::byte> bytes(dtype_bytes(dtype, values.size()));
  for (size_t i = 0; i < values.size(); ++i) {
    if (dtype == DType::kF32) {
      std::memcpy(bytes.data() + 4 * i, &values[i], 4);
    } else if (dtype == DType::kF8E4M3) {
      bytes[i] = std::byte{to_e4m3_saturate(values[i]).bits};
    } else {
      const uint16_t bits = dtype == DType::kBF16 ? to_bf16(values[i]).bits : to_f16(values[i]).bits;
      std::memcpy(bytes.data() + 2 * i, &bits, 2);
    }
  }
  return bytes;
}

struct Format {
  DType dtype = DType::kBF16;
  DType scale_dtype = DType::kF32;
  int32_t block = 0;
};

inline QuantizedMatrix matrix(Bench& bench, Random& random, const Format& format, int64_t rows, int64_t cols) {
  QuantizedMatrix w;
  w.dtype = format.dtype;
  w.rows = rows;
  w.cols = cols;
  w.row_bytes = static_cast<int64_t>(dtype_bytes(format.dtype, static_cast<size_t>(cols)));
  w.data = bench.input(encode(normal(random, rows * cols, format.block > 0 ? 20.0f : 0.05f), format.dtype));
  if (format.block == 0) return w;
  w.block_rows = w.block_cols = format.block;
  w.scale_dtype = format.scale_dtype;
  w.scale_row_stride = (cols + format.block - 1) / format.block;
  const int64_t count = (rows + format.block - 1) / format.block * w.scale_row_stride;
  std::vector<std::byte> scales;
  for (const int32_t exponent : integers(random, count, 117, 121)) {
    if (format.scale_dtype == DType::kF8E8M0) {
      scales.push_back(static_cast<std::byte>(exponent));
    } else {
      const float scale = std::ldexp(1.25f, exponent - 127);
      const auto* bytes = reinterpret_cast<const std::byte*>(&scale);
      scales.insert(scales.end(), bytes, bytes + 4);
    }
  }
  w.scales = bench.input(scales);
  return w;
}

}  // namespace lantern::conformance
