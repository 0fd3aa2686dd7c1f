#include "model/weight_source.h"

#include <fmt/core.h>

#include <vector>

#include "base/log.h"

namespace lantern {
namespace {

// Binds the tensors of one decoder layer.
class LayerWalk {
 public:
  LayerWalk(const ModelConfig& config, WeightSource& source, int32_t layer)
      : config_(config), source_(source), layer_(layer), prefix_(fmt::format("model.layers.{}.", layer)) {}

  Result<LayerWeights> walk() {
    LayerWeights weights;
    ASSIGN_OR_RETURN(weights.input_layernorm, vector("input_layernorm.weight", config_.hidden_size));
    ASSIGN_OR_RETURN(weights.post_attention_layernorm, vector("post_attention_layernorm.weight", config_.hidden_size));
    RETURN_IF_ERROR(attention(weights.attention));
    weights.is_moe = config_.layer_is_moe[static_cast<size_t>(layer_)];
    if (!weights.is_moe) {
      ASSIGN_OR_RETURN(weights.dense, mlp("mlp.", config_.intermediate_size));
      return weights;
    }
    RETURN_IF_ERROR(experts(weights));
    return weights;
  }

  Result<DevPtr<const float>> vector(std::string_view name, int64_t size) {
    return source_.vector(prefix_ + std::string(name), size);
  }
  Result<QuantizedMatrix> matrix(std::string_view name, int64_t rows, int64_t cols) {
    return source_.matrix(prefix_ + std::string(name), rows, cols);
  }
  bool contains(std::string_view name) const { return source_.contains(prefix_ + std::string(name)); }

 private:
  Status attention(AttentionWeights& weights) {
    const int64_t hidden = config_.hidden_size;
    const int64_t heads = config_.num_heads;
    const int64_t q_rows = heads * config_.qk_head_dim();
    if (config_.q_lora_rank == 0) {
      ASSIGN_OR_RETURN(weights.q_proj, matrix("self_attn.q_proj.weight", q_rows, hidden));
    } else {
      ASSIGN_OR_RETURN(weights.q_a_proj, matrix("self_attn.q_a_proj.weight", config_.q_lora_rank, hidden));
      ASSIGN_OR_RETURN(weights.q_a_layernorm, vector("self_attn.q_a_layernorm.weight", config_.q_lora_rank));
      ASSIGN_OR_RETURN(weights.q_b_proj, matrix("self_attn.q_b_proj.weight", q_rows, config_.q_lora_rank));
    }
    ASSIGN_OR_RETURN(weights.kv_a_proj, matrix("self_attn.kv_a_proj_with_mqa.weight", config_.latent_dim(), hidden));
    ASSIGN_OR_RETURN(weights.kv_a_layernorm, vector("self_attn.kv_a_layernorm.weight", config_.kv_lora_rank));
    ASSIGN_OR_RETURN(weights.kv_b_proj,
                     matrix("self_attn.kv_b_proj.weight", heads * (config_.qk_nope_head_dim + config_.v_head_dim),
                            config_.kv_lora_rank));
    ASSIGN_OR_RETURN(weights.o_proj, matrix("self_attn.o_proj.weight", hidden, heads * config_.v_head_dim));
    if (!config_.computes_selection(layer_)) return {};

    IndexerWeights& indexer = weights.indexer;
    const int64_t dim = config_.index_head_dim;
    ASSIGN_OR_RETURN(indexer.wq_b,
                     matrix("self_attn.indexer.wq_b.weight", config_.index_heads * dim, config_.q_lora_rank));
    ASSIGN_OR_RETURN(indexer.wk, matrix("self_attn.indexer.wk.weight", dim, hidden));
    ASSIGN_OR_RETURN(indexer.k_norm_weight, vector("self_attn.indexer.k_norm.weight", dim));
    ASSIGN_OR_RETURN(indexer.k_norm_bias, vector("self_attn.indexer.k_norm.bias", dim));
    ASSIGN_OR_RETURN(indexer.weights_proj,
                     matrix("self_attn.indexer.weights_proj.weight", config_.index_heads, hidden));
    return {};
  }

  Result<ExpertWeights> mlp(const std::string& name, int64_t intermediate) {
    ExpertWeights weights;
    ASSIGN_OR_RETURN(weights.gate, matrix(name + "gate_proj.weight", intermediate, config_.hidden_size));
    ASSIGN_OR_RETURN(weights.up, matrix(name + "up_proj.weight", intermediate, config_.hidden_size));
    ASSIGN_OR_RETURN(weights.down, matrix(name + "down_proj.weight", config_.hidden_size, intermediate));
    return weights;
  }

  Status experts(LayerWeights& weights) {
    const int64_t intermediate = config_.moe_intermediate_size;
    ASSIGN_OR_RETURN(weights.router, matrix("mlp.gate.weight", config_.num_routed_experts, config_.hidden_size));
    if (config_.router_has_bias) {
      ASSIGN_OR_RETURN(weights.router_bias, vector("mlp.gate.e_score_correction_bias", config_.num_routed_experts));
    }
    if (config_.num_shared_experts > 0) {
      ASSIGN_OR_RETURN(weights.dense, mlp("mlp.shared_experts.", config_.num_shared_experts * intermediate));
    }
    std::vector<ExpertWeights> table;
    table.reserve(static_cast<size_t>(config_.num_routed_experts));
    for (int32_t expert = 0; expert < config_.num_routed_experts; ++expert) {
      ASSIGN_OR_RETURN(ExpertWeights one, mlp(fmt::format("mlp.experts.{}.", expert), intermediate));
      RETURN_IF_ERROR(same_format(table.empty() ? one : table.front(), one, expert));
      table.push_back(one);
    }
    if (!table.empty()) weights.first_expert = table.front();
    ASSIGN_OR_RETURN(weights.experts, source_.expert_table(table));
    return {};
  }

  // The experts of a layer run as one operation, so that they must be stored alike.
  Status same_format(const ExpertWeights& first, const ExpertWeights& other, int32_t expert) const {
    const auto equal = [](const QuantizedMatrix& a, const QuantizedMatrix& b) {
      return a.dtype == b.dtype && a.scale_dtype == b.scale_dtype && a.block_rows == b.block_rows &&
             a.block_cols == b.block_cols;
    };
    const struct {
      const char* name;
      const QuantizedMatrix &first, &other;
    } pairs[] = {
        {"gate_proj", first.gate, other.gate}, {"up_proj", first.up, other.up}, {"down_proj", first.down, other.down}};
    for (const auto& pair : pairs) {
      if (equal(pair.first, pair.other)) continue;
      return Error(
          ErrorCode::kUnsupported,
          fmt::format("{}: the {} of '{}mlp.experts.{}' is stored in another format ({}) than that of expert 0 "
                      "({}); the experts of a layer must be stored alike",
                      source_.where(), pair.name, prefix_, expert, to_string(pair.other.dtype),
                      to_string(pair.first.dtype)));
    }
    return {};
  }

  const ModelConfig& config_;
  WeightSource& source_;
  int32_t layer_;
  std::string prefix_;
};

// Embedding rows are copied, not multiplied: the operator has no form for scales.
Result<QuantizedMatrix> embedding_table(const ModelConfig& config, WeightSource& source, const std::string& name) {
  ASSIGN_OR_RETURN(const QuantizedMatrix table, source.matrix(name, config.vocab_size, config.hidden_size));
  if (table.block_rows == 0) return table;
  return Error(ErrorCode::kUnsupported, fmt::format("{}: '{}' is {}; an embedding table may be BF16, F16 or F32",
                                                    source.where(), name, to_string(table.dtype)));
}

Result<MtpWeights> collect_mtp(const ModelConfig& config, WeightSource& source, int32_t layer,
                               const ModelWeights& model) {
  MtpWeights mtp;
  LayerWalk walk(config, source, layer);
  const int64_t hidden = config.hidden_size;
  mtp.embed_tokens = model.embed_tokens;
  if (walk.contains("embed_tokens.weight")) {
    ASSIGN_OR_RETURN(mtp.embed_tokens,
                     embedding_table(config, source, fmt::format("model.layers.{}.embed_tokens.weight", layer)));
  }
  ASSIGN_OR_RETURN(mtp.enorm, walk.vector("enorm.weight", hidden));
  ASSIGN_OR_RETURN(mtp.hnorm, walk.vector("hnorm.weight", hidden));
  ASSIGN_OR_RETURN(mtp.eh_proj, walk.matrix("eh_proj.weight", hidden, 2 * hidden));
  ASSIGN_OR_RETURN(mtp.layer, walk.walk());
  ASSIGN_OR_RETURN(mtp.head_norm, walk.vector("shared_head.norm.weight", hidden));
  mtp.head = model.lm_head;
  if (walk.contains("shared_head.head.weight")) {
    ASSIGN_OR_RETURN(mtp.head, walk.matrix("shared_head.head.weight", config.vocab_size, hidden));
  }
  return mtp;
}

}  // namespace

MatrixUse matrix_use(std::string_view tensor_name) {
  for (std::string_view projection : {"q_proj", "q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj",
                                      "gate_proj", "up_proj", "down_proj", "indexer.wq_b", "indexer.wk"}) {
    const std::string ending = fmt::format(".{}.weight", projection);
    if (tensor_name.ends_with(ending)) return MatrixUse::kProjection;
  }
  return MatrixUse::kUnquantized;
}

Result<ModelWeights> collect_weights(const ModelConfig& config, WeightSource& source) {
  ModelWeights weights;
  ASSIGN_OR_RETURN(weights.embed_tokens, embedding_table(config, source, "model.embed_tokens.weight"));
  for (int32_t layer = 0; layer < config.num_layers; ++layer) {
    ASSIGN_OR_RETURN(LayerWeights one, LayerWalk(config, source, layer).walk());
    weights.layers.push_back(one);
  }
  ASSIGN_OR_RETURN(weights.final_norm, source.vector("model.norm.weight", config.hidden_size));
  if (config.tie_word_embeddings) {
    weights.lm_head = weights.embed_tokens;
  } else {
    ASSIGN_OR_RETURN(weights.lm_head, source.matrix("lm_head.weight", config.vocab_size, config.hidden_size));
  }
  if (config.num_mtp_layers > 0 && !source.contains_prefix(fmt::format("model.layers.{}.", config.num_layers))) {
    return weights;  // transformers drops these layers when it saves a model, and keeps the count in the config
  }
  for (int32_t i = 0; i < config.num_mtp_layers; ++i) {
    ASSIGN_OR_RETURN(MtpWeights mtp, collect_mtp(config, source, config.num_layers + i, weights));
    weights.mtp.push_back(mtp);
  }
  return weights;
}

}  // namespace lantern
