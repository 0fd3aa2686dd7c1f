#include "attention/cuda_launches.h"
#include "attention/fp8_rows.cuh"
#include "device/cuda/launch.cuh"

namespace lantern::cuda {
namespace {

constexpr unsigned kThreads = 128;

// A block for each token; with FP8 a warp for each group that has a scale.
__global__ void write_latent_kernel(LatentWriteParams p) {
  ptx::begin_overlapped();
  const int64_t slot = p.slot_mapping[blockIdx.x];
  if (slot < 0) return;
  const float* latent = p.latent.get() + blockIdx.x * p.latent_stride;
  std::byte* row = p.cache.get() + slot * p.row_bytes;
  const auto thread = static_cast<int32_t>(threadIdx.x);
  const int32_t width = p.kv_lora_rank + p.rope_dim;
  if (p.layout == LatentLayout::kF32) {
    for (int32_t i = thread; i < width; i += kThreads) reinterpret_cast<float*>(row)[i] = latent[i];
    return;
  }
  if (p.layout == LatentLayout::kBf16) {
    for (int32_t i = thread; i < width; i += kThreads) reinterpret_cast<bf16_t*>(row)[i] = narrow_bf16(latent[i]);
    return;
  }
  const int32_t groups = p.kv_lora_rank / kFp8ScaleGroup;
  auto* scales = reinterpret_cast<float*>(row + p.kv_lora_rank);
  for (int32_t g = thread / kWarp; g < groups; g += kThreads / kWarp) {
    const float* values = latent + g * kFp8ScaleGroup;
    float amax = 0;
    for (int32_t i = thread % kWarp; i < kFp8ScaleGroup; i += kWarp) amax = fmaxf(amax, fabsf(values[i]));
    const float scale = latent_scale(warp_reduce(amax, [](float a, float b) { return fmaxf(a, b); }));
    for (int32_t i = thread % kWarp; i < kFp8ScaleGroup; i += kWarp) {
      reinterpret_cast<e4m3_t*>(row)[g * kFp8ScaleGroup + i] = narrow_e4m3(values[i] / scale);
    }
    if (thread % kWarp == 0) scales[g] = scale;
  }
  auto* rope = reinterpret_cast<bf16_t*>(scales + groups);
  for (int32_t i = thread; i < p.rope_dim; i += kThreads) rope[i] = narrow_bf16(latent[p.kv_lora_rank + i]);
}

// A block for each token.
__global__ void write_index_key_kernel(IndexKeyWriteParams p) {
  ptx::begin_overlapped();
  __shared__ float key[kMaxIndexDim];
  __shared__ float shared[kThreads / kWarp];
  const int64_t slot = p.slot_mapping[blockIdx.x];
  if (slot < 0) return;
  const auto thread = static_cast<int32_t>(threadIdx.x);
  for (int32_t i = thread; i < p.dim; i += kThreads) key[i] = p.key[blockIdx.x * p.key_stride + i];
  __syncthreads();
  if (p.hadamard) hadamard(key, p.dim);
  const int64_t offset = slot % p.block_size;
  std::byte* block = p.cache.get() + slot / p.block_size * p.block_bytes;
  const int64_t at = offset * p.dim;
  if (p.layout == IndexKeyLayout::kFp8) {
    const float scale = index_key_scale(largest_magnitude(key, p.dim, shared));
    for (int32_t i = thread; i < p.dim; i += kThreads) {
      reinterpret_cast<e4m3_t*>(block)[at + i] = narrow_e4m3(key[i] / scale);
    }
    if (thread == 0) reinterpret_cast<float*>(block + int64_t{p.block_size} * p.dim)[offset] = scale;
    return;
  }
  for (int32_t i = thread; i < p.dim; i += kThreads) {
    if (p.layout == IndexKeyLayout::kBf16) {
      reinterpret_cast<bf16_t*>(block)[at + i] = narrow_bf16(key[i]);
    } else {
      reinterpret_cast<float*>(block)[at + i] = key[i];
    }
  }
}

// A block for each pair; caches are made of 4-byte words but for their last bytes.
__global__ void copy_blocks_kernel(BlockCopyParams p) {
  ptx::begin_overlapped();
  const std::byte* source = p.cache.get() + p.pairs[2 * blockIdx.x] * p.block_bytes;
  std::byte* target = p.cache.get() + p.pairs[2 * blockIdx.x + 1] * p.block_bytes;
  const bool aligned = p.block_bytes % 4 == 0;
  const int64_t words = aligned ? p.block_bytes / 4 : 0;
  for (int64_t i = threadIdx.x; i < words; i += kThreads) {
    reinterpret_cast<uint32_t*>(target)[i] = reinterpret_cast<const uint32_t*>(source)[i];
  }
  for (int64_t i = 4 * words + threadIdx.x; i < p.block_bytes; i += kThreads) target[i] = source[i];
}

}  // namespace

void write_latent(void* stream, const LatentWriteParams& p) {
  launch_overlapped(stream, "write_latent", &write_latent_kernel, blocks_for(p.tokens, 1), kThreads, 0, p);
}
void write_index_key(void* stream, const IndexKeyWriteParams& p) {
  CHECK(p.dim > 0 && p.dim <= kMaxIndexDim, "index keys of {} values; at most {} are supported", p.dim, kMaxIndexDim);
  launch_overlapped(stream, "write_index_key", &write_index_key_kernel, blocks_for(p.tokens, 1), kThreads, 0, p);
}
void copy_blocks(void* stream, const BlockCopyParams& p) {
  launch_overlapped(stream, "copy_blocks", &copy_blocks_kernel, blocks_for(p.count, 1), kThreads, 0, p);
}

}  // namespace lantern::cuda
