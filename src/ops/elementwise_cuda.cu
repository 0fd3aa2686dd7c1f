#include "device/cuda/launch.cuh"
#include "ops/cuda_launches.h"

namespace lantern::cuda {
namespace {

constexpr unsigned kThreads = 256;
constexpr int64_t kPerBlock = 4 * kThreads;

template <class Body>
__device__ void for_each(int64_t count, const Body& body) {
  const int64_t begin = blockIdx.x * kPerBlock + threadIdx.x;
  for (int64_t i = begin; i < min(count, (blockIdx.x + int64_t{1}) * kPerBlock); i += kThreads) body(i);
}

__global__ void fill_kernel(FillParams p) {
  ptx::begin_overlapped();
  for_each(p.count, [&](int64_t i) { p.x[i] = p.value; });
}
__global__ void scale_kernel(ScaleParams p) {
  ptx::begin_overlapped();
  for_each(p.count, [&](int64_t i) { p.x[i] *= p.factor; });
}
__global__ void add_kernel(AddParams p) {
  ptx::begin_overlapped();
  for_each(p.count, [&](int64_t i) { p.x[i] += p.delta[i]; });
}

}  // namespace

void fill(void* stream, const FillParams& p) {
  launch_overlapped(stream, "fill", &fill_kernel, blocks_for(p.count, kPerBlock), kThreads, 0, p);
}
void scale(void* stream, const ScaleParams& p) {
  launch_overlapped(stream, "scale", &scale_kernel, blocks_for(p.count, kPerBlock), kThreads, 0, p);
}
void add(void* stream, const AddParams& p) {
  launch_overlapped(stream, "add", &add_kernel, blocks_for(p.count, kPerBlock), kThreads, 0, p);
}

}  // namespace lantern::cuda
