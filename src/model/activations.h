// Every intermediate tensor of a step, laid out once in the Workspace, sized by the step's limits alone.
#pragma once

#include "attention/plan/step_limits.h"
#include "device/workspace.h"
#include "model/config.h"

namespace lantern {

struct Activations {
  // Lays the tensors out in `workspace` (counting or real): the same calls in the same order.
  Activations(Workspace& workspace, const ModelConfig& config, const StepLimits& limits, int32_t sample_rows,
              int32_t threads);

  Fixed<float> residual;       // [tokens, hidden]
  Fixed<float> normed;         // [tokens, hidden]; the input of the current sublayer
  Fixed<float> delta;          // [tokens, hidden]; what the current sublayer adds
  Fixed<float> hidden;         // [tokens, hidden] after the final norm; input of head and MTP layer
  Fixed<float> rope_cos_sin;   // [tokens, rope]
  Fixed<float> q_a;            // [tokens, q_lora]
  Fixed<float> q;              // [tokens, heads, nope + rope]
  Fixed<float> latent;         // [tokens, kv_lora + rope]
  Fixed<float> q_latent;       // [tokens, heads, kv_lora]
  Fixed<float> out_latent;     // [tokens, heads, kv_lora]
  Fixed<float> attention;      // [tokens, heads, v]
  Fixed<float> index_q;        // [tokens, index_heads, index_head_dim]
  Fixed<float> index_k;        // [tokens, index_head_dim]
  Fixed<float> index_weights;  // [tokens, index_heads]
  Fixed<int32_t> selected_positions, selected_slots;  // [tokens, index_topk]
  Fixed<int32_t> selected_counts;                     // [tokens]
  Fixed<float> router_logits;                         // [tokens, experts]
  Fixed<int32_t> expert_ids;                          // [tokens, experts_per_token]
  Fixed<float> expert_weights;                        // [tokens, experts_per_token]
  Fixed<float> mtp_input;                             // [tokens, 2 * hidden]
  Fixed<float> sample_hidden;                         // [sample_rows, hidden]
  Fixed<float> logits;                                // [sample_rows, vocab]
  Fixed<std::byte> scratch;                           // of whichever operator runs
  Fixed<std::byte> expand_scratch;                    // of the matrix product inside the expanded attention
};

}  // namespace lantern
