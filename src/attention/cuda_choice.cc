#include "attention/cuda_choice.h"

#include "attention/mla_tile_shape.h"
#include "device/device_traits.h"

namespace lantern::cuda {
namespace {

// Of the kernels with rows of 512 + 64 values.
Refusal refuse_cache(const LatentCacheView& cache, const DeviceTraits& device) {
  const bool fp8 = cache.layout == LatentLayout::kFp8;
  if (!fp8 && cache.layout != LatentLayout::kBf16) return cannot("the cache's rows are neither bf16 nor FP8");
  if (cache.kv_lora_rank != kMlaRank || cache.rope_dim != kMlaRope) {
    return cannot("the cache's rows are not of 512 + 64 values");
  }
  if (cache.row_bytes != (fp8 ? kMlaFp8RowBytes : kMlaRowBytes)) {
    return cannot("the cache's rows do not lie one behind the other");
  }
  if (reinterpret_cast<uintptr_t>(cache.data.get()) % 16 != 0) return cannot("the cache is not aligned to 16 bytes");
  if (device.most_shared_bytes < (fp8 ? MlaTileLayout<64, true>::kBytes : MlaTileLayout<64, false>::kBytes)) {
    return cannot(fp8 ? "a block of 64 heads wants more shared memory for FP8 rows than the GPU gives it"
                      : "a block of 64 heads wants more shared memory for bf16 rows than the GPU gives it");
  }
  return {};
}

Refusal decode_mma(const MlaDecodeDesc& d, const DeviceTraits& device) { return refuse_cache(d.cache, device); }
Refusal decode_wgmma(const MlaDecodeDesc& d, const DeviceTraits& device) {
  if (const Refusal refusal = refuse_all_but_hopper(device)) return refusal;
  if (const Refusal refusal = refuse_cache(d.cache, device)) return refusal;
  if (d.heads <= kMlaHeadsOfHalfTile) return not_meant("up to 32 heads leave half of its tile of 64 empty");
  return d.tokens <= kMlaSpreadTokens ? not_meant("up to 8 tokens are spread over more blocks in tiles of fewer heads")
                                      : Refusal{};
}

Refusal prefill_absorbed(const MlaPrefillDesc& d, const DeviceTraits& device) { return refuse_cache(d.cache, device); }

// Of the projections' kernels with tiles, for which kKvPerLane neighbouring columns lie together, with one scale.
Refusal refuse_kv_b(const KvUpProjection& w) {
  if (w.dtype != DType::kBF16 && w.dtype != DType::kF8E4M3) return cannot("kv_b_proj is neither bf16 nor FP8");
  if (w.kv_lora_rank % kKvPerLane != 0 || w.kv_lora_rank > kKvColumns) {
    return cannot("kv_lora_rank is no multiple of 16 up to 512");
  }
  if (w.row_bytes % 16 != 0 || reinterpret_cast<uintptr_t>(w.data.get()) % 16 != 0) {
    return cannot("kv_b_proj's rows do not begin at multiples of 16 bytes");
  }
  if (w.block_rows != 0 && w.block_cols % kKvPerLane != 0) {
    return cannot("kv_b_proj's scale blocks are no multiple of 16 columns wide");
  }
  return {};
}

constexpr const char* kFewTokens = "fewer than 9 tokens are projected faster by the kernel of few";

Refusal absorb_few(const AbsorbQueryDesc& d, const DeviceTraits&) {
  if (const Refusal refusal = refuse_kv_b(d.kv_b)) return refusal;
  return d.kv_b.nope_dim % kKvPerThread == 0 ? Refusal{} : cannot("qk_nope_head_dim is no multiple of 4");
}
Refusal absorb_many(const AbsorbQueryDesc& d, const DeviceTraits&) {
  if (const Refusal refusal = refuse_kv_b(d.kv_b)) return refusal;
  if (d.kv_b.nope_dim % (kKvParts * kKvPerLane) != 0) return cannot("qk_nope_head_dim is no multiple of 64");
  if (d.kv_b.kv_lora_rank % kKvManyOutputs != 0) return cannot("kv_lora_rank is no multiple of 128");
  if (!d.aligned) return cannot("queries or latents do not begin at multiples of 16 bytes");
  return d.tokens < kKvManyTokens ? not_meant(kFewTokens) : Refusal{};
}

Refusal project_few(const ProjectValueDesc& d, const DeviceTraits&) {
  if (const Refusal refusal = refuse_kv_b(d.kv_b)) return refusal;
  if (d.kv_b.kv_lora_rank != kKvColumns) return cannot("kv_lora_rank is not 512");
  return d.latents_aligned ? Refusal{} : cannot("latents do not begin at multiples of 16 bytes");
}
Refusal project_many(const ProjectValueDesc& d, const DeviceTraits& device) {
  if (const Refusal refusal = project_few(d, device)) return refusal;
  if (d.kv_b.v_dim % kKvManyOutputs != 0) return cannot("v_head_dim is no multiple of 128");
  if (!d.out_aligned) return cannot("outputs do not begin at multiples of 16 bytes");
  return d.tokens < kKvManyTokens ? not_meant(kFewTokens) : Refusal{};
}

Refusal score_mma(const IndexScoreDesc& d, const DeviceTraits&) {
  if (d.layout != IndexKeyLayout::kFp8) return cannot("index keys are not FP8");
  if (d.dim != kIndexTileDim) return cannot("index keys are not of 128 values");
  if (d.heads > 64) return cannot("the indexer has more than 64 heads");
  if (d.block_size % kIndexTileKeys != 0) return cannot("a block's tokens are no multiple of 16");
  if (d.block_bytes % 16 != 0 || !d.cache_aligned) return cannot("blocks do not begin at multiples of 16 bytes");
  return {};
}

}  // namespace

const Implementations<MlaDecodeKernel, MlaDecodeDesc> kMlaDecodeKernels{{{"mla_decode.sm90a.wgmma", &decode_wgmma},
                                                                         {"mla_decode.sm80.mma", &decode_mma},
                                                                         {"mla_decode.portable", nullptr}}};
const Implementations<MlaPrefillKernel, MlaPrefillDesc> kMlaPrefillKernels{
    {{"mla_prefill.sm80.absorbed", &prefill_absorbed}, {"mla_prefill.portable", nullptr}}};
const Implementations<KvProjectionKernel, AbsorbQueryDesc> kAbsorbQueryKernels{
    {{"absorb_query.sm80.many", &absorb_many},
     {"absorb_query.sm80.few", &absorb_few},
     {"absorb_query.portable", nullptr}}};
const Implementations<KvProjectionKernel, ProjectValueDesc> kProjectValueKernels{
    {{"project_value.sm80.many", &project_many},
     {"project_value.sm80.few", &project_few},
     {"project_value.portable", nullptr}}};
const Implementations<IndexScoreKernel, IndexScoreDesc> kIndexScoreKernels{
    {{"index_scores.sm80.mma", &score_mma}, {"index_scores.portable", nullptr}}};

}  // namespace lantern::cuda
