#include "device/cuda/launch.cuh"
#include "ops/cuda_launches.h"

namespace lantern::cuda {
namespace {

constexpr unsigned kThreads = 256;
constexpr int64_t kWordsPerBlock = 16 * kThreads;

__global__ void random_fill_kernel(RandomFillParams p) {
  const int64_t words = (p.bytes + 7) / 8, end = min(words, (blockIdx.x + int64_t{1}) * kWordsPerBlock);
  for (int64_t i = blockIdx.x * kWordsPerBlock + threadIdx.x; i < end; i += kThreads) {
    const uint64_t word = random_values(p.values, p.key, p.width, static_cast<uint64_t>(i));
    if (8 * i + 8 <= p.bytes) {
      reinterpret_cast<uint64_t*>(p.data.get())[i] = word;
    } else {
      for (int64_t at = 8 * i; at < p.bytes; ++at) p.data[at] = static_cast<std::byte>(word >> (8 * (at - 8 * i)));
    }
  }
}

}  // namespace

void random_fill(void* stream, const RandomFillParams& p) {
  launch_kernel(stream, "random_fill", &random_fill_kernel, blocks_for(p.bytes, 8 * kWordsPerBlock), kThreads, 0, p);
}

}  // namespace lantern::cuda
