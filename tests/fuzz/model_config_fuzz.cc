// config.json, strict and not.
#include <cmath>

#include "base/check.h"
#include "fuzz_input.h"
#include "model/config.h"

using namespace lantern;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  std::vector<std::string> warnings;
  const Result<ModelConfig> config = parse_model_config(text, {}, &warnings);
  const Result<ModelConfig> strict = parse_model_config(text, {.strict = true});
  CHECK(!strict.ok() || (config.ok() && warnings.empty()), "strict takes what is warned of or refused");
  if (!config.ok()) {
    CHECK(!config.error().message().empty(), "a refusal says nothing");
    return 0;
  }
  const ModelConfig& c = *config;
  CHECK(c.vocab_size > 0 && c.hidden_size > 0 && c.num_layers > 0 && c.num_heads > 0, "a model without a size");
  CHECK(c.kv_lora_rank > 0 && c.qk_rope_head_dim > 0 && c.v_head_dim > 0, "attention without a size");
  CHECK(c.max_position_embeddings > 0 && c.num_mtp_layers >= 0, "no context");
  CHECK(std::isfinite(c.softmax_scale()) && c.softmax_scale() > 0, "the softmax scale is {}", c.softmax_scale());
  CHECK(c.layer_is_moe.size() == static_cast<size_t>(c.total_layers()), "layers without a kind");
  CHECK(!c.has_indexer() || c.selection.size() == static_cast<size_t>(c.total_layers()), "layers without a selection");
  for (int32_t layer = 0; layer < c.total_layers() && c.has_indexer(); ++layer) {
    const SelectionSource& from = c.selection[static_cast<size_t>(layer)];
    if (from.kind != SelectionKind::kReuse) continue;
    CHECK(from.from_layer >= 0 && from.from_layer < layer && c.computes_selection(from.from_layer),
          "layer {} takes the choice of layer {}, which makes none", layer, from.from_layer);
  }
  if (c.num_routed_experts > 0) {
    CHECK(c.experts_per_token > 0 && c.experts_per_token <= c.num_routed_experts, "{} of {} experts",
          c.experts_per_token, c.num_routed_experts);
    CHECK(c.num_routed_experts % c.num_expert_groups == 0 && c.topk_groups <= c.num_expert_groups, "groups of experts");
  }
  return 0;
}
