// Writes this step's latents and index keys into the paged caches at slot_mapping; slot -1 writes nothing.
#pragma once

#include <cstddef>
#include <cstdint>

#include "attention/cache_layout.h"
#include "device/fixed.h"
#include "device/stream.h"

namespace lantern {

struct LatentWriteParams {
  DevPtr<const float> latent;  // [tokens, kv_lora_rank + rope_dim], row stride latent_stride; normed and rotated
  int64_t latent_stride = 0;
  DevPtr<const int32_t> slot_mapping;  // [tokens]
  DevPtr<std::byte> cache;             // slots * row_bytes
  int64_t row_bytes = 0;
  LatentLayout layout = LatentLayout::kBf16;
  int32_t kv_lora_rank = 0;
  int32_t rope_dim = 0;
  int64_t tokens = 0;
};
void write_latent(Stream& stream, const LatentWriteParams& params);

// The longest index key.
inline constexpr int32_t kMaxIndexDim = 1024;

struct IndexKeyWriteParams {
  DevPtr<const float> key;  // [tokens, dim], row stride key_stride; normed and rotated
  int64_t key_stride = 0;
  DevPtr<const int32_t> slot_mapping;  // [tokens]
  DevPtr<std::byte> cache;             // blocks * block_bytes
  int64_t block_bytes = 0;
  int32_t block_size = 64;
  IndexKeyLayout layout = IndexKeyLayout::kFp8;
  int32_t dim = 0;
  bool hadamard = false;  // transform (times dim^-0.5) before storing; the query must be treated alike
  int64_t tokens = 0;
};
void write_index_key(Stream& stream, const IndexKeyWriteParams& params);

// In-place Walsh-Hadamard transform of a power-of-two length, times length^-0.5 (orthonormal).
void hadamard_transform(float* values, int32_t length);

}  // namespace lantern
