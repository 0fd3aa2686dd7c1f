// Fields that must have one value, fields that change nothing, and what each architecture's class takes by default.
// Names and defaults: the configuration classes of transformers 5 and the config.json files of the published models.
#include <fmt/format.h>

#include <array>
#include <boost/json/value.hpp>

#include "base/check.h"
#include "model/config_sections.h"

namespace lantern {
namespace json = boost::json;
namespace {

constexpr std::array kArchitectures{
    ArchitectureDefaults{Architecture::kDeepseekV2, "DeepseekV2ForCausalLM", "deepseek_v2", false, RopePairing::kHalves,
                         RouterScoring::kSoftmax, 1e-6, 1.0, false, 1, 1, 0, 2, false},
    ArchitectureDefaults{Architecture::kDeepseekV3, "DeepseekV3ForCausalLM", "deepseek_v3", false, RopePairing::kHalves,
                         RouterScoring::kSigmoid, 1e-6, 2.5, true, 8, 4, 3, 1, false},
    ArchitectureDefaults{Architecture::kDeepseekV32, "DeepseekV32ForCausalLM", "deepseek_v32", true,
                         RopePairing::kHalves, RouterScoring::kSigmoid, 1e-6, 2.5, true, 8, 4, 3, 1, false},
    ArchitectureDefaults{Architecture::kGlm4MoeLite, "Glm4MoeLiteForCausalLM", "glm4_moe_lite", false,
                         RopePairing::kHalves, RouterScoring::kSigmoid, 1e-5, 1.8, true, 1, 1, 1, 1, true},
    ArchitectureDefaults{Architecture::kGlmMoeDsa, "GlmMoeDsaForCausalLM", "glm_moe_dsa", true,
                         RopePairing::kInterleaved, RouterScoring::kSigmoid, 1e-5, 2.5, true, 1, 1, 3, 1, true},
};

// The values with which a field changes nothing; null and absent are always among them.
enum class Inert { kNullOnly, kFalse, kZero, kOne, kSilu };

struct FixedField {
  std::string_view name;
  Inert inert;
};

constexpr FixedField kFixedFields[] = {
    {"attention_bias", Inert::kFalse},
    {"mlp_bias", Inert::kFalse},
    {"use_qk_norm", Inert::kFalse},
    {"hidden_act", Inert::kSilu},
    {"moe_layer_freq", Inert::kOne},
    {"partial_rotary_factor", Inert::kOne},
    {"sliding_window", Inert::kNullOnly},
    {"use_sliding_window", Inert::kFalse},
    {"swiglu_limit", Inert::kNullOnly},
    {"expert_dtype", Inert::kNullOnly},
    {"compress_ratios", Inert::kNullOnly},
    {"zero_expert_num", Inert::kZero},
    {"llama_4_scaling", Inert::kNullOnly},
    {"attn_logit_softcapping", Inert::kNullOnly},
    {"final_logit_softcapping", Inert::kNullOnly},
    {"scale_emb", Inert::kOne},
    {"scale_depth", Inert::kNullOnly},
    {"dim_model_base", Inert::kNullOnly},
    {"embedding_multiplier", Inert::kOne},
    {"residual_multiplier", Inert::kOne},
    {"logits_scaling", Inert::kOne},
    {"hc_mult", Inert::kNullOnly},
    {"index_kpool", Inert::kNullOnly},
    {"num_hash_layers", Inert::kZero},
    {"vision_config", Inert::kNullOnly},
    {"is_encoder_decoder", Inert::kFalse},
};

// Training, bookkeeping, class paths, sizes that follow from others, and generation settings of old files.
constexpr std::string_view kHarmlessFields[] = {
    "_commit_hash",
    "_name_or_path",
    "_attn_implementation",
    "add_cross_attention",
    "attention_dropout",
    "auto_map",
    "aux_loss_alpha",
    "bad_words_ids",
    "begin_suppress_tokens",
    "chunk_size_feed_forward",
    "cross_attention_hidden_size",
    "decoder_start_token_id",
    "diversity_penalty",
    "do_sample",
    "early_stopping",
    "encoder_no_repeat_ngram_size",
    "ep_size",
    "exponential_decay_length_penalty",
    "finetuning_task",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "head_dim",
    "id2label",
    "initializer_range",
    "is_decoder",
    "label2id",
    "length_penalty",
    "max_length",
    "min_length",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_key_value_heads",
    "num_return_sequences",
    "output_attentions",
    "output_hidden_states",
    "output_router_logits",
    "output_scores",
    "prefix",
    "pretraining_tp",
    "problem_type",
    "pruned_heads",
    "qk_head_dim",
    "remove_invalid_values",
    "repetition_penalty",
    "return_dict",
    "return_dict_in_generate",
    "router_aux_loss_coef",
    "sep_token_id",
    "seq_aux",
    "suppress_tokens",
    "task_specific_params",
    "temperature",
    "tf_legacy_loss",
    "tie_encoder_decoder",
    "tokenizer_class",
    "top_k",
    "top_p",
    "torchscript",
    "transformers_version",
    "typical_p",
    "unsloth_version",
    "use_bfloat16",
    "use_cache",
};

bool is_number(const json::value& value, int64_t wanted) {
  return (value.is_int64() && value.get_int64() == wanted) ||
         (value.is_double() && value.get_double() == static_cast<double>(wanted));
}

bool has_inert_value(const json::value& value, Inert inert) {
  switch (inert) {
    case Inert::kNullOnly: return false;
    case Inert::kFalse: return value.is_bool() && !value.get_bool();
    case Inert::kZero: return is_number(value, 0);
    case Inert::kOne: return is_number(value, 1);
    case Inert::kSilu: return value.is_string() && (value.get_string() == "silu" || value.get_string() == "swish");
  }
  return false;
}

std::string_view expectation(Inert inert) {
  switch (inert) {
    case Inert::kNullOnly: return "no such field, or null (models that use it are not supported)";
    case Inert::kFalse: return "false (models that use it are not supported)";
    case Inert::kZero: return "0 (models that use it are not supported)";
    case Inert::kOne: return "1 (no other value is supported)";
    case Inert::kSilu: return "\"silu\" (no other activation is supported)";
  }
  return "";
}

}  // namespace

std::span<const ArchitectureDefaults> all_architectures() { return kArchitectures; }

const ArchitectureDefaults& architecture_defaults(Architecture architecture) {
  for (const ArchitectureDefaults& defaults : kArchitectures) {
    if (defaults.architecture == architecture) return defaults;
  }
  CHECK(false, "architecture {} is in no table", static_cast<int>(architecture));
}

Status check_fixed_fields(ConfigFields& fields) {
  for (const FixedField& field : kFixedFields) {
    const json::value* value = fields.find(field.name);
    if (value != nullptr && !has_inert_value(*value, field.inert)) {
      return fields.bad_value(field.name, expectation(field.inert), ErrorCode::kUnsupported);
    }
  }
  for (std::string_view name : kHarmlessFields) fields.mark_known(name);
  return {};
}

}  // namespace lantern
