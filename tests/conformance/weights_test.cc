// Weights of no meaning, made where they are used: those of a GPU are the CPU's bit by bit.
#include "model/weights.h"
#include "conformance/conformance.h"
#include "model/config.h"

namespace lantern::conformance {
namespace {

// DeepSeek-V3.2 in small, with sizes that no block divides.
constexpr const char* kConfig = R"({"architectures": ["DeepseekV32ForCausalLM"], "vocab_size": 301, "hidden_size": 200,
    "intermediate_size": 264, "moe_intermediate_size": 72, "num_hidden_layers": 2, "num_attention_heads": 2,
    "q_lora_rank": 136, "kv_lora_rank": 132, "qk_nope_head_dim": 12, "qk_rope_head_dim": 8, "v_head_dim": 10,
    "n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2, "n_group": 2, "topk_group": 1,
    "first_k_dense_replace": 1, "rope_theta": 10000, "max_position_embeddings": 64, "index_n_heads": 3,
    "index_head_dim": 16, "index_topk": 4, "num_nextn_predict_layers": 1})";

std::vector<Output> dummy_weights(Bench& bench, DummyFormat format) {
  const Result<ModelConfig> config = parse_model_config(kConfig, {});
  CHECK(config.ok(), "{}", config.error().message());
  Device& device = bench.stream.device();
  const Result<std::unique_ptr<WeightStore>> store = make_dummy_weights(*config, format, 7, device);
  CHECK(store.ok(), "{}", store.error().message());
  const ModelWeights& w = (*store)->weights();
  std::vector<Output> outputs;
  const auto add = [&](std::string name, const void* data, int64_t bytes) {
    std::vector<std::byte> values(static_cast<size_t>(bytes));
    device.copy_to_host(values.data(), data, values.size());
    outputs.push_back({std::move(name), std::move(values)});
  };
  const auto add_matrix = [&](const std::string& name, const QuantizedMatrix& m) {
    add(name, m.data.get(), m.data.size());
    if (m.scales) add(name + ", scales", m.scales.get(), m.scales.size());
  };
  const LayerWeights& layer = w.layers[1];
  add_matrix("embed_tokens", w.embed_tokens);
  add_matrix("q_b_proj", layer.attention.q_b_proj);
  add_matrix("weights_proj", layer.attention.indexer.weights_proj);
  add("final_norm", w.final_norm.get(), 4 * w.final_norm.size());
  add("router_bias", layer.router_bias.get(), 4 * layer.router_bias.size());
  // As the table on the device says where they are.
  std::vector<ExpertWeights> experts(4);
  device.copy_to_host(experts.data(), layer.experts.get(), experts.size() * sizeof(ExpertWeights));
  for (const ExpertWeights& expert : experts) add_matrix("down_proj", expert.down);
  return outputs;
}

class WeightsConformance : public testing::TestWithParam<Case> {};
TEST_P(WeightsConformance, EqualsTheHost) { check(GetParam()); }
INSTANTIATE_TEST_SUITE_P(
    Weights, WeightsConformance,
    testing::Values(Case{"bf16", [](Bench& bench) { return dummy_weights(bench, DummyFormat::kBf16); }},
                    Case{"fp8", [](Bench& bench) { return dummy_weights(bench, DummyFormat::kFp8Block); }}),
    case_name);

}  // namespace
}  // namespace lantern::conformance
