#include "device/cuda/block_reduce.cuh"
#include "device/cuda/launch.cuh"
#include "ops/cuda_launches.h"

namespace lantern::cuda {
namespace {

constexpr unsigned kThreads = 256;
constexpr int64_t kBlockBytes = 128 << 10;  // a block's part; small beside what a multiprocessor reads in all
constexpr int kLoads = 8;                   // under way at once in each thread
static_assert(kReadPieceBytes % kBlockBytes == 0 && kBlockBytes % (16 * kThreads * kLoads) == 0);

__global__ void read_memory_kernel(ReadMemoryParams p) {
  const auto* data = reinterpret_cast<const uint4*>(p.data.get() + blockIdx.x * kBlockBytes) + threadIdx.x;
  uint4 all{};
  for (int64_t i = 0; i < kBlockBytes / 16; i += int64_t{kThreads} * kLoads) {
    uint4 read[kLoads];
#pragma unroll
    for (int j = 0; j < kLoads; ++j) read[j] = data[i + int64_t{kThreads} * j];
#pragma unroll
    for (int j = 0; j < kLoads; ++j) {
      all.x ^= read[j].x ^ read[j].z;
      all.y ^= read[j].y ^ read[j].w;
    }
  }
  __shared__ uint64_t shared[kThreads / kWarp];
  const uint64_t word =
      block_reduce(uint64_t{all.y} << 32 | all.x, uint64_t{0}, shared, [](uint64_t a, uint64_t b) { return a ^ b; });
  if (threadIdx.x == 0) atomicXor(reinterpret_cast<unsigned long long*>(p.word.get()), word);
}

}  // namespace

void read_memory(void* stream, const ReadMemoryParams& p) {
  launch_kernel(stream, "read_memory", &read_memory_kernel, blocks_for(p.bytes, kBlockBytes), kThreads, 0, p);
}

}  // namespace lantern::cuda
