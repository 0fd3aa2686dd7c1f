#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>

#include "attention/cache_write.h"
#include "attention/cuda_attention.h"
#include "base/check.h"

namespace lantern {
namespace {

// Tokens per work unit: a row takes about a microsecond.
constexpr int64_t kWriteGrain = 16;

void write_latent_kernel(const LatentWriteParams& p, HostContext& context) {
  auto body = [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t slot = p.slot_mapping[t];
      if (slot < 0) continue;
      encode_latent(p.layout, p.latent.get() + t * p.latent_stride, p.kv_lora_rank, p.rope_dim,
                    p.cache.get() + slot * p.row_bytes);
    }
  };
  context.threads.parallel_for(p.tokens, kWriteGrain, std::ref(body));
}

void write_index_key_kernel(const IndexKeyWriteParams& p, HostContext& context) {
  CHECK(p.dim > 0 && p.dim <= kMaxIndexDim, "index keys of {} values; at most {} are supported", p.dim, kMaxIndexDim);
  auto body = [&](int64_t begin, int64_t end, int) {
    float key[kMaxIndexDim];
    for (int64_t t = begin; t < end; ++t) {
      const int64_t slot = p.slot_mapping[t];
      if (slot < 0) continue;
      std::memcpy(key, p.key.get() + t * p.key_stride, static_cast<size_t>(p.dim) * sizeof(float));
      if (p.hadamard) hadamard_transform(key, p.dim);
      encode_index_key(p.layout, key, p.dim, p.block_size, static_cast<int32_t>(slot % p.block_size),
                       p.cache.get() + slot / p.block_size * p.block_bytes);
    }
  };
  context.threads.parallel_for(p.tokens, kWriteGrain, std::ref(body));
}

}  // namespace

void write_latent(Stream& stream, const LatentWriteParams& params) {
  launch_attention(stream, "write_latent", &write_latent_kernel, &CudaAttention::write_latent, params);
}

void write_index_key(Stream& stream, const IndexKeyWriteParams& params) {
  launch_attention(stream, "write_index_key", &write_index_key_kernel, &CudaAttention::write_index_key, params);
}

void hadamard_transform(float* values, int32_t length) {
  CHECK(length > 0 && (length & (length - 1)) == 0, "a Hadamard transform of length {}; it must be a power of two",
        length);
  for (int32_t half = 1; half < length; half *= 2) {
    for (int32_t start = 0; start < length; start += 2 * half) {
      for (int32_t i = start; i < start + half; ++i) {
        const float a = values[i];
        const float b = values[i + half];
        values[i] = a + b;
        values[i + half] = a - b;
      }
    }
  }
  const float scale = 1.0f / std::sqrt(static_cast<float>(length));
  for (int32_t i = 0; i < length; ++i) values[i] *= scale;
}

}  // namespace lantern
