// The paged caches of one model: a latent cache per layer (the MTP layer included) and an index-key cache per layer
// that computes a selection. Block 0 is the null block: zeros, never written.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "attention/cache_layout.h"
#include "attention/mla.h"
#include "device/persistent_buffer.h"
#include "device/stream.h"
#include "model/config.h"

namespace lantern {

struct KvCacheLayouts {
  LatentLayout latent = LatentLayout::kBf16;
  IndexKeyLayout index = IndexKeyLayout::kFp8;
};

// The layouts behind --kv-cache-dtype: auto and bf16 store bf16 latents, fp8 the 656-byte rows, both with FP8 index
// keys; f32 stores everything unrounded (reference). Errors: another name; fp8 with a kv_lora_rank that is no multiple
// of 128; FP8 index keys of more than 128 values.
Result<KvCacheLayouts> parse_kv_cache_dtype(std::string_view name, const ModelConfig& config);

// Bytes that one token takes in all caches of the model.
int64_t kv_bytes_per_token(const ModelConfig& config, const KvCacheLayouts& layouts, int32_t block_size);

class KvCache {
 public:
  // `num_blocks` counts the null block. Errors: out_of_memory with numbers.
  static Result<std::unique_ptr<KvCache>> create(Device& device, const ModelConfig& config,
                                                 const KvCacheLayouts& layouts, int32_t block_size, int32_t num_blocks);

  const KvCacheLayouts& layouts() const { return layouts_; }
  int32_t block_size() const { return block_size_; }
  int32_t num_blocks() const { return num_blocks_; }
  int32_t num_layers() const { return static_cast<int32_t>(latent_.size()); }  // the MTP layer's included

  LatentCacheView latent(int32_t layer) const;
  DevPtr<std::byte> latent_data(int32_t layer) const { return latent_[static_cast<size_t>(layer)]->fixed(); }
  int64_t latent_row_bytes() const { return latent_row_bytes_; }
  // Null for a layer without an indexer of its own.
  DevPtr<std::byte> index_data(int32_t layer) const;
  DevPtr<const std::byte> index_view(int32_t layer) const;
  int64_t index_block_bytes() const { return index_block_bytes_; }

  // All rows of block pairs[2 i] go to block pairs[2 i + 1], in every cache, for i < count. No block may be the target
  // of one pair and named by another. `pairs` is [2 * count] in device memory.
  void copy_blocks(Stream& stream, DevPtr<const int32_t> pairs, int32_t count) const;

 private:
  KvCache() = default;

  KvCacheLayouts layouts_;
  int32_t block_size_ = 0;
  int32_t num_blocks_ = 0;
  int32_t kv_lora_rank_ = 0;
  int32_t rope_dim_ = 0;
  int64_t latent_row_bytes_ = 0;
  int64_t index_block_bytes_ = 0;
  std::vector<std::unique_ptr<PersistentBuffer<std::byte>>> latent_;  // [total_layers]
  std::vector<std::unique_ptr<PersistentBuffer<std::byte>>> index_;   // [total_layers], null without an indexer
};

}  // namespace lantern
