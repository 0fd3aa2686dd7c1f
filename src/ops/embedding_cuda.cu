#include "device/cuda/convert.cuh"
#include "device/cuda/launch.cuh"
#include "ops/cuda_launches.h"

namespace lantern::cuda {
namespace {

constexpr unsigned kThreads = 256;

// A block for each token.
__global__ void embedding_kernel(EmbeddingParams p) {
  ptx::begin_overlapped();
  const int64_t t = blockIdx.x;
  const int64_t id = p.token_ids[t];
  const bool known = id >= 0 && id < p.table.rows;
  const std::byte* row = p.table.data.get() + (known ? id * p.table.row_bytes : 0);
  for (int64_t i = threadIdx.x; i < p.table.cols; i += kThreads) {
    p.y[t * p.y_stride + i] = known ? element(row, p.table.dtype, i) : 0.0f;
  }
}

__global__ void gather_rows_kernel(GatherRowsParams p) {
  ptx::begin_overlapped();
  const int64_t r = blockIdx.x;
  const int64_t source = p.rows[r];
  for (int64_t i = threadIdx.x; i < p.cols; i += kThreads) {
    p.y[r * p.cols + i] = source < 0 ? 0.0f : p.x[source * p.x_stride + i];
  }
}

}  // namespace

void embedding(void* stream, const EmbeddingParams& p) {
  // First behind the plan, which lets later kernels start before it has waited itself: in full order.
  launch_kernel(stream, "embedding", &embedding_kernel, blocks_for(p.tokens, 1), kThreads, 0, p);
}
void gather_rows(void* stream, const GatherRowsParams& p) {
  launch_overlapped(stream, "gather_rows", &gather_rows_kernel, blocks_for(p.count, 1), kThreads, 0, p);
}

}  // namespace lantern::cuda
