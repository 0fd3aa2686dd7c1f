#include "model/kv_cache.h"

#include <fmt/core.h>

#include "attention/block_copy.h"

namespace lantern {
Result<KvCacheLayouts> parse_kv_cache_dtype(std::string_view name, const ModelConfig& config) {
  const bool is_bf16 = name == "auto" || name == "bf16" || name == "bfloat16";
  const bool is_fp8 = name == "fp8" || name == "fp8_ds_mla";
  if ((is_bf16 || is_fp8) && config.has_indexer() && config.index_head_dim > kFp8ScaleGroup) {
    return Error(ErrorCode::kUnsupported,
                 fmt::format("--kv-cache-dtype {} stores index keys in FP8 with one scale per {} values, but the "
                             "model's index_head_dim is {}; use f32",
                             name, kFp8ScaleGroup, config.index_head_dim));
  }
  if (is_bf16) return KvCacheLayouts{LatentLayout::kBf16, IndexKeyLayout::kFp8};
  if (name == "f32") return KvCacheLayouts{LatentLayout::kF32, IndexKeyLayout::kF32};
  if (is_fp8) {
    auto row = latent_row_bytes(LatentLayout::kFp8, config.kv_lora_rank, config.qk_rope_head_dim);
    if (!row.ok()) return std::move(row).error();
    return KvCacheLayouts{LatentLayout::kFp8, IndexKeyLayout::kFp8};
  }
  return Error(ErrorCode::kInvalidArgument,
               fmt::format("--kv-cache-dtype {} is not known; use auto, bf16, fp8 or f32", name));
}

int64_t kv_bytes_per_token(const ModelConfig& config, const KvCacheLayouts& layouts, int32_t block_size) {
  auto row = latent_row_bytes(layouts.latent, config.kv_lora_rank, config.qk_rope_head_dim);
  int64_t bytes = row.ok() ? *row * config.total_layers() : 0;
  for (int32_t layer = 0; layer < config.total_layers(); ++layer) {
    if (config.computes_selection(layer)) {
      bytes += index_block_bytes(layouts.index, config.index_head_dim, block_size) / block_size;
    }
  }
  return bytes;
}

Result<std::unique_ptr<KvCache>> KvCache::create(Device& device, const ModelConfig& config,
                                                 const KvCacheLayouts& layouts, int32_t block_size,
                                                 int32_t num_blocks) {
  std::unique_ptr<KvCache> cache(new KvCache);
  cache->layouts_ = layouts;
  cache->block_size_ = block_size;
  cache->num_blocks_ = num_blocks;
  cache->kv_lora_rank_ = config.kv_lora_rank;
  cache->rope_dim_ = config.qk_rope_head_dim;
  ASSIGN_OR_RETURN(cache->latent_row_bytes_,
                   lantern::latent_row_bytes(layouts.latent, config.kv_lora_rank, config.qk_rope_head_dim));
  if (config.has_indexer()) {
    cache->index_block_bytes_ = lantern::index_block_bytes(layouts.index, config.index_head_dim, block_size);
  }
  for (int32_t layer = 0; layer < config.total_layers(); ++layer) {
    const int64_t latent_bytes = cache->latent_row_bytes_ * block_size * num_blocks;
    ASSIGN_OR_RETURN(auto latent, PersistentBuffer<std::byte>::create(device, fmt::format("latent cache {}", layer),
                                                                      latent_bytes, MemoryClass::kPool));
    cache->latent_.push_back(std::move(latent));
    if (!config.computes_selection(layer)) {
      cache->index_.push_back(nullptr);
      continue;
    }
    ASSIGN_OR_RETURN(auto index,
                     PersistentBuffer<std::byte>::create(device, fmt::format("index cache {}", layer),
                                                         cache->index_block_bytes_ * num_blocks, MemoryClass::kPool));
    cache->index_.push_back(std::move(index));
  }
  return cache;
}

LatentCacheView KvCache::latent(int32_t layer) const {
  return {.data = Fixed<const std::byte>(latent_[static_cast<size_t>(layer)]->fixed()),
          .row_bytes = latent_row_bytes_,
          .layout = layouts_.latent,
          .kv_lora_rank = kv_lora_rank_,
          .rope_dim = rope_dim_};
}

DevPtr<std::byte> KvCache::index_data(int32_t layer) const {
  const auto& buffer = index_[static_cast<size_t>(layer)];
  return buffer == nullptr ? DevPtr<std::byte>() : DevPtr<std::byte>(buffer->fixed());
}

void KvCache::copy_blocks(Stream& stream, DevPtr<const int32_t> pairs, int32_t count) const {
  for (const auto& latent : latent_) {
    lantern::copy_blocks(
        stream,
        {.cache = latent->fixed(), .block_bytes = latent_row_bytes_ * block_size_, .pairs = pairs, .count = count});
  }
  for (const auto& index : index_) {
    if (index == nullptr) continue;
    lantern::copy_blocks(stream,
                         {.cache = index->fixed(), .block_bytes = index_block_bytes_, .pairs = pairs, .count = count});
  }
}

DevPtr<const std::byte> KvCache::index_view(int32_t layer) const {
  const auto& buffer = index_[static_cast<size_t>(layer)];
  return buffer == nullptr ? DevPtr<const std::byte>() : DevPtr<const std::byte>(buffer->fixed());
}

}  // namespace lantern
