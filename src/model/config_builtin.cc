// The public shapes of the family, as their config.json files state them. Sizes from the published files and reports.
// Behind them those that benchmarks are run with, which one GPU can hold: fewer layers ("-12L") or experts ("-E32").
#include <fmt/format.h>

#include <utility>

#include "model/config.h"

namespace lantern {
namespace {

constexpr std::string_view kV3Yarn =
    R"("rope_theta": 10000, "rope_scaling": {"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096,
  "beta_fast": 32, "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 1.0}, "max_position_embeddings": 163840)";
constexpr std::string_view kHeads128 =
    R"("kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128)";
constexpr std::string_view kNoaux = R"("scoring_func": "sigmoid", "topk_method": "noaux_tc", "norm_topk_prob": true)";

struct Builtin {
  std::string_view name;
  std::string text;
};

struct Size {
  int layers = 0, experts = 0;
};

std::string v3_shape(const Size& size) {
  return fmt::format(
      R"("vocab_size": 129280, "hidden_size": 7168, "intermediate_size": 18432,
  "moe_intermediate_size": 2048, "num_hidden_layers": {}, "num_attention_heads": 128, "q_lora_rank": 1536, {},
  "first_k_dense_replace": 3, "n_routed_experts": {}, "n_shared_experts": 1, "num_experts_per_tok": 8, {},
  "n_group": 8, "topk_group": 4, "routed_scaling_factor": 2.5, "rms_norm_eps": 1e-6, {},
  "bos_token_id": 0, "eos_token_id": 1, "num_nextn_predict_layers": 1, "torch_dtype": "bfloat16")",
      size.layers, kHeads128, size.experts, kNoaux, kV3Yarn);
}

std::string v32(const Size& size) {
  return R"("architectures": ["DeepseekV32ForCausalLM"], "model_type": "deepseek_v32",
  "index_n_heads": 64, "index_head_dim": 128, "index_topk": 2048, )" +
         v3_shape(size);
}

std::string v2_lite() {
  return fmt::format(R"("architectures": ["DeepseekV2ForCausalLM"], "model_type": "deepseek_v2",
  "vocab_size": 102400, "hidden_size": 2048, "intermediate_size": 10944, "moe_intermediate_size": 1408,
  "num_hidden_layers": 27, "num_attention_heads": 16, "q_lora_rank": null, {},
  "first_k_dense_replace": 1, "n_routed_experts": 64, "n_shared_experts": 2, "num_experts_per_tok": 6,
  "scoring_func": "softmax", "topk_method": "greedy", "n_group": 1, "topk_group": 1, "norm_topk_prob": false,
  "routed_scaling_factor": 1.0, "rms_norm_eps": 1e-6, "rope_theta": 10000,
  "rope_scaling": {{"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096, "beta_fast": 32,
  "beta_slow": 1, "mscale": 0.707, "mscale_all_dim": 0.707}}, "max_position_embeddings": 163840,
  "bos_token_id": 100000, "eos_token_id": 100001, "torch_dtype": "bfloat16")",
                     kHeads128);
}

std::string glm5(int layers) {
  return fmt::format(R"("architectures": ["GlmMoeDsaForCausalLM"], "model_type": "glm_moe_dsa",
  "vocab_size": 154880, "hidden_size": 6144, "intermediate_size": 12288, "moe_intermediate_size": 2048,
  "num_hidden_layers": {}, "num_attention_heads": 64, "q_lora_rank": 2048, "kv_lora_rank": 512,
  "qk_nope_head_dim": 192, "qk_rope_head_dim": 64, "v_head_dim": 256, "first_k_dense_replace": 3,
  "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8, {}, "n_group": 1, "topk_group": 1,
  "routed_scaling_factor": 2.5, "rms_norm_eps": 1e-5, "rope_parameters": {{"rope_type": "default",
  "rope_theta": 1000000}}, "max_position_embeddings": 202752, "index_n_heads": 32, "index_head_dim": 128,
  "index_topk": 2048, "indexer_rope_interleave": true, "eos_token_id": [154820, 154827, 154829],
  "pad_token_id": 154820, "num_nextn_predict_layers": 1, "torch_dtype": "bfloat16")",
                     layers, kNoaux);
}

std::vector<Builtin> builtins() {
  std::vector<Builtin> list;
  const auto add = [&](std::string_view name, const std::string& body) { list.push_back({name, "{" + body + "}\n"}); };
  add("deepseek-v2-lite", v2_lite());
  add("deepseek-v2", fmt::format(R"("architectures": ["DeepseekV2ForCausalLM"], "model_type": "deepseek_v2",
  "vocab_size": 102400, "hidden_size": 5120, "intermediate_size": 12288, "moe_intermediate_size": 1536,
  "num_hidden_layers": 60, "num_attention_heads": 128, "q_lora_rank": 1536, {},
  "first_k_dense_replace": 1, "n_routed_experts": 160, "n_shared_experts": 2, "num_experts_per_tok": 6,
  "scoring_func": "softmax", "topk_method": "group_limited_greedy", "n_group": 8, "topk_group": 3,
  "norm_topk_prob": false, "routed_scaling_factor": 16.0, "rms_norm_eps": 1e-6, {},
  "bos_token_id": 100000, "eos_token_id": 100001, "torch_dtype": "bfloat16")",
                                 kHeads128, kV3Yarn));
  const Size published{.layers = 61, .experts = 256};
  add("deepseek-v3", R"("architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3",
  )" + v3_shape(published));
  add("deepseek-v32", v32(published));
  add("kimi-k2", fmt::format(R"("architectures": ["DeepseekV3ForCausalLM"], "model_type": "kimi_k2",
  "vocab_size": 163840, "hidden_size": 7168, "intermediate_size": 18432, "moe_intermediate_size": 2048,
  "num_hidden_layers": 61, "num_attention_heads": 64, "q_lora_rank": 1536, {},
  "first_k_dense_replace": 1, "n_routed_experts": 384, "n_shared_experts": 1, "num_experts_per_tok": 8, {},
  "n_group": 1, "topk_group": 1, "routed_scaling_factor": 2.827, "rms_norm_eps": 1e-6, "rope_theta": 50000,
  "rope_scaling": {{"type": "yarn", "factor": 32, "original_max_position_embeddings": 4096, "beta_fast": 1,
  "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 1.0}}, "max_position_embeddings": 131072,
  "bos_token_id": 163584, "eos_token_id": [163585, 163586], "num_nextn_predict_layers": 0, "torch_dtype": "bfloat16")",
                             kHeads128, kNoaux));
  add("moonlight", fmt::format(R"("architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3",
  "vocab_size": 163840, "hidden_size": 2048, "intermediate_size": 11264, "moe_intermediate_size": 1408,
  "num_hidden_layers": 27, "num_attention_heads": 16, "q_lora_rank": null, {},
  "first_k_dense_replace": 1, "n_routed_experts": 64, "n_shared_experts": 2, "num_experts_per_tok": 6, {},
  "n_group": 1, "topk_group": 1, "routed_scaling_factor": 2.446, "rms_norm_eps": 1e-5, "rope_theta": 50000,
  "max_position_embeddings": 8192, "bos_token_id": 163584, "eos_token_id": 163586, "num_nextn_predict_layers": 0,
  "torch_dtype": "bfloat16")",
                               kHeads128, kNoaux));
  add("glm47-flash", fmt::format(R"("architectures": ["Glm4MoeLiteForCausalLM"], "model_type": "glm4_moe_lite",
  "vocab_size": 154880, "hidden_size": 2048, "intermediate_size": 10240, "moe_intermediate_size": 1536,
  "num_hidden_layers": 47, "num_attention_heads": 20, "q_lora_rank": 768, "kv_lora_rank": 512,
  "qk_nope_head_dim": 192, "qk_rope_head_dim": 64, "v_head_dim": 256, "first_k_dense_replace": 1,
  "n_routed_experts": 64, "n_shared_experts": 1, "num_experts_per_tok": 4, {}, "n_group": 1, "topk_group": 1,
  "routed_scaling_factor": 1.8, "rms_norm_eps": 1e-5, "rope_theta": 1000000, "max_position_embeddings": 202752,
  "eos_token_id": [154820, 154827, 154829], "pad_token_id": 154820, "num_nextn_predict_layers": 1,
  "torch_dtype": "bfloat16")",
                                 kNoaux));
  add("glm5", glm5(78));
  add("v2-lite", v2_lite());
  add("v32-12L", v32({.layers = 12, .experts = 256}));
  add("v32-61L-E32", v32({.layers = 61, .experts = 32}));
  add("glm5-11L", glm5(11));
  return list;
}

}  // namespace

std::vector<std::string> builtin_config_names() {
  std::vector<std::string> names;
  for (const Builtin& builtin : builtins()) names.emplace_back(builtin.name);
  return names;
}

Result<std::string> builtin_config_json(std::string_view name) {
  for (Builtin& builtin : builtins()) {
    if (builtin.name == name) return std::move(builtin.text);
  }
  return Error(ErrorCode::kNotFound, fmt::format("'{}' is not a built-in shape; there are {}", name,
                                                 fmt::join(builtin_config_names(), ", ")));
}

}  // namespace lantern
