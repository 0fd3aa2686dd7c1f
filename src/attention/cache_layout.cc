#include "attention/cache_layout.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include <fmt/core.h>

#include "base/check.h"
#include "base/dtype.h"
#include "base/e4m3_encode.h"

namespace lantern {
namespace {

void put_f32(std::byte* at, float value) { std::memcpy(at, &value, sizeof(value)); }

float get_f32(const std::byte* at) {
  float value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

void encode_bf16(const float* values, int32_t count, std::byte* out) {
  for (int32_t i = 0; i < count; ++i) {
    const bf16_t x = to_bf16(values[i]);
    std::memcpy(out + 2 * i, &x, sizeof(x));
  }
}

void decode_bf16(const std::byte* in, int32_t count, float* values) {
  for (int32_t i = 0; i < count; ++i) {
    bf16_t x;
    std::memcpy(&x, in + 2 * i, sizeof(x));
    values[i] = to_float(x);
  }
}

void decode_e4m3(const std::byte* in, int32_t count, float scale, float* values) {
  for (int32_t i = 0; i < count; ++i) values[i] = to_float(e4m3_t{static_cast<uint8_t>(in[i])}) * scale;
}

float largest_magnitude(const float* values, int32_t count) {
  float amax = 0.0f;
  for (int32_t i = 0; i < count; ++i) amax = std::max(amax, std::fabs(values[i]));
  return amax;
}

}  // namespace

std::string_view to_string(LatentLayout layout) {
  switch (layout) {
    case LatentLayout::kF32: return "f32";
    case LatentLayout::kBf16: return "bf16";
    case LatentLayout::kFp8: return "fp8";
  }
  return "unknown";
}

std::string_view to_string(IndexKeyLayout layout) {
  switch (layout) {
    case IndexKeyLayout::kF32: return "f32";
    case IndexKeyLayout::kBf16: return "bf16";
    case IndexKeyLayout::kFp8: return "fp8";
  }
  return "unknown";
}

Result<int64_t> latent_row_bytes(LatentLayout layout, int32_t kv_lora_rank, int32_t rope_dim) {
  switch (layout) {
    case LatentLayout::kF32: return int64_t{4} * (kv_lora_rank + rope_dim);
    case LatentLayout::kBf16: return int64_t{2} * (kv_lora_rank + rope_dim);
    case LatentLayout::kFp8: break;
  }
  if (kv_lora_rank % kFp8ScaleGroup != 0) {
    return Error(ErrorCode::kUnsupported,
                 fmt::format("an fp8 latent cache has one scale per {} values and kv_lora_rank {} is not a multiple of "
                             "it; choose a bf16 cache",
                             kFp8ScaleGroup, kv_lora_rank));
  }
  return int64_t{kv_lora_rank} + 4 * (kv_lora_rank / kFp8ScaleGroup) + int64_t{2} * rope_dim;
}

int64_t index_block_bytes(IndexKeyLayout layout, int32_t dim, int32_t block_size) {
  switch (layout) {
    case IndexKeyLayout::kF32: return int64_t{4} * dim * block_size;
    case IndexKeyLayout::kBf16: return int64_t{2} * dim * block_size;
    case IndexKeyLayout::kFp8: break;
  }
  CHECK(dim <= kFp8ScaleGroup, "an fp8 index key of {} values would need more than its one scale", dim);
  return int64_t{block_size} * (dim + 4);
}

void encode_latent(LatentLayout layout, const float* latent, int32_t kv_lora_rank, int32_t rope_dim, std::byte* row) {
  switch (layout) {
    case LatentLayout::kF32:
      std::memcpy(row, latent, static_cast<size_t>(kv_lora_rank + rope_dim) * sizeof(float));
      return;
    case LatentLayout::kBf16: encode_bf16(latent, kv_lora_rank + rope_dim, row); return;
    case LatentLayout::kFp8: break;
  }
  std::byte* scales = row + kv_lora_rank;
  const int32_t groups = kv_lora_rank / kFp8ScaleGroup;
  for (int32_t g = 0; g < groups; ++g) {
    const float* values = latent + g * kFp8ScaleGroup;
    const float scale = latent_fp8_scale(largest_magnitude(values, kFp8ScaleGroup));
    encode_e4m3_row(values, kFp8ScaleGroup, scale, row + g * kFp8ScaleGroup);
    put_f32(scales + 4 * g, scale);
  }
  encode_bf16(latent + kv_lora_rank, rope_dim, scales + 4 * groups);
}

void decode_latent(LatentLayout layout, const std::byte* row, int32_t kv_lora_rank, int32_t rope_dim, float* latent) {
  switch (layout) {
    case LatentLayout::kF32:
      std::memcpy(latent, row, static_cast<size_t>(kv_lora_rank + rope_dim) * sizeof(float));
      return;
    case LatentLayout::kBf16: decode_bf16(row, kv_lora_rank + rope_dim, latent); return;
    case LatentLayout::kFp8: break;
  }
  const std::byte* scales = row + kv_lora_rank;
  const int32_t groups = kv_lora_rank / kFp8ScaleGroup;
  for (int32_t g = 0; g < groups; ++g) {
    decode_e4m3(row + g * kFp8ScaleGroup, kFp8ScaleGroup, get_f32(scales + 4 * g), latent + g * kFp8ScaleGroup);
  }
  decode_bf16(scales + 4 * groups, rope_dim, latent + kv_lora_rank);
}

void encode_index_key(IndexKeyLayout layout, const float* key, int32_t dim, int32_t block_size, int32_t offset,
                      std::byte* block) {
  const int64_t at = int64_t{offset} * dim;
  switch (layout) {
    case IndexKeyLayout::kF32: std::memcpy(block + 4 * at, key, static_cast<size_t>(dim) * sizeof(float)); return;
    case IndexKeyLayout::kBf16: encode_bf16(key, dim, block + 2 * at); return;
    case IndexKeyLayout::kFp8: break;
  }
  const float scale = index_key_fp8_scale(largest_magnitude(key, dim));
  encode_e4m3_row(key, dim, scale, block + at);
  put_f32(block + int64_t{block_size} * dim + 4 * int64_t{offset}, scale);
}

void decode_index_key(IndexKeyLayout layout, const std::byte* block, int32_t dim, int32_t block_size, int32_t offset,
                      float* key) {
  const int64_t at = int64_t{offset} * dim;
  switch (layout) {
    case IndexKeyLayout::kF32: std::memcpy(key, block + 4 * at, static_cast<size_t>(dim) * sizeof(float)); return;
    case IndexKeyLayout::kBf16: decode_bf16(block + 2 * at, dim, key); return;
    case IndexKeyLayout::kFp8: break;
  }
  decode_e4m3(block + at, dim, get_f32(block + int64_t{block_size} * dim + 4 * int64_t{offset}), key);
}

float latent_fp8_scale(float amax) { return round_up_to_power_of_two(std::max(amax / 448.0f, 1e-4f)); }
float index_key_fp8_scale(float amax) { return round_up_to_power_of_two(std::max(amax, 1e-4f) / 448.0f); }
float index_query_fp8_scale(float amax) { return round_up_to_power_of_two(std::max(amax, 1e-10f) / 448.0f); }

}  // namespace lantern
