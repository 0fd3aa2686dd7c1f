#include "model/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <random>

#include "model/safetensors_test_dir.h"

namespace lantern {
namespace {

namespace json = boost::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The built-in shape `name` with fields replaced; a change of "remove" takes the field away.
std::string changed(std::string_view name, const std::vector<std::pair<std::string, std::string>>& changes) {
  json::object object = json::parse(builtin_config_json(name).value()).get_object();
  for (const auto& [field, text] : changes) {
    if (text == "remove") {
      object.erase(field);
    } else {
      object[field] = json::parse(text);
    }
  }
  return json::serialize(object);
}

ModelConfig read(const std::string& text, std::vector<std::string>* warnings = nullptr) {
  Result<ModelConfig> config = parse_model_config(text, {}, warnings);
  EXPECT_TRUE(config.ok()) << config.error().message();
  return config.ok() ? *config : ModelConfig{};
}

std::string error_of(const std::string& text, const ConfigOptions& options = {}) {
  const Result<ModelConfig> config = parse_model_config(text, options);
  return config.ok() ? "(accepted)" : config.error().message();
}

// Fields as tables 1.3 to 1.10 of the published models list them; not read from the built-in texts.
struct Shape {
  const char* name;
  Architecture architecture;
  int32_t hidden, intermediate, moe_intermediate, layers, dense, heads, q_lora, nope, v, experts, shared, top_k, groups,
      topk_groups, vocab, index_heads, mtp;
  float scaling, eps;
  double theta;
  double softmax_factor;  // YaRN's m^2 to 5 digits, from the table of models
};

TEST(Config, BuiltinShapesAreThePublishedOnes) {
  using A = Architecture;
  const Shape shapes[] = {
      {"deepseek-v2-lite",
       A::kDeepseekV2,
       2048,
       10944,
       1408,
       27,
       1,
       16,
       0,
       128,
       128,
       64,
       2,
       6,
       1,
       1,
       102400,
       0,
       0,
       1.0f,
       1e-6f,
       1e4,
       1.58963},
      {"deepseek-v2", A::kDeepseekV2, 5120, 12288,  1536, 60, 1, 128, 1536, 128, 128, 160, 2, 6, 8, 3, 102400, 0, 0,
       16.0f,         1e-6f,          1e4,  1.87385},
      {"deepseek-v3", A::kDeepseekV3, 7168, 18432,  2048, 61, 3, 128, 1536, 128, 128, 256, 1, 8, 8, 4, 129280, 0, 1,
       2.5f,          1e-6f,          1e4,  1.87385},
      {"deepseek-v32", A::kDeepseekV32, 7168, 18432,  2048, 61, 3, 128, 1536, 128, 128, 256, 1, 8, 8, 4, 129280, 64, 1,
       2.5f,           1e-6f,           1e4,  1.87385},
      {"kimi-k2", A::kDeepseekV3, 7168, 18432, 2048,   61,    1,   64,     1536, 128, 128, 384, 1, 8, 1,
       1,         163840,         0,    0,     2.827f, 1e-6f, 5e4, 1.81326},
      {"moonlight", A::kDeepseekV3, 2048, 11264, 1408,   27,    1,   16, 0, 128, 128, 64, 2, 6, 1,
       1,           163840,         0,    0,     2.446f, 1e-5f, 5e4, 1.0},
      {"glm47-flash", A::kGlm4MoeLite, 2048, 10240, 1536, 47, 1, 20, 768, 192, 256, 64, 1, 4, 1, 1, 154880, 0, 1,
       1.8f,          1e-5f,           1e6,  1.0},
      {"glm5", A::kGlmMoeDsa, 6144, 12288, 2048, 78,    3,   64, 2048, 192, 256, 256, 1, 8, 1,
       1,      154880,        32,   1,     2.5f, 1e-5f, 1e6, 1.0},
      {"v2-lite", A::kDeepseekV2, 2048, 10944, 1408, 27,    1,   16,     0, 128, 128, 64, 2, 6, 1,
       1,         102400,         0,    0,     1.0f, 1e-6f, 1e4, 1.58963},
      {"v32-12L", A::kDeepseekV32, 7168, 18432, 2048, 12,    3,   128,    1536, 128, 128, 256, 1, 8, 8,
       4,         129280,          64,   1,     2.5f, 1e-6f, 1e4, 1.87385},
      {"v32-61L-E32", A::kDeepseekV32, 7168, 18432,  2048, 61, 3, 128, 1536, 128, 128, 32, 1, 8, 8, 4, 129280, 64, 1,
       2.5f,          1e-6f,           1e4,  1.87385},
      {"glm5-11L", A::kGlmMoeDsa, 6144, 12288, 2048, 11,    3,   64, 2048, 192, 256, 256, 1, 8, 1,
       1,          154880,        32,   1,     2.5f, 1e-5f, 1e6, 1.0},
  };
  ASSERT_EQ(builtin_config_names().size(), std::size(shapes));
  for (const Shape& s : shapes) {
    SCOPED_TRACE(s.name);
    std::vector<std::string> warnings;
    const ModelConfig c = read(builtin_config_json(s.name).value(), &warnings);
    EXPECT_THAT(warnings, ElementsAre());
    EXPECT_EQ(c.architecture, s.architecture);
    EXPECT_EQ(c.hidden_size, s.hidden);
    EXPECT_EQ(c.intermediate_size, s.intermediate);
    EXPECT_EQ(c.moe_intermediate_size, s.moe_intermediate);
    EXPECT_EQ(c.num_layers, s.layers);
    EXPECT_EQ(c.first_k_dense_replace, s.dense);
    EXPECT_EQ(c.num_heads, s.heads);
    EXPECT_EQ(c.q_lora_rank, s.q_lora);
    EXPECT_EQ(c.kv_lora_rank, 512);
    EXPECT_EQ(c.qk_nope_head_dim, s.nope);
    EXPECT_EQ(c.qk_rope_head_dim, 64);
    EXPECT_EQ(c.v_head_dim, s.v);
    EXPECT_EQ(c.num_routed_experts, s.experts);
    EXPECT_EQ(c.num_shared_experts, s.shared);
    EXPECT_EQ(c.experts_per_token, s.top_k);
    EXPECT_EQ(c.num_expert_groups, s.groups);
    EXPECT_EQ(c.topk_groups, s.topk_groups);
    EXPECT_EQ(c.vocab_size, s.vocab);
    EXPECT_EQ(c.index_heads, s.index_heads);
    EXPECT_EQ(c.num_mtp_layers, s.mtp);
    EXPECT_EQ(c.routed_scaling_factor, s.scaling);
    EXPECT_EQ(c.rms_norm_eps, s.eps);
    EXPECT_EQ(c.rope_theta, s.theta);
    EXPECT_EQ(c.rope_pairing, RopePairing::kInterleaved);
    EXPECT_NEAR(c.softmax_scale() * std::sqrt(s.nope + 64.0), s.softmax_factor, 1e-5);
    const bool v2 = s.architecture == A::kDeepseekV2;
    EXPECT_EQ(c.router_scoring, v2 ? RouterScoring::kSoftmax : RouterScoring::kSigmoid);
    EXPECT_EQ(c.router_group_score, v2 ? RouterGroupScore::kMax : RouterGroupScore::kTop2Sum);
    EXPECT_EQ(c.router_has_bias, !v2);
    EXPECT_EQ(c.norm_topk_prob, !v2);
    ASSERT_EQ(std::ssize(c.layer_is_moe), c.total_layers());
    ASSERT_EQ(std::ssize(c.selection), c.total_layers());
    for (int32_t layer = 0; layer < c.total_layers(); ++layer) {
      EXPECT_EQ(c.layer_is_moe[static_cast<size_t>(layer)], layer >= s.dense) << layer;
      EXPECT_EQ(c.selection[static_cast<size_t>(layer)].kind,
                s.index_heads > 0 ? SelectionKind::kCompute : SelectionKind::kDense)
          << layer;
    }
  }
  EXPECT_THAT(builtin_config_json("gpt-2").error().message(), HasSubstr("deepseek-v32"));
}

TEST(Config, IndexerRopeFollowsTheFamilyUnlessStated) {
  EXPECT_EQ(read(changed("deepseek-v32", {})).index_rope_pairing, RopePairing::kHalves);
  EXPECT_EQ(read(changed("glm5", {})).index_rope_pairing, RopePairing::kInterleaved);
  EXPECT_EQ(read(changed("glm5", {{"indexer_rope_interleave", "remove"}})).index_rope_pairing,
            RopePairing::kInterleaved);
  EXPECT_EQ(read(changed("glm5", {{"indexer_rope_interleave", "false"}})).index_rope_pairing, RopePairing::kHalves);
  EXPECT_EQ(read(changed("glm47-flash", {{"rope_interleave", "false"}})).rope_pairing, RopePairing::kHalves);
}

// What save_pretrained of transformers 5.17.0 writes for DeepseekV32Config(num_hidden_layers=4) with YaRN.
TEST(Config, ReadsTheSpellingOfTransformers5) {
  std::vector<std::string> warnings;
  const ModelConfig c = read(R"({"architectures": ["DeepseekV32ForCausalLM"], "attention_bias": false,
    "attention_dropout": 0.0, "bos_token_id": 0, "dtype": "bfloat16", "eos_token_id": 1, "first_k_dense_replace": 3,
    "head_dim": 64, "hidden_act": "silu", "hidden_size": 7168, "index_head_dim": 128, "index_n_heads": 64,
    "index_topk": 2048, "initializer_range": 0.02, "intermediate_size": 18432, "kv_lora_rank": 512,
    "layer_types": ["deepseek_sparse_attention", "deepseek_sparse_attention", "deepseek_sparse_attention",
    "deepseek_sparse_attention"], "max_position_embeddings": 163840, "mlp_bias": false,
    "mlp_layer_types": ["dense", "sparse", "dense", "sparse"], "model_type": "deepseek_v32",
    "moe_intermediate_size": 2048, "n_group": 8, "n_routed_experts": 256, "n_shared_experts": 1,
    "norm_topk_prob": true, "num_attention_heads": 128, "num_experts_per_tok": 8, "num_hidden_layers": 4,
    "num_key_value_heads": 128, "pad_token_id": null, "q_lora_rank": 1536, "qk_head_dim": 192,
    "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "rms_norm_eps": 1e-06,
    "rope_parameters": {"rope_theta": 10000.0, "rope_type": "yarn", "factor": 40, "beta_fast": 32, "beta_slow": 1,
    "mscale": 1.0, "mscale_all_dim": 1.0, "original_max_position_embeddings": 4096},
    "routed_scaling_factor": 2.5, "tie_word_embeddings": false, "topk_group": 4, "transformers_version": "5.17.0",
    "use_cache": true, "v_head_dim": 128, "vocab_size": 129280})",
                             &warnings);
  EXPECT_THAT(warnings, ElementsAre());
  EXPECT_THAT(c.layer_is_moe, ElementsAre(false, true, false, true));  // the list wins over the count
  EXPECT_EQ(c.rope_scaling.factor, 40);
  EXPECT_EQ(c.rope_scaling.original_max_position, 4096);
  EXPECT_EQ(c.rope_theta, 1e4);
  EXPECT_EQ(c.torch_dtype, "bfloat16");
  EXPECT_NEAR(c.softmax_scale(), 1.87385 / std::sqrt(192.0), 1e-6);
  EXPECT_EQ(c.num_mtp_layers, 0);
}

TEST(Config, AliasesNameTheSameField) {
  const std::string text = changed("deepseek-v3", {{"n_routed_experts", "remove"},
                                                   {"num_local_experts", "256"},
                                                   {"num_nextn_predict_layers", "remove"},
                                                   {"num_mtp_layers", "1"}});
  EXPECT_EQ(read(text).num_routed_experts, 256);
  EXPECT_EQ(read(text).num_mtp_layers, 1);
  EXPECT_THAT(error_of(changed("deepseek-v3", {{"num_local_experts", "128"}})),
              HasSubstr("'n_routed_experts' is 256 but 'num_local_experts' is 128"));
}

TEST(Config, MtpLayerHasExpertsLikeTheLastLayer) {
  const ModelConfig c = read(changed("glm47-flash", {{"num_hidden_layers", "3"},
                                                     {"first_k_dense_replace", "remove"},
                                                     {"mlp_layer_types", R"(["dense", "sparse", "sparse"])"}}));
  EXPECT_THAT(c.layer_is_moe, ElementsAre(false, true, true, true));
}

TEST(Config, SharedIndexersFollowSchedulePatternOrList) {
  const auto sources = [](const ModelConfig& c) {
    std::vector<int32_t> from;  // -1: computes; else the layer it reuses
    from.reserve(c.selection.size());
    for (const SelectionSource& s : c.selection) from.push_back(s.kind == SelectionKind::kReuse ? s.from_layer : -1);
    return from;
  };
  // GLM-5.2: full at 0, 1, 2, 6, 10, ...; layer 11 is the MTP layer, which always computes.
  EXPECT_THAT(sources(read(changed(
                  "glm5", {{"num_hidden_layers", "11"}, {"index_topk_freq", "4"}, {"index_skip_topk_offset", "3"}}))),
              ElementsAre(-1, -1, -1, 2, 2, 2, -1, 6, 6, 6, -1, -1));
  EXPECT_THAT(sources(read(changed("glm5", {{"num_hidden_layers", "4"}, {"index_topk_pattern", "\"FSSF\""}}))),
              ElementsAre(-1, 0, 0, -1, -1));
  EXPECT_THAT(
      sources(read(changed("glm5", {{"num_hidden_layers", "3"}, {"indexer_types", R"(["full", "shared", "full"])"}}))),
      ElementsAre(-1, 0, -1, -1));
  EXPECT_THAT(error_of(changed("glm5", {{"num_hidden_layers", "2"}, {"indexer_types", R"(["shared", "full"])"}})),
              HasSubstr("no layer before it"));
  EXPECT_THAT(
      error_of(changed("glm5", {{"num_hidden_layers", "2"}, {"indexer_types", R"(["full", "full", "shared"])"}})),
      HasSubstr("MTP layer"));
  EXPECT_THAT(error_of(changed("glm5", {{"num_hidden_layers", "2"}, {"indexer_types", R"(["full", "half"])"}})),
              HasSubstr("'half'"));
  EXPECT_THAT(error_of(changed("glm5", {{"num_hidden_layers", "2"}, {"indexer_types", R"(["full"])"}})),
              HasSubstr("'indexer_types' has 1 entries; expected 2"));
  EXPECT_THAT(error_of(changed("glm5", {{"index_topk_pattern", "\"FX\""}})), HasSubstr("F and S"));
}

TEST(Config, QuantizationIsReadOrRefused) {
  const auto with = [](const std::string& text) { return changed("deepseek-v3", {{"quantization_config", text}}); };
  const ModelConfig c = read(with(R"({"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
      "weight_block_size": [128, 64], "scale_fmt": "ue8m0", "modules_to_not_convert": ["lm_head"]})"));
  EXPECT_EQ(c.quantization.method, "fp8");
  EXPECT_EQ(c.quantization.block_rows, 128);
  EXPECT_EQ(c.quantization.block_cols, 64);
  EXPECT_TRUE(c.quantization.ue8m0_scales);
  EXPECT_THAT(error_of(with(R"({"quant_method": "awq", "bits": 4})")), HasSubstr("'quant_method' is \"awq\""));
  EXPECT_THAT(error_of(with(R"({"quant_method": "fp8", "activation_scheme": "static", "weight_block_size": [1, 1]})")),
              HasSubstr("'activation_scheme' is \"static\""));
  EXPECT_THAT(error_of(with(R"({"quant_method": "fp8"})")), HasSubstr("'weight_block_size' is missing"));
  EXPECT_THAT(error_of(with(R"({"quant_method": "fp8", "weight_block_size": [128, 0]})")), HasSubstr("[128,0]"));
  EXPECT_THAT(error_of(with(R"({"quant_method": "fp8", "weight_block_size": [128, 128], "group": 3})")),
              HasSubstr("'group' is not known"));
  EXPECT_THAT(error_of(with(R"({})")), HasSubstr("'quant_method' is missing"));
  EXPECT_THAT(error_of(with(R"("fp8")")), HasSubstr("expected an object"));
}

struct Refusal {
  const char* base;
  const char* field;
  const char* value;
  const char* fragment;  // of the message, beside the field's name
};

TEST(Config, RefusesByNameAndValue) {
  const Refusal refusals[] = {
      {"deepseek-v3", "architectures", R"(["LlamaForCausalLM"])", "'LlamaForCausalLM' is not supported"},
      {"deepseek-v3", "architectures", R"("DeepseekV3ForCausalLM")", "list of strings"},
      {"deepseek-v3", "attention_bias", "true", "'attention_bias' is true"},
      {"deepseek-v3", "mlp_bias", "true", "'mlp_bias' is true"},
      {"deepseek-v3", "hidden_act", R"("gelu")", "'hidden_act' is \"gelu\""},
      {"deepseek-v3", "moe_layer_freq", "2", "'moe_layer_freq' is 2"},
      {"deepseek-v3", "moe_layer_freq", "[0, 1]", "'moe_layer_freq' is [0,1]"},
      {"deepseek-v3", "sliding_window", "4096", "'sliding_window' is 4096"},
      {"deepseek-v3", "partial_rotary_factor", "0.5", "'partial_rotary_factor' is 0.5"},
      {"deepseek-v3", "scoring_func", R"("softmax")", "'scoring_func' is \"softmax\"; expected 'sigmoid'"},
      {"deepseek-v2", "scoring_func", R"("sigmoid")", "expected 'softmax'"},
      {"deepseek-v3", "topk_method", R"("greedy")", "'topk_method' is \"greedy\"; expected 'noaux_tc'"},
      {"deepseek-v2", "topk_method", R"("noaux_tc")", "'greedy' or 'group_limited_greedy'"},
      {"deepseek-v2", "norm_topk_prob", "true", "'routed_scaling_factor'"},
      {"deepseek-v3", "swiglu_limit", "10", "'swiglu_limit' is 10"},
      {"deepseek-v3", "index_topk", "2048", "has no indexer"},
      {"deepseek-v32", "layer_types", R"(["full_attention"])", "'layer_types' has 1 entries; expected 61"},
      {"deepseek-v3", "rope_scaling", R"({"type": "linear", "factor": 2})", "'type' is \"linear\""},
      {"deepseek-v3", "rope_scaling", R"({"rope_type": "dynamic", "factor": 2})", "'rope_type' is \"dynamic\""},
      {"deepseek-v3", "rope_scaling", R"({"rope_type": "llama3", "factor": 8})", "\"llama3\""},
      {"deepseek-v3", "rope_scaling", R"({"rope_type": "longrope"})", "\"longrope\""},
      {"deepseek-v3", "rope_scaling", R"({"type": "yarn"})", "'factor' is missing"},
      {"deepseek-v3", "rope_scaling", R"({"type": "yarn", "factor": 0.5})", "'factor' is 0.5"},
      {"deepseek-v3", "rope_scaling", R"({"type": "yarn", "factor": 4})",
       "'original_max_position_embeddings' is missing"},
      {"deepseek-v3", "rope_scaling",
       R"({"type": "yarn", "factor": 4, "original_max_position_embeddings": 4096, "attention_factor": 1.5})",
       "'attention_factor' is 1.5"},
      {"deepseek-v3", "rope_scaling",
       R"({"type": "yarn", "factor": 4, "original_max_position_embeddings": 4096, "surprise": 1})", "surprise"},
      {"deepseek-v3", "rope_scaling", R"({"factor": 4})", "'factor' is 4"},
      {"deepseek-v3", "rope_scaling", "[]", "expected an object"},
      {"glm5", "rope_theta", "10000", "'rope_theta' is 10000"},  // contradicts rope_parameters
      {"glm5", "rope_parameters", R"({"rope_type": "default"})", "'rope_theta' is missing"},
      {"deepseek-v3", "hidden_size", "0", "'hidden_size' is 0; expected an integer from 1"},
      {"deepseek-v3", "hidden_size", "-5", "'hidden_size' is -5"},
      {"deepseek-v3", "hidden_size", "7168.0", "'hidden_size' is 7168.0; expected an integer"},
      {"deepseek-v3", "hidden_size", R"("7168")", "'hidden_size' is \"7168\""},
      {"deepseek-v3", "hidden_size", "2147483648", "'hidden_size' is 2147483648"},
      {"deepseek-v3", "hidden_size", "18446744073709551615", "'hidden_size' is 18446744073709551615"},
      {"deepseek-v3", "hidden_size", "1e308", "'hidden_size' is 1e+308"},
      {"deepseek-v3", "hidden_size", "null", "'hidden_size' is null"},
      {"deepseek-v3", "hidden_size", "remove", "'hidden_size' is missing; expected an integer"},
      {"deepseek-v3", "vocab_size", "true", "'vocab_size' is true"},
      {"deepseek-v3", "num_hidden_layers", "100000", "from 1 to 4096"},
      {"deepseek-v3", "num_attention_heads", "[128]", "'num_attention_heads' is [128]"},
      {"deepseek-v3", "qk_rope_head_dim", "63", "even"},
      {"deepseek-v3", "qk_nope_head_dim", "0", "'qk_nope_head_dim' is 0"},
      {"deepseek-v3", "q_lora_rank", "remove", "'q_lora_rank' is missing"},
      {"deepseek-v32", "q_lora_rank", "null", "'q_lora_rank' is null"},
      {"deepseek-v32", "index_head_dim", "32", "at least qk_rope_head_dim"},
      {"deepseek-v3", "rms_norm_eps", "-1e-6", "'rms_norm_eps' is -1e-06"},
      {"deepseek-v3", "routed_scaling_factor", "0", "'routed_scaling_factor' is 0"},
      {"deepseek-v3", "n_group", "7", "'n_group' is 7, which does not divide the 256"},
      {"deepseek-v3", "n_group", "256", "one expert a group"},
      {"deepseek-v3", "topk_group", "9", "'topk_group' is 9; expected at most"},
      {"deepseek-v3", "num_experts_per_tok", "200", "4 groups of 32 experts hold only 128"},
      {"deepseek-v3", "num_experts_per_tok", "257", "'num_experts_per_tok' is 257"},
      {"deepseek-v3", "n_routed_experts", "remove", "'n_routed_experts' is missing"},
      {"deepseek-v3", "mlp_layer_types", R"(["dense"])", "'mlp_layer_types' has 1 entries"},
      {"deepseek-v3", "tie_word_embeddings", "1", "'tie_word_embeddings' is 1; expected true or false"},
      {"deepseek-v3", "num_nextn_predict_layers", "17", "'num_nextn_predict_layers' is 17"},
      {"deepseek-v3", "eos_token_id", "[1, -2]", "'eos_token_id' is [1,-2]"},
      {"deepseek-v3", "eos_token_id", "\"1\"", "'eos_token_id' is \"1\""},
  };
  for (const Refusal& r : refusals) {
    const std::string error = error_of(changed(r.base, {{r.field, r.value}}));
    EXPECT_THAT(error, HasSubstr(r.fragment)) << r.field << " = " << r.value;
    EXPECT_THAT(error, HasSubstr("config.json: ")) << r.field;
    EXPECT_EQ(error.find('\n'), std::string::npos) << error;
  }
  EXPECT_THAT(error_of("{"),
              HasSubstr("config.json: not valid JSON at line 1, column 2, byte 1 of 1 (it ends too early)"));
  EXPECT_THAT(error_of("[]"), HasSubstr("not a JSON object"));
  EXPECT_THAT(error_of("{}"), HasSubstr("'architectures' is missing"));
  EXPECT_THAT(error_of(R"({"model_type": "llama"})"), HasSubstr("DeepseekV32ForCausalLM"));
}

TEST(Config, AcceptsHarmlessAndWarnsOfUnknownFields) {
  const std::string text = changed("deepseek-v3", {{"ep_size", "1"},
                                                   {"pretraining_tp", "1"},
                                                   {"aux_loss_alpha", "1e-3"},
                                                   {"seq_aux", "true"},
                                                   {"auto_map", "{}"},
                                                   {"use_cache", "false"},
                                                   {"brand_new_gate", "0.25"}});
  std::vector<std::string> warnings;
  read(text, &warnings);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_THAT(warnings[0], HasSubstr("'brand_new_gate' (0.25)"));
  EXPECT_THAT(error_of(text, ConfigOptions{.strict = true}), HasSubstr("'brand_new_gate'"));
  EXPECT_EQ(error_of(changed("deepseek-v3", {{"ep_size", "8"}}), ConfigOptions{.strict = true}), "(accepted)");
}

TEST(Config, DenseModelsNeedNoExperts) {
  const ModelConfig c = read(changed("deepseek-v2-lite", {{"n_routed_experts", "null"}}));
  EXPECT_EQ(c.num_routed_experts, 0);
  EXPECT_THAT(c.layer_is_moe, ::testing::Each(false));
}

TEST(Config, V2GreedyIgnoresGroups) {
  const ModelConfig c = read(changed("deepseek-v2", {{"topk_method", "\"greedy\""}}));
  EXPECT_EQ(c.num_expert_groups, 1);
  EXPECT_EQ(c.topk_groups, 1);
}

TEST(Config, DirectoryAddsTheGenerationConfig) {
  const std::filesystem::path dir = fresh_dir("config");
  EXPECT_THAT(load_model_config(dir).error().message(), HasSubstr("config.json cannot be opened"));
  std::ofstream(dir / "config.json") << builtin_config_json("kimi-k2").value();
  std::ofstream(dir / "generation_config.json") << R"({"eos_token_id": [163586, 7], "temperature": 0.6})";
  const Result<ModelConfig> config = load_model_config(dir);
  ASSERT_TRUE(config.ok()) << config.error().message();
  EXPECT_THAT(config->eos_token_ids, ElementsAre(163585, 163586, 7));
  EXPECT_EQ(config->bos_token_id, 163584);
  std::ofstream(dir / "generation_config.json") << R"({"eos_token_id": "x"})";
  EXPECT_THAT(load_model_config(dir).error().message(), HasSubstr("generation_config.json: 'eos_token_id' is \"x\""));
}

// The configs that ship, and those of the golden cases, hold no field that strict reading refuses.
TEST(Config, ShippedConfigsPassStrictly) {
  const std::filesystem::path root = LANTERN_SOURCE_DIR;
  std::vector<std::filesystem::path> dirs = {root / "models" / "tiny"};
  for (const auto& entry : std::filesystem::directory_iterator(root / "tests" / "golden" / "data")) {
    if (std::filesystem::exists(entry.path() / "config.json")) dirs.push_back(entry.path());
  }
  EXPECT_GE(dirs.size(), 10u);
  for (const std::filesystem::path& dir : dirs) {
    const Result<ModelConfig> config = load_model_config(dir, ConfigOptions{.strict = true});
    EXPECT_TRUE(config.ok()) << config.error().message();
  }
}

// Any damage to a config ends in a config or in one sentence.
TEST(Config, SurvivesRandomDamage) {
  std::mt19937 random(7);
  int refused = 0;
  for (const std::string& name : builtin_config_names()) {
    const std::string text = builtin_config_json(name).value();
    for (int i = 0; i < 500; ++i) {
      std::string damaged = text;
      for (int edits = 1 + static_cast<int>(random() % 4); edits > 0; --edits) {
        const size_t at = random() % damaged.size();
        switch (random() % 4) {
          case 0: damaged[at] = static_cast<char>(random() % 256); break;
          case 1: damaged.erase(at, 1 + random() % 8); break;
          case 2: damaged = damaged.substr(0, at) + std::to_string(random()) + damaged.substr(at); break;
          default: damaged = damaged.substr(0, at) + "0-9{}[],:\"e."[random() % 12] + damaged.substr(at); break;
        }
        if (damaged.empty()) damaged.push_back('{');
      }
      const Result<ModelConfig> config = parse_model_config(damaged, {});
      if (config.ok()) continue;
      ++refused;
      EXPECT_FALSE(config.error().message().empty());
    }
  }
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace lantern
