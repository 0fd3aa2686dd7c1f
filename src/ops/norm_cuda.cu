#include "device/cuda/block_reduce.cuh"
#include "device/cuda/launch.cuh"
#include "ops/cuda_launches.h"

namespace lantern::cuda {
namespace {

constexpr unsigned kThreads = 256;

// A block for each row; term(i) of every column is summed.
template <class Term>
__device__ float sum_over(int64_t cols, const Term& term) {
  __shared__ float shared[kThreads / kWarp];
  float sum = 0;
  for (int64_t i = threadIdx.x; i < cols; i += kThreads) sum += term(i);
  return block_sum(sum, shared);
}

__device__ float inverse_root(float sum, int64_t cols, float eps) {
  return 1.0f / sqrtf(sum / static_cast<float>(cols) + eps);
}

__global__ void rms_norm_kernel(RmsNormParams p) {
  const float* x = p.x.get() + blockIdx.x * p.x_stride;
  float* y = p.y.get() + blockIdx.x * p.y_stride;
  const float inverse = inverse_root(sum_over(p.cols, [&](int64_t i) { return x[i] * x[i]; }), p.cols, p.eps);
  for (int64_t i = threadIdx.x; i < p.cols; i += kThreads) y[i] = x[i] * inverse * p.weight[i];
}

__global__ void add_rms_norm_kernel(AddRmsNormParams p) {
  const float* delta = p.delta.get() + blockIdx.x * p.cols;
  float* residual = p.residual.get() + blockIdx.x * p.cols;
  float* y = p.y.get() + blockIdx.x * p.cols;
  const float sum = sum_over(p.cols, [&](int64_t i) {
    residual[i] += delta[i];  // by the thread that reads it again below
    return residual[i] * residual[i];
  });
  const float inverse = inverse_root(sum, p.cols, p.eps);
  for (int64_t i = threadIdx.x; i < p.cols; i += kThreads) y[i] = residual[i] * inverse * p.weight[i];
}

__global__ void layer_norm_kernel(LayerNormParams p) {
  const float* x = p.x.get() + blockIdx.x * p.x_stride;
  float* y = p.y.get() + blockIdx.x * p.y_stride;
  const float mean = sum_over(p.cols, [&](int64_t i) { return x[i]; }) / static_cast<float>(p.cols);
  // The second pass over the centred row keeps the variance of a row with a large mean.
  const float sum = sum_over(p.cols, [&](int64_t i) { return (x[i] - mean) * (x[i] - mean); });
  const float inverse = inverse_root(sum, p.cols, p.eps);
  for (int64_t i = threadIdx.x; i < p.cols; i += kThreads) y[i] = (x[i] - mean) * inverse * p.weight[i] + p.bias[i];
}

}  // namespace

void rms_norm(void* stream, const RmsNormParams& p) {
  launch_kernel(stream, "rms_norm", &rms_norm_kernel, blocks_for(p.rows, 1), kThreads, 0, p);
}
void add_rms_norm(void* stream, const AddRmsNormParams& p) {
  launch_kernel(stream, "add_rms_norm", &add_rms_norm_kernel, blocks_for(p.rows, 1), kThreads, 0, p);
}
void layer_norm(void* stream, const LayerNormParams& p) {
  launch_kernel(stream, "layer_norm", &layer_norm_kernel, blocks_for(p.rows, 1), kThreads, 0, p);
}

}  // namespace lantern::cuda
