// Token embedding lookup and row gathers.
#pragma once

#include <cstdint>

#include "device/fixed.h"
#include "device/stream.h"
#include "ops/quantized_matrix.h"

namespace lantern {

// y[t, :] = table[token_ids[t], :] as float; ids outside [0, table.rows) give zeros (padding uses -1).
struct EmbeddingParams {
  DevPtr<const int32_t> token_ids{};  // [tokens]
  QuantizedMatrix table{};            // [vocab, cols], f32, f16 or bf16
  DevPtr<float> y{};                  // [tokens, cols], row stride y_stride
  int64_t y_stride = 0;
  int64_t tokens = 0;
};
void embedding(Stream& stream, const EmbeddingParams& params);

// y[r, :] = x[rows[r], :]; a negative row gives zeros.
struct GatherRowsParams {
  DevPtr<const float> x{};  // [*, cols], row stride x_stride
  int64_t x_stride = 0;
  DevPtr<const int32_t> rows{};  // [count]
  DevPtr<float> y{};             // [count, cols], contiguous
  int64_t count = 0;
  int64_t cols = 0;
};
void gather_rows(Stream& stream, const GatherRowsParams& params);

}  // namespace lantern
