// Layouts of the paged caches. A cache is a run of blocks of block_size tokens; slot s is token s % block_size of block
// s / block_size. Block 0 is the null block: never written, always zeros. All layouts give defined finite values for
// zeroed memory.
//
// Latent row = [c: kv_lora_rank | k_pe: qk_rope_head_dim], the normed latent and the rotated shared key:
//   kF32   4 B per value; reference and tests
//   kBf16  2 B per value (1152 B for 512 + 64), token after token
//   kFp8   "FP8 with bf16 rope": kv_lora e4m3 bytes, then one f32 scale per 128 values, then bf16 rope values
//          (656 B for 512 + 64), token after token; scale = 2^ceil(log2(max(amax / 448, 1e-4))) (FlashMLA's sparse
//          format)
// Index key = index_head_dim values:
//   kF32, kBf16  token after token
//   kFp8   planar in a block: block_size * dim e4m3 bytes, then block_size f32 scales (132 B per token for 128);
//          scale = 2^ceil(log2(max(amax, 1e-4) / 448)) (DeepGEMM's format)
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/result.h"

namespace lantern {

enum class LatentLayout : uint8_t { kF32, kBf16, kFp8 };
enum class IndexKeyLayout : uint8_t { kF32, kBf16, kFp8 };

std::string_view to_string(LatentLayout layout);
std::string_view to_string(IndexKeyLayout layout);

inline constexpr int32_t kFp8ScaleGroup = 128;

// Bytes of one latent row. kFp8 needs kv_lora_rank to be a multiple of 128: unsupported otherwise.
Result<int64_t> latent_row_bytes(LatentLayout layout, int32_t kv_lora_rank, int32_t rope_dim);
// Bytes of one block of index keys. kFp8 needs dim <= 128 per scale (one scale per key).
int64_t index_block_bytes(IndexKeyLayout layout, int32_t dim, int32_t block_size);

// Reference (de)quantisers of one row, on host memory. `latent` has kv_lora_rank + rope_dim values.
void encode_latent(LatentLayout layout, const float* latent, int32_t kv_lora_rank, int32_t rope_dim, std::byte* row);
void decode_latent(LatentLayout layout, const std::byte* row, int32_t kv_lora_rank, int32_t rope_dim, float* latent);
// `offset` is the token's place in its block.
void encode_index_key(IndexKeyLayout layout, const float* key, int32_t dim, int32_t block_size, int32_t offset,
                      std::byte* block);
void decode_index_key(IndexKeyLayout layout, const std::byte* block, int32_t dim, int32_t block_size, int32_t offset,
                      float* key);

// Power-of-two scales with the floors of each consumer.
float latent_fp8_scale(float amax);       // 2^ceil(log2(max(amax / 448, 1e-4)))
float index_key_fp8_scale(float amax);    // 2^ceil(log2(max(amax, 1e-4) / 448))
float index_query_fp8_scale(float amax);  // 2^ceil(log2(max(amax, 1e-10) / 448))

}  // namespace lantern
