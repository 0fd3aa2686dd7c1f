#include "ops/embedding.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>

#include "base/check.h"
#include "base/dtype.h"
#include "ops/cuda_ops.h"

namespace lantern {
namespace {

template <class T>
void widen_row(const std::byte* source, int64_t cols, float* y) {
  const T* x = reinterpret_cast<const T*>(source);
  for (int64_t i = 0; i < cols; ++i) y[i] = to_float(x[i]);
}

void embedding_kernel(const EmbeddingParams& p, HostContext& context) {
  const QuantizedMatrix& table = p.table;
  const int64_t grain = std::max<int64_t>(1, 16384 / std::max<int64_t>(1, table.cols));
  context.threads.parallel_for(p.tokens, grain, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      float* y = p.y.get() + t * p.y_stride;
      const int64_t id = p.token_ids[t];
      if (id < 0 || id >= table.rows) {
        std::fill_n(y, table.cols, 0.0f);
        continue;
      }
      const std::byte* row = table.data.get() + id * table.row_bytes;
      if (table.dtype == DType::kBF16) {
        widen_row<bf16_t>(row, table.cols, y);
      } else if (table.dtype == DType::kF16) {
        widen_row<f16_t>(row, table.cols, y);
      } else {
        std::memcpy(y, row, static_cast<size_t>(table.cols) * sizeof(float));
      }
    }
  });
}

void gather_rows_kernel(const GatherRowsParams& p, HostContext& context) {
  const int64_t grain = std::max<int64_t>(1, 16384 / std::max<int64_t>(1, p.cols));
  context.threads.parallel_for(p.count, grain, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      float* y = p.y.get() + r * p.cols;
      const int64_t source = p.rows[r];
      if (source < 0) {
        std::fill_n(y, p.cols, 0.0f);
      } else {
        std::memcpy(y, p.x.get() + source * p.x_stride, static_cast<size_t>(p.cols) * sizeof(float));
      }
    }
  });
}

}  // namespace

void embedding(Stream& stream, const EmbeddingParams& params) {
  const DType dtype = params.table.dtype;
  CHECK((dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16) && params.table.block_rows == 0,
        "an embedding table of {} cannot be looked up; f32, f16 or bf16 without scales can", to_string(dtype));
  launch_op(stream, "embedding", &embedding_kernel, &CudaOps::embedding, params);
}

void gather_rows(Stream& stream, const GatherRowsParams& params) {
  launch_op(stream, "gather_rows", &gather_rows_kernel, &CudaOps::gather_rows, params);
}

}  // namespace lantern
