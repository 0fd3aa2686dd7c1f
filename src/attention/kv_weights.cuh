// Values of kv_b_proj on the device.
#pragma once

#include "attention/mla.h"
#include "device/cuda/convert.cuh"

namespace lantern::cuda {

// The scale of element (row, col), 1 where there are none but the global one.
__device__ inline float scale_at(const KvUpProjection& w, int32_t row, int32_t col) {
  if (w.block_rows == 0) return w.global_scale;
  const int64_t scale = row / w.block_rows * w.scale_row_stride + col / w.block_cols;
  return scale_element(w.scales.get(), w.scale_dtype, scale) * w.global_scale;
}
// Element (row, col).
__device__ inline float weight_at(const KvUpProjection& w, int64_t row, int32_t col) {
  return element(w.data.get() + row * w.row_bytes, w.dtype, col) * scale_at(w, static_cast<int32_t>(row), col);
}

}  // namespace lantern::cuda
