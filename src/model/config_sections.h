// The parts of a config.json, one reader each; config.cc calls them in this order. Private to the config reader.
#pragma once

#include <span>

#include "model/config.h"
#include "model/config_fields.h"

namespace lantern {

// Fields whose value must be the one that Lantern computes with (attention_bias false, hidden_act "silu", ...), and
// fields that are known to change nothing.
Status check_fixed_fields(ConfigFields& fields);
// rope_theta with rope_scaling (old) or rope_parameters (transformers 5).
Status read_rope(ConfigFields& fields, ModelConfig& config);
// Latent dimensions and heads.
Status read_attention(ConfigFields& fields, ModelConfig& config);
// index_* and which layer computes or reuses a selection. Needs num_layers and num_mtp_layers.
Status read_indexer(ConfigFields& fields, ModelConfig& config);
// Experts, router and which layers have them. Needs num_layers and num_mtp_layers.
Status read_experts(ConfigFields& fields, ModelConfig& config);
Status read_quantization(ConfigFields& fields, ModelConfig& config);

// The layer list `name`, one entry a layer: empty when absent, an error when its length is neither num_layers nor, with
// the MTP layers, total_layers.
Result<std::vector<std::string>> read_layer_list(ConfigFields& fields, std::string_view name,
                                                 const ModelConfig& config);

// What the published configuration class of an architecture takes for a field that the file leaves out.
struct ArchitectureDefaults {
  Architecture architecture;
  std::string_view class_name;  // as in "architectures"
  std::string_view model_type;
  bool has_indexer;
  RopePairing index_rope_pairing;
  RouterScoring scoring;
  double rms_norm_eps;
  double routed_scaling_factor;
  bool norm_topk_prob;
  int32_t num_expert_groups;
  int32_t topk_groups;
  int32_t first_k_dense_replace;
  int32_t num_shared_experts;
  bool mtp_chains_normed;
};
const ArchitectureDefaults& architecture_defaults(Architecture architecture);
std::span<const ArchitectureDefaults> all_architectures();

}  // namespace lantern
