#include "device/cuda/launch.cuh"
#include "ops/cuda_launches.h"
#include "ops/linear_rows.cuh"

namespace lantern::cuda {
namespace {

constexpr unsigned kThreads = 128;
constexpr int64_t kOutputsPerBlock = kThreads / kWarp;

// A warp for each output of each tile of rows.
__global__ void linear_kernel(LinearParams p) {
  const int64_t o = blockIdx.x * kOutputsPerBlock + threadIdx.x / kWarp;
  if (o >= p.weight.rows) return;
  const int64_t first = int64_t{blockIdx.y} * kRowTile;
  const auto rows = static_cast<int>(min(int64_t{kRowTile}, p.real_rows.of(p.rows) - first));
  if (rows <= 0) return;
  const float* x[kRowTile];
  for (int r = 0; r < kRowTile; ++r) {
    const int64_t row = first + min(r, rows - 1);
    x[r] = p.x.get() + (p.x_rows ? p.x_rows[row] : row) * p.x_stride;
  }
  float out[kRowTile];
  multiply_rows(p.weight, p.input == LinearInput::kExact, o, x, rows, out);
  if (threadIdx.x % kWarp != 0) return;
  for (int r = 0; r < rows; ++r) {
    float& y = p.y[(first + r) * p.y_stride + o];
    y = p.accumulate ? y + out[r] : out[r];
  }
}

}  // namespace

void linear(void* stream, const LinearParams& p) {
  launch_kernel(stream, "linear", &linear_kernel,
                dim3(blocks_for(p.weight.rows, kOutputsPerBlock), blocks_for(p.rows, kRowTile)), kThreads, 0, p);
}

}  // namespace lantern::cuda
