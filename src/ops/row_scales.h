// Scales of a quantised weight on the host.
#pragma once

#include <cstdint>
#include <cstring>

#include "ops/quantized_matrix.h"

namespace lantern {

// Of the blocks of one row, global_scale included.
class RowScales {
 public:
  RowScales() = default;
  RowScales(const QuantizedMatrix& w, int64_t row)
      : w_(&w), first_(w.block_rows == 0 ? 0 : row / w.block_rows * w.scale_row_stride) {}
  float operator[](int64_t block) const {
    if (w_->block_rows == 0) return w_->global_scale;
    const int64_t index = first_ + block;
    if (w_->scale_dtype == DType::kF8E8M0) {
      return to_float(e8m0_t{static_cast<uint8_t>(w_->scales[index])}) * w_->global_scale;
    }
    float scale;
    std::memcpy(&scale, w_->scales.get() + index * 4, sizeof(scale));  // mapped files do not promise alignment
    return scale * w_->global_scale;
  }

 private:
  const QuantizedMatrix* w_ = nullptr;
  int64_t first_ = 0;
};

}  // namespace lantern
