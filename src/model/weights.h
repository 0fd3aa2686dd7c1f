// The weights of a model as the layer stack reads them: matrices in place in mapped checkpoint shards, vectors
// (norms, biases) converted to float once at load.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "device/device.h"
#include "device/fixed.h"
#include "model/config.h"
#include "ops/moe.h"
#include "ops/quantized_matrix.h"

namespace lantern {

class Checkpoint;

struct IndexerWeights {
  QuantizedMatrix wq_b;                            // [index_heads * index_head_dim, q_lora_rank]
  QuantizedMatrix wk;                              // [index_head_dim, hidden]
  DevPtr<const float> k_norm_weight, k_norm_bias;  // [index_head_dim]
  QuantizedMatrix weights_proj;                    // [index_heads, hidden], used with LinearInput::kExact
};

struct AttentionWeights {
  QuantizedMatrix q_proj;              // [heads * qk_head_dim, hidden] when q_lora_rank is 0
  QuantizedMatrix q_a_proj, q_b_proj;  // [q_lora, hidden], [heads * qk_head_dim, q_lora]
  DevPtr<const float> q_a_layernorm;   // [q_lora]
  QuantizedMatrix kv_a_proj;           // [kv_lora + rope, hidden]
  DevPtr<const float> kv_a_layernorm;  // [kv_lora]
  QuantizedMatrix kv_b_proj;           // [heads * (nope + v), kv_lora]
  QuantizedMatrix o_proj;              // [hidden, heads * v]
  IndexerWeights indexer;              // empty unless the layer's selection is kCompute
};

struct LayerWeights {
  DevPtr<const float> input_layernorm;           // [hidden]
  DevPtr<const float> post_attention_layernorm;  // [hidden]
  AttentionWeights attention;
  bool is_moe = false;
  ExpertWeights dense;                  // dense layers: the MLP; MoE layers: the shared experts (may be empty)
  QuantizedMatrix router;               // [experts, hidden], used with LinearInput::kExact
  DevPtr<const float> router_bias;      // [experts] or null
  DevPtr<const ExpertWeights> experts;  // [experts]; on the device
  ExpertWeights first_expert;           // for the host: the sizes, formats and alignment of all
};

struct MtpWeights {
  QuantizedMatrix embed_tokens;      // the layer's own, or the model's when the checkpoint has none
  DevPtr<const float> enorm, hnorm;  // [hidden]
  QuantizedMatrix eh_proj;           // [hidden, 2 * hidden]; embedding half first
  LayerWeights layer;
  DevPtr<const float> head_norm;  // [hidden]
  QuantizedMatrix head;           // [vocab, hidden]
};

struct ModelWeights {
  QuantizedMatrix embed_tokens;      // [vocab, hidden]
  std::vector<LayerWeights> layers;  // [num_layers]
  DevPtr<const float> final_norm;    // [hidden]
  QuantizedMatrix lm_head;           // [vocab, hidden]
  std::vector<MtpWeights> mtp;       // [num_mtp_layers]; empty when the checkpoint does not hold them

  // What a decode step of one token reads: all but unused experts and the embedding table.
  int64_t active_bytes_per_token(const ModelConfig& config) const;
  int64_t total_bytes() const;
  int64_t parameter_count() const;
};

// Owns the memory behind ModelWeights: mapped shards and converted vectors. Addresses never move. Its device outlives
// it.
class WeightStore {
 public:
  virtual ~WeightStore() = default;
  virtual const ModelWeights& weights() const = 0;
};

// Maps the checkpoint of `dir` (model.safetensors or a sharded index) and binds every tensor that the config calls for,
// checking shapes and dtypes: a missing, misshapen or truncated tensor is an error that names it. Tensors nobody asked
// for are named in a warning. Fails with numbers when the weights exceed the memory that is free.
Result<std::unique_ptr<WeightStore>> load_weights(const std::filesystem::path& dir, const ModelConfig& config,
                                                  Device& device);

// The same checks alone: nothing is loaded, nor need the weights fit anywhere.
Status check_weights(const Checkpoint& checkpoint, const ModelConfig& config);

enum class DummyFormat : uint8_t { kBf16, kFp8Block };
// Random weights of real shapes from a counter-based generator, for speed runs; scaled so that activations stay finite.
Result<std::unique_ptr<WeightStore>> make_dummy_weights(const ModelConfig& config, DummyFormat format, uint64_t seed,
                                                        Device& device);

}  // namespace lantern
