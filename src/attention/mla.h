// Multi-head Latent Attention over the paged latent cache, in its two forms, which agree up to rounding.
//
// Absorbed (decode): the query is brought into the latent space and attends to the cache rows themselves.
// Expanded (prefill): keys and values are rebuilt from the cached latents by kv_b_proj, then ordinary attention.
// Both read keys from the cache only (this step's are written before), visit them in tiles at absolute positions and
// reduce in one fixed order per (token, head): a result does not depend on batch, chunk or thread count, bit by bit.
// Softmax is in float; a token without a visible key gives output 0 and log-sum-exp minus infinity, and one whose query
// or visible keys hold NaN gives NaN for both. On CUDA both forms run as the absorbed one; for bf16 and FP8 rows of 512
// + 64 values with queries and softmax weights rounded to bf16.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "attention/cache_layout.h"
#include "attention/step_view.h"
#include "base/dtype.h"
#include "device/row_count.h"
#include "device/stream.h"

namespace lantern {

struct LatentCacheView {
  DevPtr<const std::byte> data;
  int64_t row_bytes = 0;
  LatentLayout layout = LatentLayout::kBf16;
  int32_t kv_lora_rank = 0;
  int32_t rope_dim = 0;
};

// Which keys a token attends to. Without lists (null): all it can see.
struct SelectionView {
  DevPtr<const int32_t> positions;  // [tokens, top_k], ascending; -1 beyond the count
  DevPtr<const int32_t> slots;      // [tokens, top_k]
  DevPtr<const int32_t> counts;     // [tokens]
  int32_t top_k = 0;
};

// kv_b_proj as attention uses it: rows h * (nope + v) .. + nope are W_UK[h], the next v rows W_UV[h]; each row has
// kv_lora_rank columns. Same meaning of the fields as a QuantizedMatrix of ops, which attention must not include.
struct KvUpProjection {
  DevPtr<const std::byte> data;
  DType dtype = DType::kBF16;
  int64_t row_bytes = 0;
  DevPtr<const std::byte> scales;
  DType scale_dtype = DType::kF32;
  int32_t block_rows = 0;
  int32_t block_cols = 0;
  int64_t scale_row_stride = 0;
  float global_scale = 1.0f;
  int32_t heads = 0;
  int32_t nope_dim = 0;
  int32_t v_dim = 0;
  int32_t kv_lora_rank = 0;
};

// q_latent[t, h, :] = q_nope[t, h, :] W_UK[h], in float.
struct AbsorbQueryParams {
  DevPtr<const float> q;  // element (t, h, i) at q + t * q_token_stride + h * q_head_stride + i, nope part first
  int64_t q_token_stride = 0;
  int64_t q_head_stride = 0;
  KvUpProjection kv_b;
  DevPtr<float> q_latent;  // [tokens, heads, kv_lora_rank], contiguous
  int64_t tokens = 0;
  RowCount real_tokens = {};  // of these
};
void absorb_query(Stream& stream, const AbsorbQueryParams& params);

// Attention in latent space: out[t, h, :] = sum_s softmax_s(scale * (q_latent . c_s + q_rope . k_pe_s)) c_s.
struct MlaDecodeParams {
  StepView step;
  DevPtr<const float> q_latent;  // [tokens, heads, kv_lora_rank], contiguous
  DevPtr<const float> q_rope;    // element (t, h, i) at q_rope + t * q_rope_token_stride + h * q_rope_head_stride + i
  int64_t q_rope_token_stride = 0;
  int64_t q_rope_head_stride = 0;
  LatentCacheView cache;
  SelectionView selection;
  int32_t heads = 0;
  float scale = 1.0f;
  DevPtr<float> out;          // [tokens, heads, kv_lora_rank], contiguous
  DevPtr<float> lse;          // optional [tokens, heads], natural logarithm
  DevPtr<std::byte> scratch;  // mla_decode_scratch_bytes()
  int64_t scratch_bytes = 0;
};
int64_t mla_decode_scratch_bytes(int32_t max_tokens, int32_t heads, int32_t kv_lora_rank, int32_t rope_dim,
                                 int32_t threads);
void mla_decode(Stream& stream, const MlaDecodeParams& params);

// out[t, h, :] = W_UV[h] out_latent[t, h, :], in float.
struct ProjectValueParams {
  DevPtr<const float> out_latent;  // [tokens, heads, kv_lora_rank], contiguous
  KvUpProjection kv_b;
  DevPtr<float> out;  // [tokens, heads, v_dim], contiguous
  int64_t tokens = 0;
  RowCount real_tokens = {};  // of these
};
void project_value(Stream& stream, const ProjectValueParams& params);

// Rebuilds keys and values of `rows` latents: out[r, :] = kv_b latents[r, :], row length heads * (nope_dim + v_dim).
// An engine with a fast matrix product passes it here; its result for a row must not depend on the other rows.
using ExpandLatents = void (*)(const KvUpProjection& kv_b, const float* latents, int64_t rows, float* out,
                               std::byte* scratch, int64_t scratch_bytes, HostContext& context);

// The expanded form: out[t, h, :] = sum_s softmax_s(scale * (q_nope . W_UK[h] c_s + q_rope . k_pe_s)) W_UV[h] c_s.
// Keys are expanded tile by tile for each request; a tile that a chunk shares is expanded once. The products are in
// float; on hosts with matrix units, unless the cache is f32, they are sums of three products of bf16 pieces, right to
// about 2^-16 of a product's size.
struct MlaPrefillParams {
  StepView step;  // tokens of prefills only; tokens of one request are adjacent and in order
  DevPtr<const float>
      q;  // element (t, h, i) at q + t * q_token_stride + h * q_head_stride + i; nope, then rotated rope
  int64_t q_token_stride = 0;
  int64_t q_head_stride = 0;
  KvUpProjection kv_b;
  LatentCacheView cache;
  SelectionView selection;
  int32_t heads = 0;
  float scale = 1.0f;
  ExpandLatents expand = nullptr;    // null: the library's own simple product
  DevPtr<std::byte> expand_scratch;  // for `expand`, with up to mla_prefill_key_tile() rows
  int64_t expand_scratch_bytes = 0;
  DevPtr<float> out;          // [tokens, heads, v_dim], contiguous
  DevPtr<float> lse;          // optional [tokens, heads]
  DevPtr<std::byte> scratch;  // mla_prefill_scratch_bytes()
  int64_t scratch_bytes = 0;
};
// The most keys that are expanded at once: `rows` of ExpandLatents.
int32_t mla_prefill_key_tile();
int64_t mla_prefill_scratch_bytes(int32_t max_tokens, const KvUpProjection& shape, int32_t rope_dim, int32_t threads);
void mla_prefill(Stream& stream, const MlaPrefillParams& params);

// What this machine runs for a cache that is not f32: "amx_bf16x3" or "highway", with the instruction set.
std::string mla_host_implementation();

}  // namespace lantern
