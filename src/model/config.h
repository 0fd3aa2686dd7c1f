// What config.json says, in one form for every architecture of the family, old and new spellings alike.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/result.h"
#include "ops/moe.h"
#include "ops/rope.h"

namespace lantern {

enum class Architecture : uint8_t {
  kDeepseekV2,   // DeepseekV2ForCausalLM: V2, V2-Lite
  kDeepseekV3,   // DeepseekV3ForCausalLM: V3, V3.1, R1, Kimi-K2, Moonlight
  kDeepseekV32,  // DeepseekV32ForCausalLM: V3.2(-Exp)
  kGlm4MoeLite,  // Glm4MoeLiteForCausalLM: GLM-4.7-Flash
  kGlmMoeDsa,    // GlmMoeDsaForCausalLM: GLM-5, 5.1, 5.2
};
std::string_view to_string(Architecture architecture);

// Where a layer's sparse selection comes from.
enum class SelectionKind : uint8_t { kDense, kCompute, kReuse };
struct SelectionSource {
  SelectionKind kind = SelectionKind::kDense;
  int32_t from_layer = -1;  // kReuse: the layer whose choice is taken
};

struct QuantizationConfig {
  std::string method;  // "" or "fp8"
  int32_t block_rows = 0;
  int32_t block_cols = 0;
  bool ue8m0_scales = false;
};

struct ModelConfig {
  Architecture architecture = Architecture::kDeepseekV3;
  std::string model_type;  // as spelled in the file
  std::string torch_dtype;

  int32_t vocab_size = 0;
  int32_t hidden_size = 0;
  int32_t intermediate_size = 0;
  int32_t num_layers = 0;
  int32_t num_heads = 0;
  float rms_norm_eps = 1e-6f;
  int32_t max_position_embeddings = 0;
  bool tie_word_embeddings = false;

  int32_t q_lora_rank = 0;  // 0: no query compression (q_proj)
  int32_t kv_lora_rank = 0;
  int32_t qk_nope_head_dim = 0;
  int32_t qk_rope_head_dim = 0;
  int32_t v_head_dim = 0;
  RopePairing rope_pairing = RopePairing::kInterleaved;
  double rope_theta = 10000.0;
  RopeScaling rope_scaling;

  int32_t moe_intermediate_size = 0;
  int32_t num_routed_experts = 0;  // 0: every layer is dense
  int32_t num_shared_experts = 0;
  int32_t experts_per_token = 0;
  int32_t first_k_dense_replace = 0;
  std::vector<bool> layer_is_moe;  // [num_layers + num_mtp_layers]
  int32_t num_expert_groups = 1;
  int32_t topk_groups = 1;
  RouterScoring router_scoring = RouterScoring::kSigmoid;
  RouterGroupScore router_group_score = RouterGroupScore::kTop2Sum;
  bool router_has_bias = true;
  bool norm_topk_prob = true;
  float routed_scaling_factor = 1.0f;

  int32_t index_heads = 0;  // 0: no indexer in the model
  int32_t index_head_dim = 0;
  int32_t index_topk = 0;
  RopePairing index_rope_pairing = RopePairing::kHalves;
  std::vector<SelectionSource> selection;  // [num_layers + num_mtp_layers]

  int32_t num_mtp_layers = 0;           // num_nextn_predict_layers; the MTP layer's id is num_layers
  int32_t num_left_out_mtp_layers = 0;  // of the checkpoint, behind these, that nobody is to draft with
  // What the MTP layer is fed with when it is applied again: its output after the norm of its head (GLM), or before it
  // (DeepSeek).
  bool mtp_chains_normed = false;
  // index_share_for_mtp_iteration (GLM-5.2): the MTP layer chooses keys when it is applied first; applied again it
  // attends to the same ones.
  bool mtp_shares_selection = false;
  QuantizationConfig quantization;

  std::vector<int32_t> eos_token_ids;
  int32_t bos_token_id = -1;
  int32_t pad_token_id = -1;

  int32_t qk_head_dim() const { return qk_nope_head_dim + qk_rope_head_dim; }
  int32_t latent_dim() const { return kv_lora_rank + qk_rope_head_dim; }
  int32_t total_layers() const { return num_layers + num_mtp_layers; }
  bool has_indexer() const { return index_heads > 0; }
  // The layer has an indexer of its own: weights, a key cache and a choice to make.
  bool computes_selection(int32_t layer) const {
    return has_indexer() && selection[static_cast<size_t>(layer)].kind == SelectionKind::kCompute;
  }
  // qk_head_dim^-0.5 times YaRN's m^2.
  float softmax_scale() const;
};

struct ConfigOptions {
  bool strict = false;  // an unknown field is an error instead of a warning
};

// Reads DIR/config.json (and eos ids of DIR/generation_config.json). A field that changes the result and is not
// supported is refused by name; harmless fields are known; any other is warned about by name, or refused when strict.
Result<ModelConfig> load_model_config(const std::filesystem::path& dir, const ConfigOptions& options = {});
// The same from text, for tests and for `--dummy` shapes. `warnings` receives one sentence per unknown field.
Result<ModelConfig> parse_model_config(std::string_view json, const ConfigOptions& options,
                                       std::vector<std::string>* warnings = nullptr);
// The public shapes by name ("deepseek-v3", "deepseek-v32", "glm47-flash", ...), as config.json text.
Result<std::string> builtin_config_json(std::string_view name);
std::vector<std::string> builtin_config_names();

}  // namespace lantern
