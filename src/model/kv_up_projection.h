// The weight kv_b_proj as attention, which knows no QuantizedMatrix, takes it.
#pragma once

#include "attention/mla.h"
#include "ops/quantized_matrix.h"

namespace lantern {

// Of a weight of [heads * (nope_dim + v_dim), kv_lora_rank].
inline KvUpProjection kv_up_projection(const QuantizedMatrix& w, int32_t heads, int32_t nope_dim, int32_t v_dim) {
  return {.data = w.data,
          .dtype = w.dtype,
          .row_bytes = w.row_bytes,
          .scales = w.scales,
          .scale_dtype = w.scale_dtype,
          .block_rows = w.block_rows,
          .block_cols = w.block_cols,
          .scale_row_stride = w.scale_row_stride,
          .global_scale = w.global_scale,
          .heads = heads,
          .nope_dim = nope_dim,
          .v_dim = v_dim,
          .kv_lora_rank = static_cast<int32_t>(w.cols)};
}

}  // namespace lantern
