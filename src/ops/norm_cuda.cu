// A block for each row. A thread reads all of its part of the row before it uses any, and keeps it in registers until
// the row's sum is known; of a row too long for that it keeps the first round and reads the others again. Who adds
// what depends on the row's length alone.
#include "device/cuda/block_reduce.cuh"
#include "device/cuda/launch.cuh"
#include "device/cuda/quads.cuh"
#include "ops/cuda_launches.h"

namespace lantern::cuda {
namespace {

constexpr int64_t kMaxThreads = 1024;
constexpr int kHeld = 2;  // quads of a thread in a round: 8192 columns for the largest block

unsigned threads_for(int64_t cols) {
  return static_cast<unsigned>(std::clamp<int64_t>((cols + kQuad - 1) / kQuad, 1, kMaxThreads) + kWarp - 1) / kWarp *
         kWarp;
}

struct Part {
  float v[kHeld][kQuad];
};

// This thread's columns of rows of `cols`.
class Columns {
 public:
  __device__ explicit Columns(int64_t cols)
      : cols_(cols), rounds_((cols + kHeld * kQuad * blockDim.x - 1) / (kHeld * kQuad * blockDim.x)) {}

  __device__ int64_t last_round() const { return rounds_ - 1; }

  __device__ Part load(const float* row, int64_t round) const {
    Part part;
    const bool aligned = is_aligned(row);
#pragma unroll
    for (int k = 0; k < kHeld; ++k) load_quad(part.v[k], row, column(round, k), cols_, aligned, 0.0f);
    return part;
  }

  __device__ void store(float* row, int64_t round, const Part& part) const {
    const bool aligned = is_aligned(row);
#pragma unroll
    for (int k = 0; k < kHeld; ++k) store_quad(row, column(round, k), cols_, aligned, part.v[k]);
  }

  // function(k, j) for each column of the round that the row has.
  template <class Function>
  __device__ void for_each(int64_t round, const Function& function) const {
#pragma unroll
    for (int k = 0; k < kHeld; ++k) {
#pragma unroll
      for (int j = 0; j < kQuad; ++j) {
        if (column(round, k) + j < cols_) function(k, j);
      }
    }
  }

 private:
  __device__ int64_t column(int64_t round, int k) const {
    return ((round * kHeld + k) * blockDim.x + threadIdx.x) * kQuad;
  }

  int64_t cols_, rounds_;
};

__device__ float inverse_root(float sum, int64_t cols, float eps) {
  return 1.0f / sqrtf(sum / static_cast<float>(cols) + eps);
}

// y = RMSNorm(row), read(round) being the row's columns when they are first needed and `row` where they are later.
template <class Read>
__device__ void normalise(const Columns& columns, const Read& read, const float* row, const float* weight, float* y,
                          int64_t cols, float eps) {
  __shared__ float shared[kMaxThreads / kWarp];
  float sum = 0;
  Part x{}, w = columns.load(weight, 0);
  for (int64_t round = columns.last_round(); round >= 0; --round) {
    x = read(round);
    columns.for_each(round, [&](int k, int j) { sum += x.v[k][j] * x.v[k][j]; });
  }
  const float inverse = inverse_root(block_sum(sum, shared), cols, eps);
  for (int64_t round = 0; round <= columns.last_round(); ++round) {
    if (round > 0) {
      x = columns.load(row, round);
      w = columns.load(weight, round);
    }
    columns.for_each(round, [&](int k, int j) { x.v[k][j] = x.v[k][j] * inverse * w.v[k][j]; });
    columns.store(y, round, x);
  }
}

__global__ void __launch_bounds__(kMaxThreads) rms_norm_kernel(RmsNormParams p) {
  ptx::begin_overlapped();
  const float* x = p.x.get() + blockIdx.x * p.x_stride;
  const Columns columns(p.cols);
  const auto read = [&](int64_t round) { return columns.load(x, round); };
  normalise(columns, read, x, p.weight.get(), p.y.get() + blockIdx.x * p.y_stride, p.cols, p.eps);
}

__global__ void __launch_bounds__(kMaxThreads) add_rms_norm_kernel(AddRmsNormParams p) {
  ptx::begin_overlapped();
  const float* delta = p.delta.get() + blockIdx.x * p.cols;
  float* residual = p.residual.get() + blockIdx.x * p.cols;
  const Columns columns(p.cols);
  const auto read = [&](int64_t round) {
    const Part added = columns.load(delta, round);
    Part x = columns.load(residual, round);
    columns.for_each(round, [&](int k, int j) { x.v[k][j] += added.v[k][j]; });
    columns.store(residual, round, x);
    return x;
  };
  normalise(columns, read, residual, p.weight.get(), p.y.get() + blockIdx.x * p.cols, p.cols, p.eps);
}

__global__ void __launch_bounds__(kMaxThreads) layer_norm_kernel(LayerNormParams p) {
  ptx::begin_overlapped();
  __shared__ float shared[kMaxThreads / kWarp];
  const float* row = p.x.get() + blockIdx.x * p.x_stride;
  float* y = p.y.get() + blockIdx.x * p.y_stride;
  const Columns columns(p.cols);
  const int64_t last = columns.last_round();
  Part x{};
  float sum = 0;
  for (int64_t round = last; round >= 0; --round) {
    x = columns.load(row, round);
    columns.for_each(round, [&](int k, int j) { sum += x.v[k][j]; });
  }
  const float mean = block_sum(sum, shared) / static_cast<float>(p.cols);
  // The second pass over the centred row keeps the variance of a row with a large mean.
  sum = 0;
  for (int64_t round = 0; round <= last; ++round) {
    if (round > 0) x = columns.load(row, round);
    columns.for_each(round, [&](int k, int j) { sum += (x.v[k][j] - mean) * (x.v[k][j] - mean); });
  }
  const float inverse = inverse_root(block_sum(sum, shared), p.cols, p.eps);
  for (int64_t round = last; round >= 0; --round) {
    if (round < last) x = columns.load(row, round);
    const Part w = columns.load(p.weight.get(), round), b = columns.load(p.bias.get(), round);
    columns.for_each(round, [&](int k, int j) { x.v[k][j] = (x.v[k][j] - mean) * inverse * w.v[k][j] + b.v[k][j]; });
    columns.store(y, round, x);
  }
}

}  // namespace

void rms_norm(void* stream, const RmsNormParams& p) {
  launch_overlapped(stream, "rms_norm", &rms_norm_kernel, blocks_for(p.rows, 1), threads_for(p.cols), 0, p);
}
void add_rms_norm(void* stream, const AddRmsNormParams& p) {
  launch_overlapped(stream, "add_rms_norm", &add_rms_norm_kernel, blocks_for(p.rows, 1), threads_for(p.cols), 0, p);
}
void layer_norm(void* stream, const LayerNormParams& p) {
  launch_overlapped(stream, "layer_norm", &layer_norm_kernel, blocks_for(p.rows, 1), threads_for(p.cols), 0, p);
}

}  // namespace lantern::cuda
