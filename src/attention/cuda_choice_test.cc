// Which kernel attends, for shapes, formats, places and devices: against a table, and against the conditions written
// out once more as a whole.
#include "attention/cuda_choice.h"

#include <gtest/gtest.h>

#include <string>

#include "attention/cuda_attention.h"
#include "device/launch_failures.h"

namespace lantern::cuda {
namespace {

const DeviceTraits kHopper{.compute_capability = 90, .most_shared_bytes = 227 << 10};
const DeviceTraits kAmpere{.compute_capability = 80, .most_shared_bytes = 163 << 10};
const DeviceTraits kAda{.compute_capability = 89, .most_shared_bytes = 99 << 10};
const DeviceTraits kBlackwell{.compute_capability = 100, .most_shared_bytes = 227 << 10};

// NOLINTNEXTLINE(performance-no-int-to-ptr): never followed
auto at(uintptr_t address) { return borrow_fixed(reinterpret_cast<const std::byte*>(address), int64_t{1}); }

LatentCacheView cache(LatentLayout layout, int32_t rank = 512, int32_t rope = 64, uintptr_t address = 4096) {
  const int64_t fp8_bytes = rank + 4 * (rank / 128) + 2 * rope;
  return {
      .data = at(address),
      .row_bytes = layout == LatentLayout::kFp8 ? fp8_bytes : (layout == LatentLayout::kBf16 ? 2 : 4) * (rank + rope),
      .layout = layout,
      .kv_lora_rank = rank,
      .rope_dim = rope};
}

template <class Desc, size_t kCount>
std::string name(const std::array<Implementation<Desc>, kCount>& list, const Desc& desc, const DeviceTraits& device) {
  return list[choose<size_t>(list, desc, device)].name;
}
std::string decode_name(const LatentCacheView& cache, int32_t heads, int32_t tokens, const DeviceTraits& device) {
  return name(kMlaDecodeKernels, MlaDecodeDesc{.cache = cache, .heads = heads, .tokens = tokens}, device);
}
std::string prefill_name(const LatentCacheView& cache, const DeviceTraits& device) {
  return name(kMlaPrefillKernels, MlaPrefillDesc{.cache = cache}, device);
}

TEST(AttentionChoice, OfDecodes) {
  for (const LatentLayout layout : {LatentLayout::kBf16, LatentLayout::kFp8}) {
    for (const auto& [heads, tokens, on_hopper] : {std::tuple{128, 128, "mla_decode.sm90a.wgmma"},
                                                   {128, 9, "mla_decode.sm90a.wgmma"},
                                                   {128, 8, "mla_decode.sm80.mma"},
                                                   {128, 1, "mla_decode.sm80.mma"},
                                                   {33, 9, "mla_decode.sm90a.wgmma"},
                                                   {32, 4096, "mla_decode.sm80.mma"},
                                                   {20, 64, "mla_decode.sm80.mma"},
                                                   {4, 64, "mla_decode.sm80.mma"}}) {
      EXPECT_EQ(decode_name(cache(layout), heads, tokens, kHopper), on_hopper) << heads << " heads, " << tokens;
      EXPECT_EQ(decode_name(cache(layout), heads, tokens, kBlackwell), "mla_decode.sm80.mma");
    }
    EXPECT_EQ(prefill_name(cache(layout), kHopper), "mla_prefill.sm80.absorbed");
  }
  // A block of 64 heads takes 226 KiB for bf16 rows and 195 KiB for FP8 rows.
  EXPECT_EQ(decode_name(cache(LatentLayout::kBf16), 128, 1, kAmpere), "mla_decode.portable");
  EXPECT_EQ(decode_name(cache(LatentLayout::kFp8), 128, 1, kAmpere), "mla_decode.portable");
  EXPECT_EQ(decode_name(cache(LatentLayout::kFp8), 4, 1, kAda), "mla_decode.portable");
  EXPECT_EQ(prefill_name(cache(LatentLayout::kFp8), kAda), "mla_prefill.portable");
  const std::vector<Considered> small =
      consider(kMlaDecodeKernels, MlaDecodeDesc{.cache = cache(LatentLayout::kFp8)}, kAda);
  EXPECT_STREQ(small[1].refusal.reason,
               "a block of 64 heads wants more shared memory for FP8 rows than the GPU gives it");
  EXPECT_FALSE(small[1].refusal.by_choice);
}

TEST(AttentionChoice, OfOtherCachesIsPlain) {
  LatentCacheView apart = cache(LatentLayout::kBf16);
  apart.row_bytes += 16;
  for (const LatentCacheView& c :
       {cache(LatentLayout::kF32), cache(LatentLayout::kBf16, 256), cache(LatentLayout::kBf16, 512, 32),
        cache(LatentLayout::kBf16, 512, 64, 4104), cache(LatentLayout::kFp8, 384), apart}) {
    EXPECT_EQ(decode_name(c, 128, 128, kHopper), "mla_decode.portable");
    EXPECT_EQ(prefill_name(c, kHopper), "mla_prefill.portable");
  }
}

// The shared memory that tells is exactly what a block of 64 heads takes.
TEST(AttentionChoice, OfDecodesTurnsWhereABlockFits) {
  constexpr int kQueriesAndTile = 2 * 64 * 1152, kRest = 64 * 128 + 8 * 64 * 4;
  for (const auto& [layout, bytes] : {std::pair{LatentLayout::kBf16, kQueriesAndTile + 64 * 1152 + kRest},
                                      {LatentLayout::kFp8, kQueriesAndTile + 64 * 656 + kRest}}) {
    const DeviceTraits enough{.compute_capability = 86, .most_shared_bytes = bytes};
    const DeviceTraits less{.compute_capability = 86, .most_shared_bytes = bytes - 1};
    EXPECT_EQ(decode_name(cache(layout), 128, 64, enough), "mla_decode.sm80.mma");
    EXPECT_EQ(decode_name(cache(layout), 128, 64, less), "mla_decode.portable");
  }
}

KvUpProjection kv_b(DType dtype, int32_t nope, int32_t v, int32_t rank = 512, uintptr_t address = 4096,
                    int32_t block_cols = 128) {
  KvUpProjection w;
  w.data = at(address);
  w.dtype = dtype;
  w.row_bytes = static_cast<int64_t>(dtype_bytes(dtype, static_cast<size_t>(rank)));
  w.block_rows = dtype == DType::kF8E4M3 ? 128 : 0;
  w.block_cols = dtype == DType::kF8E4M3 ? block_cols : 0;
  w.heads = 16;
  w.nope_dim = nope;
  w.v_dim = v;
  w.kv_lora_rank = rank;
  return w;
}

bool tiles_take(const KvUpProjection& w) {
  return (w.dtype == DType::kBF16 || w.dtype == DType::kF8E4M3) && w.kv_lora_rank % 16 == 0 && w.kv_lora_rank <= 512 &&
         w.row_bytes % 16 == 0 && reinterpret_cast<uintptr_t>(w.data.get()) % 16 == 0 &&
         (w.block_rows == 0 || w.block_cols % 16 == 0);
}

void check(const KvUpProjection& w, int64_t tokens, bool aligned, bool out) {
  const bool absorb_few = tiles_take(w) && w.nope_dim % 4 == 0;
  const bool absorb_many = tokens >= 9 && tiles_take(w) && w.nope_dim % 64 == 0 && w.kv_lora_rank % 128 == 0 && aligned;
  const bool project_few = tiles_take(w) && w.kv_lora_rank == 512 && aligned;
  const bool project_many = project_few && tokens >= 9 && w.v_dim % 128 == 0 && out;
  const auto kernel = [](bool many, bool few) { return many ? ".sm80.many" : few ? ".sm80.few" : ".portable"; };
  ASSERT_EQ(name(kAbsorbQueryKernels, AbsorbQueryDesc{w, tokens, aligned}, kHopper),
            std::string("absorb_query") + kernel(absorb_many, absorb_few));
  ASSERT_EQ(name(kProjectValueKernels, ProjectValueDesc{w, tokens, aligned, out}, kHopper),
            std::string("project_value") + kernel(project_many, project_few));
}

TEST(AttentionChoice, OfProjectionsIsThatOfTheirConditions) {
  for (const DType dtype : {DType::kBF16, DType::kF8E4M3, DType::kF32}) {
    for (const int32_t rank : {120, 128, 256, 512, 640}) {
      for (const auto& [nope, v] : {std::pair{128, 128}, {192, 256}, {96, 64}, {62, 192}}) {
        for (const auto& [address, block_cols] : {std::pair{4096, 128}, {4104, 128}, {4096, 24}}) {
          const KvUpProjection w = kv_b(dtype, nope, v, rank, static_cast<uintptr_t>(address), block_cols);
          for (const int64_t tokens : {1, 8, 9, 64}) {
            check(w, tokens, true, true);
            check(w, tokens, true, false);
            check(w, tokens, false, true);
          }
        }
      }
    }
  }
  EXPECT_EQ(name(kAbsorbQueryKernels, AbsorbQueryDesc{kv_b(DType::kBF16, 128, 128), 9}, kHopper),
            "absorb_query.sm80.many");
}

TEST(AttentionChoice, OfIndexScores) {
  const IndexScoreDesc tiles{.heads = 64, .dim = 128, .block_size = 64, .block_bytes = 64 * 132};
  EXPECT_EQ(name(kIndexScoreKernels, tiles, kHopper), "index_scores.sm80.mma");
  EXPECT_EQ(name(kIndexScoreKernels, tiles, kAda), "index_scores.sm80.mma");
  std::vector<IndexScoreDesc> plain(7, tiles);
  plain[0].layout = IndexKeyLayout::kBf16;
  plain[1].layout = IndexKeyLayout::kF32;
  plain[2].heads = 65;
  plain[3].dim = 64;
  plain[4].block_size = 24;
  plain[5].block_bytes += 8;
  plain[6].cache_aligned = false;
  for (const IndexScoreDesc& desc : plain) {
    EXPECT_EQ(name(kIndexScoreKernels, desc, kHopper), "index_scores.portable");
  }
}

// A launch that CUDA refuses, here for want of a GPU, is told to whoever wants to hear of it, by the kernel's name.
TEST(AttentionLaunches, ThatAreRefusedAreHeardOf) {
  if (cuda_attention() == nullptr) GTEST_SKIP() << "this build has no CUDA";
  if (make_cuda_device().ok()) GTEST_SKIP() << "this machine has a GPU, which refuses none of these launches";
  LatentWriteParams params;
  params.tokens = 1;
  LaunchFailures refused;
  cuda_attention()->write_latent(nullptr, params);
  ASSERT_FALSE(refused.status().ok());
  EXPECT_NE(refused.status().error().message().find("CUDA could not"), std::string::npos);
}

}  // namespace
}  // namespace lantern::cuda
