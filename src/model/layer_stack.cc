#include "model/layer_stack.h"

#include <cmath>

#include "attention/cache_write.h"
#include "attention/indexer.h"
#include "attention/mla.h"
#include "model/kv_up_projection.h"
#include "ops/elementwise.h"
#include "ops/linear.h"
#include "ops/norm.h"
#include "ops/rope.h"

namespace lantern {
namespace {

// LayerNorm of the indexer's keys: the published code fixes this epsilon, the config does not hold it.
constexpr float kIndexKeyNormEps = 1e-6f;

KvUpProjection kv_b_of(const QuantizedMatrix& w, const ModelConfig& config) {
  return kv_up_projection(w, config.num_heads, config.qk_nope_head_dim, config.v_head_dim);
}

// The expanded attention's product on the engine's own matrix kernel.
void expand_latents(const KvUpProjection& kv_b, const float* latents, int64_t rows, float* out, std::byte* scratch,
                    int64_t scratch_bytes, HostContext& context) {
  LinearParams p;
  p.weight.data = kv_b.data;
  p.weight.dtype = kv_b.dtype;
  p.weight.rows = int64_t{kv_b.heads} * (kv_b.nope_dim + kv_b.v_dim);
  p.weight.cols = kv_b.kv_lora_rank;
  p.weight.row_bytes = kv_b.row_bytes;
  p.weight.scales = kv_b.scales;
  p.weight.scale_dtype = kv_b.scale_dtype;
  p.weight.block_rows = kv_b.block_rows;
  p.weight.block_cols = kv_b.block_cols;
  p.weight.scale_row_stride = kv_b.scale_row_stride;
  p.weight.global_scale = kv_b.global_scale;
  p.x = borrow_fixed(latents, rows * kv_b.kv_lora_rank);
  p.x_stride = kv_b.kv_lora_rank;
  p.y = borrow_fixed(out, rows * p.weight.rows);
  p.y_stride = p.weight.rows;
  p.rows = rows;
  p.scratch = borrow_fixed(scratch, scratch_bytes);
  p.scratch_bytes = scratch_bytes;
  linear_host({&p, 1}, context);
}

}  // namespace

void LayerRun::project(const QuantizedMatrix& weight, DevPtr<const float> x, DevPtr<float> y, LinearInput input) const {
  LinearParams p;
  p.x = x;
  p.x_stride = weight.cols;
  p.y = y;
  p.y_stride = weight.rows;
  p.rows = step_.tokens;
  p.real_rows = step_.real_tokens;
  p.weight = weight;
  p.input = input;
  p.scratch = a_.scratch;
  p.scratch_bytes = a_.scratch.size();
  linear(stream_, p);
}

void LayerRun::add_norm(DevPtr<const float> weight, DevPtr<float> y) const {
  add_rms_norm(stream_, {.delta = a_.delta,
                         .residual = a_.residual,
                         .weight = weight,
                         .y = y,
                         .rows = step_.tokens,
                         .cols = config_.hidden_size,
                         .eps = config_.rms_norm_eps});
}

void LayerRun::before_attention(int32_t id, const LayerWeights& w, bool first, bool reuse_selection) const {
  if (first) {
    rms_norm(stream_, {.x = a_.residual,
                       .x_stride = config_.hidden_size,
                       .weight = w.input_layernorm,
                       .y = a_.normed,
                       .y_stride = config_.hidden_size,
                       .rows = step_.tokens,
                       .cols = config_.hidden_size,
                       .eps = config_.rms_norm_eps});
  } else {
    add_norm(w.input_layernorm, a_.normed);
  }
  queries(w.attention);
  latents(id, w.attention);
  if (selects(id, reuse_selection)) index_inputs(id, w.attention.indexer);
}

void LayerRun::attend(int32_t id, const LayerWeights& w, bool reuse_selection) const {
  if (selects(id, reuse_selection)) select(id);
  const int32_t absorbed = options_.mla_form == MlaForm::kAbsorbed ? step_.tokens : step_.decode_tokens;
  if (absorbed > 0) absorbed_attention(id, w.attention, absorbed);
  if (absorbed < step_.tokens) expanded_attention(id, w.attention, absorbed);
}

void LayerRun::after_attention(int32_t id, const LayerWeights& w) const {
  project(w.attention.o_proj, a_.attention, a_.delta);
  add_norm(w.post_attention_layernorm, a_.normed);
  feed_forward(id, w);
  if (observer_ != nullptr && observer_->after_layer) observer_->after_layer(id, a_);
}

void LayerRun::queries(const AttentionWeights& w) const {
  if (config_.q_lora_rank > 0) {
    project(w.q_a_proj, a_.normed, a_.q_a);
    rms_norm(stream_, {.x = a_.q_a,
                       .x_stride = config_.q_lora_rank,
                       .weight = w.q_a_layernorm,
                       .y = a_.q_a,
                       .y_stride = config_.q_lora_rank,
                       .rows = step_.tokens,
                       .cols = config_.q_lora_rank,
                       .eps = config_.rms_norm_eps});
    project(w.q_b_proj, a_.q_a, a_.q);
  } else {
    project(w.q_proj, a_.normed, a_.q);
  }
  rope(stream_, {.x = a_.q,
                 .token_stride = int64_t{config_.num_heads} * config_.qk_head_dim(),
                 .head_stride = config_.qk_head_dim(),
                 .heads = config_.num_heads,
                 .offset = config_.qk_nope_head_dim,
                 .dim = config_.qk_rope_head_dim,
                 .cos_sin = a_.rope_cos_sin,
                 .tokens = step_.tokens,
                 .pairing = config_.rope_pairing});
}

void LayerRun::latents(int32_t id, const AttentionWeights& w) const {
  const int64_t width = config_.latent_dim();
  project(w.kv_a_proj, a_.normed, a_.latent);
  // The norm covers the compressed part only, the rotation the shared key part only.
  rms_norm(stream_, {.x = a_.latent,
                     .x_stride = width,
                     .weight = w.kv_a_layernorm,
                     .y = a_.latent,
                     .y_stride = width,
                     .rows = step_.tokens,
                     .cols = config_.kv_lora_rank,
                     .eps = config_.rms_norm_eps});
  rope(stream_, {.x = a_.latent,
                 .token_stride = width,
                 .head_stride = width,
                 .heads = 1,
                 .offset = config_.kv_lora_rank,
                 .dim = config_.qk_rope_head_dim,
                 .cos_sin = a_.rope_cos_sin,
                 .tokens = step_.tokens,
                 .pairing = config_.rope_pairing});
  write_latents(id);
}

void LayerRun::write_latents(int32_t id) const {
  write_latent(stream_, {.latent = a_.latent,
                         .latent_stride = config_.latent_dim(),
                         .slot_mapping = step_.slot_mapping,
                         .cache = cache_.latent_data(id),
                         .row_bytes = cache_.latent_row_bytes(),
                         .layout = cache_.layouts().latent,
                         .kv_lora_rank = config_.kv_lora_rank,
                         .rope_dim = config_.qk_rope_head_dim,
                         .tokens = step_.tokens});
}

void LayerRun::index_inputs(int32_t id, const IndexerWeights& w) const {
  const int32_t heads = config_.index_heads;
  const int32_t dim = config_.index_head_dim;
  project(w.wq_b, a_.q_a, a_.index_q);
  project(w.wk, a_.normed, a_.index_k);
  layer_norm(stream_, {.x = a_.index_k,
                       .x_stride = dim,
                       .weight = w.k_norm_weight,
                       .bias = w.k_norm_bias,
                       .y = a_.index_k,
                       .y_stride = dim,
                       .rows = step_.tokens,
                       .cols = dim,
                       .eps = kIndexKeyNormEps});
  // The indexer's rotated part comes first in a head; the main attention's comes last.
  RopeParams rotate{.x = a_.index_q,
                    .token_stride = int64_t{heads} * dim,
                    .head_stride = dim,
                    .heads = heads,
                    .offset = 0,
                    .dim = config_.qk_rope_head_dim,
                    .cos_sin = a_.rope_cos_sin,
                    .tokens = step_.tokens,
                    .pairing = config_.index_rope_pairing};
  rope(stream_, rotate);
  rotate.x = a_.index_k;
  rotate.token_stride = dim;
  rotate.heads = 1;
  rope(stream_, rotate);
  project(w.weights_proj, a_.normed, a_.index_weights, LinearInput::kExact);
  scale(stream_, {.x = a_.index_weights,
                  .count = int64_t{step_.tokens} * heads,
                  .factor = 1.0f / std::sqrt(static_cast<float>(heads) * static_cast<float>(dim))});
  write_index_keys(id);
}

void LayerRun::select(int32_t id) const {
  IndexSelectParams p;
  p.step = step_;
  p.query = a_.index_q;
  p.weights = a_.index_weights;
  p.heads = config_.index_heads;
  p.dim = config_.index_head_dim;
  p.top_k = config_.index_topk;
  p.cache = cache_.index_view(id);
  p.block_bytes = cache_.index_block_bytes();
  p.layout = cache_.layouts().index;
  p.hadamard = options_.index_hadamard;
  p.mode = options_.index_mode;
  p.positions = a_.selected_positions;
  p.slots = a_.selected_slots;
  p.counts = a_.selected_counts;
  p.attention_q = a_.q;
  p.attention_heads = config_.num_heads;
  p.q_token_stride = int64_t{config_.num_heads} * config_.qk_head_dim();
  p.q_head_stride = config_.qk_head_dim();
  p.scratch = a_.scratch;
  p.scratch_bytes = a_.scratch.size();
  index_select(stream_, p);
  if (observer_ != nullptr && observer_->after_selection) observer_->after_selection(id, a_);
}

void LayerRun::write_index_keys(int32_t id) const {
  write_index_key(stream_, {.key = a_.index_k,
                            .key_stride = config_.index_head_dim,
                            .slot_mapping = step_.slot_mapping,
                            .cache = cache_.index_data(id),
                            .block_bytes = cache_.index_block_bytes(),
                            .block_size = cache_.block_size(),
                            .layout = cache_.layouts().index,
                            .dim = config_.index_head_dim,
                            .hadamard = options_.index_hadamard,
                            .tokens = step_.tokens});
}

void LayerRun::clear_entries(int32_t id) const {
  fill(stream_, {.x = a_.latent, .count = int64_t{step_.tokens} * config_.latent_dim(), .value = 0.0f});
  write_latents(id);
  if (!config_.computes_selection(id)) return;
  fill(stream_, {.x = a_.index_k, .count = int64_t{step_.tokens} * config_.index_head_dim, .value = 0.0f});
  write_index_keys(id);
}

SelectionView LayerRun::selection(int32_t id, int32_t first_token, int32_t tokens) const {
  // A layer that reuses a choice finds it where the layer that computed it left it: one choice is live at a time.
  if (!config_.has_indexer() || config_.selection[static_cast<size_t>(id)].kind == SelectionKind::kDense) return {};
  const int64_t top_k = config_.index_topk;
  return {.positions = Fixed<const int32_t>(a_.selected_positions.sub(first_token * top_k, tokens * top_k)),
          .slots = Fixed<const int32_t>(a_.selected_slots.sub(first_token * top_k, tokens * top_k)),
          .counts = Fixed<const int32_t>(a_.selected_counts.sub(first_token, tokens)),
          .top_k = config_.index_topk};
}

void LayerRun::absorbed_attention(int32_t id, const AttentionWeights& w, int32_t tokens) const {
  const int64_t token_stride = int64_t{config_.num_heads} * config_.qk_head_dim();
  const KvUpProjection kv_b = kv_b_of(w.kv_b_proj, config_);
  absorb_query(stream_, {.q = a_.q,
                         .q_token_stride = token_stride,
                         .q_head_stride = config_.qk_head_dim(),
                         .kv_b = kv_b,
                         .q_latent = a_.q_latent,
                         .tokens = tokens,
                         .real_tokens = step_.real_tokens});
  MlaDecodeParams p;
  p.step = step_.slice(0, tokens);
  p.q_latent = a_.q_latent;
  p.q_rope = Fixed<const float>(a_.q.sub(config_.qk_nope_head_dim, a_.q.size() - config_.qk_nope_head_dim));
  p.q_rope_token_stride = token_stride;
  p.q_rope_head_stride = config_.qk_head_dim();
  p.cache = cache_.latent(id);
  p.selection = selection(id, 0, tokens);
  p.heads = config_.num_heads;
  p.scale = config_.softmax_scale();
  p.out = a_.out_latent;
  p.scratch = a_.scratch;
  p.scratch_bytes = a_.scratch.size();
  mla_decode(stream_, p);
  project_value(stream_, {.out_latent = a_.out_latent,
                          .kv_b = kv_b,
                          .out = a_.attention,
                          .tokens = tokens,
                          .real_tokens = step_.real_tokens});
}

void LayerRun::expanded_attention(int32_t id, const AttentionWeights& w, int32_t first) const {
  const int32_t tokens = step_.tokens - first;
  const int64_t token_stride = int64_t{config_.num_heads} * config_.qk_head_dim();
  const int64_t out_stride = int64_t{config_.num_heads} * config_.v_head_dim;
  MlaPrefillParams p;
  p.step = step_.slice(first, step_.tokens);
  p.q = Fixed<const float>(a_.q.sub(first * token_stride, tokens * token_stride));
  p.q_token_stride = token_stride;
  p.q_head_stride = config_.qk_head_dim();
  p.kv_b = kv_b_of(w.kv_b_proj, config_);
  p.cache = cache_.latent(id);
  p.selection = selection(id, first, tokens);
  p.heads = config_.num_heads;
  p.scale = config_.softmax_scale();
  p.expand = &expand_latents;
  p.expand_scratch = a_.expand_scratch;
  p.expand_scratch_bytes = a_.expand_scratch.size();
  p.out = a_.attention.sub(first * out_stride, tokens * out_stride);
  p.scratch = a_.scratch;
  p.scratch_bytes = a_.scratch.size();
  mla_prefill(stream_, p);
}

void LayerRun::feed_forward(int32_t id, const LayerWeights& w) const {
  const int64_t tokens = step_.tokens;
  if (!w.dense.gate.empty()) {
    mlp(stream_, {.x = a_.normed,
                  .y = a_.delta,
                  .tokens = tokens,
                  .real_tokens = step_.real_tokens,
                  .weights = w.dense,
                  .accumulate = false,
                  .scratch = a_.scratch,
                  .scratch_bytes = a_.scratch.size()});
  } else {
    fill(stream_, {.x = a_.delta, .count = tokens * config_.hidden_size, .value = 0.0f});
  }
  if (!w.is_moe) return;
  project(w.router, a_.normed, a_.router_logits, LinearInput::kExact);
  router(stream_, {.logits = a_.router_logits,
                   .bias = w.router_bias,
                   .token_request = step_.token_request,
                   .expert_ids = a_.expert_ids,
                   .expert_weights = a_.expert_weights,
                   .tokens = tokens,
                   .experts = config_.num_routed_experts,
                   .experts_per_token = config_.experts_per_token,
                   .groups = config_.num_expert_groups,
                   .topk_groups = config_.topk_groups,
                   .scoring = config_.router_scoring,
                   .group_score = config_.router_group_score,
                   .normalize = config_.norm_topk_prob,
                   .scale = config_.routed_scaling_factor});
  if (observer_ != nullptr && observer_->after_router) observer_->after_router(id, a_);
  moe(stream_, {.x = a_.normed,
                .y = a_.delta,
                .expert_ids = a_.expert_ids,
                .expert_weights = a_.expert_weights,
                .experts = w.experts,
                .first_expert = w.first_expert,
                .tokens = tokens,
                .experts_per_token = config_.experts_per_token,
                .num_experts = config_.num_routed_experts,
                .hidden = config_.hidden_size,
                .intermediate = config_.moe_intermediate_size,
                .scratch = a_.scratch,
                .scratch_bytes = a_.scratch.size()});
}

}  // namespace lantern
