// Absorbed attention and the indexer at the sizes of DeepSeek-V3.2.
#include <fmt/format.h>

#include <cmath>

#include "attention/cache_layout.h"
#include "attention/indexer.h"
#include "attention/mla.h"
#include "cli/kernel_cases.h"
#include "model/kv_up_projection.h"

namespace lantern::cli {
namespace {

constexpr int64_t kFloat = sizeof(float);
constexpr int32_t kRank = 512, kRope = 64, kNope = 128, kValue = 128;
constexpr int32_t kIndexDim = 128;

KernelWork projections_work(KernelMemory& memory, int32_t heads, int64_t tokens) {
  const QuantizedMatrix weight = memory.fp8(int64_t{heads} * (kNope + kValue), kRank);
  const KvUpProjection kv_b = kv_up_projection(weight, heads, kNope, kValue);
  constexpr int64_t kQuery = kNope + kRope;
  const Fixed<float> q_latent = memory.room<float>(tokens * heads * kRank);
  const AbsorbQueryParams absorb{.q = memory.floats(tokens * heads * kQuery),
                                 .q_token_stride = heads * kQuery,
                                 .q_head_stride = kQuery,
                                 .kv_b = kv_b,
                                 .q_latent = q_latent,
                                 .tokens = tokens};
  const ProjectValueParams project{.out_latent = memory.floats(tokens * heads * kRank),
                                   .kv_b = kv_b,
                                   .out = memory.room<float>(tokens * heads * kValue),
                                   .tokens = tokens};
  return {.launch =
              [absorb, project](Stream& stream) {
                absorb_query(stream, absorb);
                project_value(stream, project);
              },
          .bytes = matrix_bytes(weight) + tokens * heads * (kNope + 2 * kRank + kValue) * kFloat,
          .flops = 2.0 * static_cast<double>(tokens * heads * kRank * (kNope + kValue))};
}

// top_k 0: dense.
KernelWork mla_work(KernelMemory& memory, const DecodeShape& shape, LatentLayout layout, int32_t heads, int32_t top_k,
                    int workers) {
  const DecodeStep step = decode_step(memory, shape);
  const int64_t tokens = shape.tokens();
  const int64_t scratch = mla_decode_scratch_bytes(shape.tokens(), heads, kRank, kRope, workers);
  KernelSelection selection;
  if (top_k > 0) selection = random_selection(memory, step, top_k);
  const MlaDecodeParams params{.step = step.view,
                               .q_latent = memory.floats(tokens * heads * kRank),
                               .q_rope = memory.floats(tokens * heads * kRope),
                               .q_rope_token_stride = int64_t{heads} * kRope,
                               .q_rope_head_stride = kRope,
                               .cache = latent_cache(memory, shape, layout),
                               .selection = selection.view,
                               .heads = heads,
                               .scale = 1.0f / std::sqrt(static_cast<float>(kNope + kRope)),
                               .out = memory.room<float>(tokens * heads * kRank),
                               .lse = memory.room<float>(tokens * heads),
                               .scratch = memory.room<std::byte>(scratch),
                               .scratch_bytes = scratch};
  const int64_t read_keys = top_k > 0 ? selection.distinct_keys : shape.keys();
  const int64_t keys_per_token = top_k > 0 ? std::min(top_k, shape.context) : shape.context;
  return {.launch = [params](Stream& stream) { mla_decode(stream, params); },
          .bytes = read_keys * params.cache.row_bytes + tokens * heads * (2 * kRank + kRope + 1) * kFloat +
                   (top_k > 0 ? tokens * top_k * int64_t{sizeof(int32_t)} : 0),
          .flops = 2.0 * static_cast<double>(tokens * heads * keys_per_token) * (2 * kRank + kRope)};
}

KernelWork index_work(KernelMemory& memory, const DecodeShape& shape, int32_t heads, int32_t top_k, int workers) {
  const DecodeStep step = decode_step(memory, shape);
  const int64_t tokens = shape.tokens();
  const int64_t block_bytes = index_block_bytes(IndexKeyLayout::kFp8, kIndexDim, DecodeShape::kBlockSize);
  const int64_t scratch = index_scratch_bytes(shape.context, heads, kIndexDim, workers);
  const float scale = 1.0f / std::sqrt(static_cast<float>(heads) * kIndexDim);
  const IndexSelectParams params{.step = step.view,
                                 .query = memory.floats(tokens * heads * kIndexDim),
                                 .weights = memory.floats(tokens * heads, scale),
                                 .heads = heads,
                                 .dim = kIndexDim,
                                 .top_k = top_k,
                                 .cache = index_cache(memory, shape, kIndexDim),
                                 .block_bytes = block_bytes,
                                 .layout = IndexKeyLayout::kFp8,
                                 .positions = memory.room<int32_t>(tokens * top_k),
                                 .slots = memory.room<int32_t>(tokens * top_k),
                                 .counts = memory.room<int32_t>(tokens),
                                 .scratch = memory.room<std::byte>(scratch),
                                 .scratch_bytes = scratch};
  return {.launch = [params](Stream& stream) { index_select(stream, params); },
          .bytes = shape.keys() * block_bytes / DecodeShape::kBlockSize +
                   tokens * (heads * (kIndexDim + 1) + 2 * top_k) * kFloat,
          .flops = 2.0 * static_cast<double>(heads * kIndexDim * shape.query_len * shape.keys())};
}

}  // namespace

std::vector<KernelCase> attention_kernel_cases(CaseSize size) {
  std::vector<KernelCase> list;
  const int32_t heads = sized(size, 128), top_k = sized(size, 2048), index_heads = sized(size, 64);
  for (const int32_t tokens : {1, 64}) {
    list.push_back(
        {.name = fmt::format("absorb_query+project_value fp8 heads {} tokens {}", heads, tokens),
         .make = [heads, tokens](KernelMemory& memory, int) { return projections_work(memory, heads, tokens); }});
  }
  const auto add_mla = [&](int32_t requests, int32_t query_len, LatentLayout layout, bool sparse, double goal_us) {
    const DecodeShape shape{.requests = sized(size, requests), .query_len = query_len, .context = sized(size, 32768)};
    const std::string keys =
        sparse ? fmt::format("{} of {} keys", top_k, shape.context) : fmt::format("{} keys", shape.context);
    list.push_back({.name = fmt::format("mla_decode {} {} heads {} batch {} n {}, {} each", sparse ? "sparse" : "dense",
                                        to_string(layout), heads, shape.requests, query_len, keys),
                    .goal = goal_of(size, {.us = goal_us}),
                    .make = [shape, layout, heads, top_k = sparse ? top_k : 0](KernelMemory& memory, int workers) {
                      return mla_work(memory, shape, layout, heads, top_k, workers);
                    }});
  };
  add_mla(1, 1, LatentLayout::kFp8, true, 25);
  add_mla(128, 2, LatentLayout::kFp8, true, 450);
  for (const LatentLayout layout : {LatentLayout::kBf16, LatentLayout::kFp8}) {
    add_mla(1, 1, layout, false, 0);
    add_mla(128, 1, layout, false, 3000);
  }
  // Of the score alone, and what top_k may add to it.
  const struct {
    int32_t requests, context;
    KernelGoal goal;
  } selections[] = {{1, 32 << 10, {}},
                    {64, 32 << 10, {.share = 0.6, .us = 25}},
                    {128, 32 << 10, {.share = 0.7, .us = 25}},
                    {8, 128 << 10, {.share = 0.6, .us = 25}},
                    {1, 1 << 20, {.share = 0.6, .us = 25}}};
  for (const auto& selection : selections) {
    const DecodeShape shape{.requests = sized(size, selection.requests), .context = sized(size, selection.context)};
    list.push_back({.name = fmt::format("index_select fp8 heads {} batch {}, {} of {} keys each", index_heads,
                                        shape.requests, top_k, shape.context),
                    .goal = goal_of(size, selection.goal),
                    .make = [shape, index_heads, top_k](KernelMemory& memory, int workers) {
                      return index_work(memory, shape, index_heads, top_k, workers);
                    }});
  }
  return list;
}

}  // namespace lantern::cli
