#include "model/activations.h"

#include <algorithm>

#include "attention/indexer.h"
#include "attention/mla.h"
#include "ops/linear.h"
#include "ops/moe.h"

namespace lantern {
namespace {

// Scratch of every operator for one step; they run one after another and share it.
int64_t scratch_bytes(const ModelConfig& config, const StepLimits& limits, int32_t sample_rows, int32_t threads) {
  const int64_t tokens = limits.max_tokens;
  const int64_t widest_input =
      std::max<int64_t>({2L * config.hidden_size, config.intermediate_size,
                         int64_t{config.num_heads} * config.v_head_dim, config.q_lora_rank, config.kv_lora_rank});
  int64_t bytes = linear_scratch_bytes(std::max<int64_t>(tokens, sample_rows), widest_input);
  const int64_t shared_size = int64_t{config.num_shared_experts} * config.moe_intermediate_size;
  bytes = std::max(
      bytes, mlp_scratch_bytes(tokens, config.hidden_size, std::max<int64_t>(config.intermediate_size, shared_size)));
  if (config.num_routed_experts > 0) {
    bytes = std::max(bytes, moe_scratch_bytes(tokens, config.experts_per_token, config.num_routed_experts,
                                              config.hidden_size, config.moe_intermediate_size));
  }
  if (config.has_indexer()) {
    bytes =
        std::max(bytes, index_scratch_bytes(limits.max_model_len, config.index_heads, config.index_head_dim, threads));
  }
  bytes = std::max(bytes, mla_decode_scratch_bytes(limits.max_tokens, config.num_heads, config.kv_lora_rank,
                                                   config.qk_rope_head_dim, threads));
  KvUpProjection shape;
  shape.heads = config.num_heads;
  shape.nope_dim = config.qk_nope_head_dim;
  shape.v_dim = config.v_head_dim;
  shape.kv_lora_rank = config.kv_lora_rank;
  return std::max(bytes, mla_prefill_scratch_bytes(limits.max_tokens, shape, config.qk_rope_head_dim, threads));
}

}  // namespace

Activations::Activations(Workspace& workspace, const ModelConfig& c, const StepLimits& limits, int32_t sample_rows,
                         int32_t threads) {
  const int64_t tokens = limits.max_tokens;
  const int64_t heads = c.num_heads;
  residual = workspace.take<float>(tokens * c.hidden_size);
  normed = workspace.take<float>(tokens * c.hidden_size);
  delta = workspace.take<float>(tokens * c.hidden_size);
  hidden = workspace.take<float>(tokens * c.hidden_size);
  rope_cos_sin = workspace.take<float>(tokens * c.qk_rope_head_dim);
  q_a = workspace.take<float>(tokens * c.q_lora_rank);
  q = workspace.take<float>(tokens * heads * c.qk_head_dim());
  latent = workspace.take<float>(tokens * c.latent_dim());
  q_latent = workspace.take<float>(tokens * heads * c.kv_lora_rank);
  out_latent = workspace.take<float>(tokens * heads * c.kv_lora_rank);
  attention = workspace.take<float>(tokens * heads * c.v_head_dim);
  if (c.has_indexer()) {
    index_q = workspace.take<float>(tokens * c.index_heads * c.index_head_dim);
    index_k = workspace.take<float>(tokens * c.index_head_dim);
    index_weights = workspace.take<float>(tokens * c.index_heads);
    selected_positions = workspace.take<int32_t>(tokens * c.index_topk);
    selected_slots = workspace.take<int32_t>(tokens * c.index_topk);
    selected_counts = workspace.take<int32_t>(tokens);
  }
  if (c.num_routed_experts > 0) {
    router_logits = workspace.take<float>(tokens * c.num_routed_experts);
    expert_ids = workspace.take<int32_t>(tokens * c.experts_per_token);
    expert_weights = workspace.take<float>(tokens * c.experts_per_token);
  }
  if (c.num_mtp_layers > 0) mtp_input = workspace.take<float>(tokens * 2 * c.hidden_size);
  sample_hidden = workspace.take<float>(int64_t{sample_rows} * c.hidden_size);
  logits = workspace.take<float>(int64_t{sample_rows} * c.vocab_size);
  scratch = workspace.take<std::byte>(scratch_bytes(c, limits, sample_rows, threads));
  expand_scratch = workspace.take<std::byte>(linear_scratch_bytes(mla_prefill_key_tile(), c.kv_lora_rank));
}

}  // namespace lantern
