#include "model/weights.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <fstream>

#include "model/model_memory.h"
#include "model/weight_test_checkpoint.h"

namespace lantern {
namespace {

using namespace testing_checkpoint;
using ::testing::HasSubstr;

ModelConfig config_of(const std::string& text) {
  Result<ModelConfig> config = parse_model_config(text, {});
  EXPECT_TRUE(config.ok()) << config.error().message();
  return config.ok() ? *config : ModelConfig{};
}

// A V3.2 model of two layers (dense, MoE) and an MTP layer, with sizes that leave partial blocks of 16 x 32.
std::string v32_text(const std::string& extra = "") {
  return R"({"architectures": ["DeepseekV32ForCausalLM"], "vocab_size": 40, "hidden_size": 48, "intermediate_size": 56,
    "moe_intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "q_lora_rank": 36,
    "kv_lora_rank": 20, "qk_nope_head_dim": 12, "qk_rope_head_dim": 8, "v_head_dim": 10, "n_routed_experts": 4,
    "n_shared_experts": 2, "num_experts_per_tok": 2, "n_group": 2, "topk_group": 1, "first_k_dense_replace": 1,
    "rope_theta": 10000, "max_position_embeddings": 64, "index_n_heads": 3, "index_head_dim": 16, "index_topk": 4,
    "num_nextn_predict_layers": 1)" +
         extra + "}";
}
const char* const kFp8 = R"(, "quantization_config": {"quant_method": "fp8", "weight_block_size": [16, 32]})";

// A device with a fixed amount of free memory, of any kind.
class SmallDevice final : public Device {
 public:
  explicit SmallDevice(size_t available, DeviceKind kind = DeviceKind::kCpu) : available_(available), kind_(kind) {}
  DeviceKind kind() const override { return kind_; }
  std::string description() const override { return "a small device"; }
  size_t available_bytes() const override { return available_; }
  int worker_count() const override { return 1; }
  void copy_to_device(void* destination, const void* source, size_t bytes) override {
    std::memcpy(destination, source, bytes);
  }
  void copy_to_host(void* destination, const void* source, size_t bytes) override {
    std::memcpy(destination, source, bytes);
  }

 protected:
  void* allocate_zeroed(size_t bytes) override {
    const size_t rounded = (bytes / 4096 + 1) * 4096;
    return std::memset(std::aligned_alloc(4096, rounded), 0, rounded);
  }
  void release_memory(void* address) override { std::free(address); }

 private:
  size_t available_;
  DeviceKind kind_;
};

// All matrices, their scales, and vectors.
void for_each_address(const ModelWeights& w, const std::function<void(const void*)>& visit) {
  const auto matrix = [&](const QuantizedMatrix& m) {
    if (m.empty()) return;
    visit(m.data.get());
    if (m.scales) visit(m.scales.get());
  };
  const auto layer = [&](const LayerWeights& l, int64_t experts) {
    const AttentionWeights& a = l.attention;
    for (const QuantizedMatrix* m :
         {&a.q_proj, &a.q_a_proj, &a.q_b_proj, &a.kv_a_proj, &a.kv_b_proj, &a.o_proj, &a.indexer.wq_b, &a.indexer.wk,
          &a.indexer.weights_proj, &l.dense.gate, &l.dense.up, &l.dense.down, &l.router}) {
      matrix(*m);
    }
    for (const DevPtr<const float>& v : {l.input_layernorm, l.post_attention_layernorm, a.q_a_layernorm,
                                         a.kv_a_layernorm, a.indexer.k_norm_weight, a.indexer.k_norm_bias}) {
      visit(v.get());
    }
    if (!l.is_moe) return;
    visit(l.router_bias.get());
    for (int64_t e = 0; e < experts; ++e) {
      for (const QuantizedMatrix* m : {&l.experts[e].gate, &l.experts[e].up, &l.experts[e].down}) matrix(*m);
    }
  };
  for (const QuantizedMatrix* m : {&w.embed_tokens, &w.lm_head}) matrix(*m);
  visit(w.final_norm.get());
  for (const LayerWeights& l : w.layers) layer(l, 4);
  for (const MtpWeights& m : w.mtp) {
    matrix(m.eh_proj);
    for (const DevPtr<const float>& v : {m.enorm, m.hnorm, m.head_norm}) visit(v.get());
    layer(m.layer, 4);
  }
}

std::string load_error(const std::filesystem::path& dir, const ModelConfig& config) {
  const auto device = make_host_device(1);
  const auto store = load_weights(dir, config, *device);
  return store.ok() ? "(loaded)" : store.error().message();
}

float stored_value(const Tensor& tensor, size_t i) {
  const auto get = [&](auto value) {
    std::memcpy(&value, tensor.data.data() + i * sizeof value, sizeof value);
    return value;
  };
  switch (tensor.dtype) {
    case DType::kF32: return get(float{});
    case DType::kF16: return to_float(get(f16_t{}));
    case DType::kBF16: return to_float(get(bf16_t{}));
    case DType::kF8E4M3: return to_float(get(e4m3_t{}));
    case DType::kF8E8M0: return to_float(get(e8m0_t{}));
    default: ADD_FAILURE(); return 0;
  }
}

// Compares every element with what was written, scales multiplied in by a formula of its own.
void expect_matrix(const QuantizedMatrix& matrix, const Tensors& tensors, const std::string& name,
                   int32_t block_rows = 0, int32_t block_cols = 0) {
  SCOPED_TRACE(name);
  const Tensor& tensor = tensors.at(name);
  ASSERT_EQ(matrix.rows, tensor.shape[0]);
  ASSERT_EQ(matrix.cols, tensor.shape[1]);
  ASSERT_EQ(matrix.dtype, tensor.dtype);
  for (int64_t i = 0; i < matrix.rows; ++i) {
    for (int64_t j = 0; j < matrix.cols; ++j) {
      float expected = stored_value(tensor, static_cast<size_t>(i * matrix.cols + j));
      if (tensor.dtype == DType::kF8E4M3) {
        const Tensor& scales = tensors.at(name + "_scale_inv");
        expected *= stored_value(scales, static_cast<size_t>(i / block_rows * scales.shape[1] + j / block_cols));
      }
      ASSERT_EQ(dequantized(matrix, i, j), expected) << i << ", " << j;
    }
  }
}

void expect_vector(const DevPtr<const float>& vector, const Tensors& tensors, const std::string& name) {
  const Tensor& tensor = tensors.at(name);
  ASSERT_TRUE(static_cast<bool>(vector)) << name;
  for (int64_t i = 0; i < tensor.shape[0]; ++i) {
    EXPECT_EQ(vector[i], stored_value(tensor, static_cast<size_t>(i))) << name << " " << i;
  }
}

// The names of the published checkpoints, written out, so that the walk is not compared with itself.
TEST(Weights, NamesAndShapesAreThePublishedOnes) {
  RecordingSource source;
  ASSERT_TRUE(collect_weights(config_of(v32_text()), source).ok());
  std::map<std::string, std::vector<int64_t>> expected = {
      {"model.embed_tokens.weight", {40, 48}},
      {"model.norm.weight", {48}},
      {"lm_head.weight", {40, 48}},
      {"model.layers.2.embed_tokens.weight", {40, 48}},
      {"model.layers.2.enorm.weight", {48}},
      {"model.layers.2.hnorm.weight", {48}},
      {"model.layers.2.eh_proj.weight", {48, 96}},
      {"model.layers.2.shared_head.norm.weight", {48}},
      {"model.layers.2.shared_head.head.weight", {40, 48}},
  };
  for (const std::string layer : {"model.layers.0.", "model.layers.1.", "model.layers.2."}) {
    expected[layer + "input_layernorm.weight"] = {48};
    expected[layer + "post_attention_layernorm.weight"] = {48};
    expected[layer + "self_attn.q_a_proj.weight"] = {36, 48};
    expected[layer + "self_attn.q_a_layernorm.weight"] = {36};
    expected[layer + "self_attn.q_b_proj.weight"] = {2 * (12 + 8), 36};
    expected[layer + "self_attn.kv_a_proj_with_mqa.weight"] = {20 + 8, 48};
    expected[layer + "self_attn.kv_a_layernorm.weight"] = {20};
    expected[layer + "self_attn.kv_b_proj.weight"] = {2 * (12 + 10), 20};
    expected[layer + "self_attn.o_proj.weight"] = {48, 2 * 10};
    expected[layer + "self_attn.indexer.wq_b.weight"] = {3 * 16, 36};
    expected[layer + "self_attn.indexer.wk.weight"] = {16, 48};
    expected[layer + "self_attn.indexer.k_norm.weight"] = {16};
    expected[layer + "self_attn.indexer.k_norm.bias"] = {16};
    expected[layer + "self_attn.indexer.weights_proj.weight"] = {3, 48};
    const auto add_mlp = [&](const std::string& mlp, int64_t size) {
      expected[layer + mlp + "gate_proj.weight"] = {size, 48};
      expected[layer + mlp + "up_proj.weight"] = {size, 48};
      expected[layer + mlp + "down_proj.weight"] = {48, size};
    };
    if (layer == "model.layers.0.") {
      add_mlp("mlp.", 56);
      continue;
    }
    expected[layer + "mlp.gate.weight"] = {4, 48};
    expected[layer + "mlp.gate.e_score_correction_bias"] = {4};
    add_mlp("mlp.shared_experts.", 48);
    for (int e = 0; e < 4; ++e) add_mlp(fmt::format("mlp.experts.{}.", e), 24);
  }
  EXPECT_EQ(source.shapes, expected);
}

TEST(Weights, BindsEveryTensorInPlace) {
  const std::filesystem::path dir = fresh_dir("bind");
  const ModelConfig config = config_of(v32_text());
  Tensors tensors = random_tensors(config, 1);
  std::mt19937 random(2);
  // Every dtype that a vector or a matrix may have.
  tensors["model.norm.weight"] = random_tensor(DType::kF32, {48}, random);
  tensors["model.layers.0.input_layernorm.weight"] = random_tensor(DType::kF16, {48}, random);
  tensors["lm_head.weight"] = random_tensor(DType::kF16, {40, 48}, random);
  tensors["model.layers.1.mlp.gate.weight"] = random_tensor(DType::kF32, {4, 48}, random);
  write_checkpoint(dir, tensors, 8000);
  const auto device = make_host_device(1);
  {
    const auto store = load_weights(dir, config, *device);
    ASSERT_TRUE(store.ok()) << store.error().message();
    const ModelWeights& w = (*store)->weights();
    expect_matrix(w.embed_tokens, tensors, "model.embed_tokens.weight");
    expect_matrix(w.lm_head, tensors, "lm_head.weight");
    expect_vector(w.final_norm, tensors, "model.norm.weight");
    ASSERT_EQ(w.layers.size(), 2u);
    ASSERT_EQ(w.mtp.size(), 1u);
    const LayerWeights* layers[] = {&w.layers[0], &w.layers[1], &w.mtp[0].layer};
    for (int i = 0; i < 3; ++i) {
      const LayerWeights& layer = *layers[i];
      const std::string prefix = fmt::format("model.layers.{}.", i);
      expect_vector(layer.input_layernorm, tensors, prefix + "input_layernorm.weight");
      expect_vector(layer.post_attention_layernorm, tensors, prefix + "post_attention_layernorm.weight");
      const AttentionWeights& a = layer.attention;
      EXPECT_TRUE(a.q_proj.empty());
      expect_matrix(a.q_a_proj, tensors, prefix + "self_attn.q_a_proj.weight");
      expect_vector(a.q_a_layernorm, tensors, prefix + "self_attn.q_a_layernorm.weight");
      expect_matrix(a.q_b_proj, tensors, prefix + "self_attn.q_b_proj.weight");
      expect_matrix(a.kv_a_proj, tensors, prefix + "self_attn.kv_a_proj_with_mqa.weight");
      expect_vector(a.kv_a_layernorm, tensors, prefix + "self_attn.kv_a_layernorm.weight");
      expect_matrix(a.kv_b_proj, tensors, prefix + "self_attn.kv_b_proj.weight");
      expect_matrix(a.o_proj, tensors, prefix + "self_attn.o_proj.weight");
      expect_matrix(a.indexer.wq_b, tensors, prefix + "self_attn.indexer.wq_b.weight");
      expect_matrix(a.indexer.wk, tensors, prefix + "self_attn.indexer.wk.weight");
      expect_vector(a.indexer.k_norm_weight, tensors, prefix + "self_attn.indexer.k_norm.weight");
      expect_vector(a.indexer.k_norm_bias, tensors, prefix + "self_attn.indexer.k_norm.bias");
      expect_matrix(a.indexer.weights_proj, tensors, prefix + "self_attn.indexer.weights_proj.weight");
      EXPECT_EQ(layer.is_moe, i > 0);
      const std::string mlp = prefix + (i == 0 ? "mlp." : "mlp.shared_experts.");
      expect_matrix(layer.dense.gate, tensors, mlp + "gate_proj.weight");
      expect_matrix(layer.dense.up, tensors, mlp + "up_proj.weight");
      expect_matrix(layer.dense.down, tensors, mlp + "down_proj.weight");
      if (i == 0) continue;
      expect_matrix(layer.router, tensors, prefix + "mlp.gate.weight");
      expect_vector(layer.router_bias, tensors, prefix + "mlp.gate.e_score_correction_bias");
      for (int e = 0; e < 4; ++e) {
        const std::string expert = fmt::format("{}mlp.experts.{}.", prefix, e);
        expect_matrix(layer.experts[e].gate, tensors, expert + "gate_proj.weight");
        expect_matrix(layer.experts[e].up, tensors, expert + "up_proj.weight");
        expect_matrix(layer.experts[e].down, tensors, expert + "down_proj.weight");
      }
      // What a recorded launch may point at.
      EXPECT_TRUE(device->ledger().contains(layer.experts.get(), 4 * sizeof(ExpertWeights)));
    }
    expect_matrix(w.mtp[0].embed_tokens, tensors, "model.layers.2.embed_tokens.weight");
    expect_matrix(w.mtp[0].eh_proj, tensors, "model.layers.2.eh_proj.weight");
    expect_vector(w.mtp[0].enorm, tensors, "model.layers.2.enorm.weight");
    expect_vector(w.mtp[0].hnorm, tensors, "model.layers.2.hnorm.weight");
    expect_vector(w.mtp[0].head_norm, tensors, "model.layers.2.shared_head.norm.weight");
    expect_matrix(w.mtp[0].head, tensors, "model.layers.2.shared_head.head.weight");

    const QuantizedMatrix& o = w.layers[1].attention.o_proj;
    EXPECT_TRUE(device->ledger().contains(o.data.get(), static_cast<size_t>(matrix_bytes(o))));
    EXPECT_TRUE(device->ledger().contains(w.final_norm.get(), 48 * sizeof(float)));
    int64_t parameters = 0;
    for (const auto& [name, tensor] : tensors) {
      int64_t count = 1;
      for (int64_t extent : tensor.shape) count *= extent;
      parameters += count;
    }
    EXPECT_EQ(w.parameter_count(), parameters);
  }
  EXPECT_EQ(device->ledger().total_bytes(), 0u);  // nothing stays registered
}

TEST(Weights, Fp8BlocksWithPartialEdges) {
  const ModelConfig config = config_of(v32_text(kFp8));
  for (const DType scale_dtype : {DType::kF32, DType::kF8E8M0}) {
    const std::filesystem::path dir = fresh_dir("fp8");
    const Tensors tensors = random_tensors(config, 5, true, scale_dtype);
    write_checkpoint(dir, tensors);
    const auto device = make_host_device(1);
    const auto store = load_weights(dir, config, *device);
    ASSERT_TRUE(store.ok()) << store.error().message();
    const ModelWeights& w = (*store)->weights();
    const auto check = [&](const QuantizedMatrix& matrix, const std::string& name) {
      expect_matrix(matrix, tensors, name, 16, 32);
    };
    EXPECT_EQ(w.layers[0].attention.kv_a_proj.dtype, DType::kF8E4M3);
    check(w.layers[0].attention.kv_a_proj, "model.layers.0.self_attn.kv_a_proj_with_mqa.weight");
    check(w.layers[1].attention.q_b_proj, "model.layers.1.self_attn.q_b_proj.weight");
    check(w.layers[1].experts[3].down, "model.layers.1.mlp.experts.3.down_proj.weight");
    check(w.mtp[0].layer.attention.indexer.wq_b, "model.layers.2.self_attn.indexer.wq_b.weight");
    EXPECT_EQ(w.embed_tokens.dtype, DType::kBF16);
    EXPECT_EQ(w.layers[1].router.dtype, DType::kBF16);
    EXPECT_EQ(w.layers[0].attention.indexer.weights_proj.dtype, DType::kBF16);
    EXPECT_EQ(w.mtp[0].eh_proj.dtype, DType::kBF16);
    const int64_t scale_bytes = scale_dtype == DType::kF32 ? 4 : 1;
    // [28, 48] in blocks of 16 x 32: 2 x 2 scales.
    EXPECT_EQ(matrix_bytes(w.layers[0].attention.kv_a_proj), 28 * 48 + 4 * scale_bytes);
  }
}

TEST(Weights, EveryMismatchIsOneSentence) {
  const std::filesystem::path dir = fresh_dir("mismatch");
  const ModelConfig bf16_config = config_of(v32_text());
  const ModelConfig fp8_config = config_of(v32_text(kFp8));
  const Tensors bf16 = random_tensors(bf16_config, 1);
  const Tensors fp8 = random_tensors(fp8_config, 1, true);
  std::mt19937 random(9);
  const std::string kv_a = "model.layers.0.self_attn.kv_a_proj_with_mqa.weight";
  const struct {
    bool quantized;
    std::function<void(Tensors&)> damage;
    const char* fragment;
  } cases[] = {
      {false, [](Tensors& t) { t.erase("model.layers.1.self_attn.o_proj.weight"); },
       "holds no tensor 'model.layers.1.self_attn.o_proj.weight'"},
      {false, [](Tensors& t) { t.erase("model.layers.1.mlp.experts.2.up_proj.weight"); },
       "no tensor 'model.layers.1.mlp.experts.2.up_proj.weight'"},
      {false, [](Tensors& t) { t.erase("lm_head.weight"); }, "no tensor 'lm_head.weight'"},
      {false, [](Tensors& t) { t.erase("model.layers.2.hnorm.weight"); }, "no tensor 'model.layers.2.hnorm.weight'"},
      {false, [&](Tensors& t) { t["model.norm.weight"] = random_tensor(DType::kBF16, {47}, random); },
       "'model.norm.weight' has shape [47], but config.json calls for [48]"},
      {false, [&](Tensors& t) { t[kv_a] = random_tensor(DType::kBF16, {48, 28}, random); },
       "has shape [48, 28], but config.json calls for [28, 48]"},
      {false, [&](Tensors& t) { t[kv_a] = random_tensor(DType::kBF16, {28 * 48}, random); }, "has shape [1344]"},
      {false, [&](Tensors& t) { t[kv_a] = random_tensor(DType::kI8, {28, 48}, random); },
       "has dtype I8; weights may be"},
      {false, [&](Tensors& t) { t[kv_a] = random_tensor(DType::kF8E4M3, {28, 48}, random); },
       "is F8_E4M3, but config.json has no quantization_config"},
      {false, [&](Tensors& t) { t["model.norm.weight"] = random_tensor(DType::kF8E4M3, {48}, random); },
       "has dtype F8_E4M3; a vector may be"},
      {false, [&](Tensors& t) { t[kv_a + "_scale_inv"] = random_tensor(DType::kF32, {2, 2}, random); },
       "is BF16, yet there is a"},
      {true,
       [&](Tensors& t) {
         t["model.embed_tokens.weight"] = random_tensor(DType::kF8E4M3, {40, 48}, random);
         t["model.embed_tokens.weight_scale_inv"] = random_tensor(DType::kF32, {3, 2}, random);
       },
       "'model.embed_tokens.weight' is F8_E4M3; an embedding table may be"},
      {true,
       [&](Tensors& t) {
         t["model.layers.2.embed_tokens.weight"] = random_tensor(DType::kF8E4M3, {40, 48}, random);
         t["model.layers.2.embed_tokens.weight_scale_inv"] = random_tensor(DType::kF32, {3, 2}, random);
       },
       "'model.layers.2.embed_tokens.weight' is F8_E4M3; an embedding table may be"},
      {true, [&](Tensors& t) { t.erase(kv_a + "_scale_inv"); }, "kv_a_proj_with_mqa.weight_scale_inv', which"},
      {true, [&](Tensors& t) { t[kv_a + "_scale_inv"] = random_tensor(DType::kF32, {1, 2}, random); },
       "_scale_inv' has shape [1, 2], but config.json calls for [2, 2]"},
      {true, [&](Tensors& t) { t[kv_a + "_scale_inv"] = random_tensor(DType::kBF16, {2, 2}, random); },
       "_scale_inv' has dtype BF16; block scales may be"},
      {true,
       [&](Tensors& t) {
         t["model.layers.1.mlp.experts.3.up_proj.weight"] = random_tensor(DType::kBF16, {24, 48}, random);
         t.erase("model.layers.1.mlp.experts.3.up_proj.weight_scale_inv");
       },
       "the experts of a layer must be stored alike"},
  };
  for (const auto& c : cases) {
    Tensors tensors = c.quantized ? fp8 : bf16;
    c.damage(tensors);
    write_checkpoint(dir, tensors);
    const std::string error = load_error(dir, c.quantized ? fp8_config : bf16_config);
    EXPECT_THAT(error, HasSubstr(c.fragment));
    EXPECT_THAT(error, HasSubstr(dir.string()));
    EXPECT_EQ(error.find('\n'), std::string::npos);
  }
}

TEST(Weights, MissingAndTruncatedShards) {
  const std::filesystem::path dir = fresh_dir("shards");
  const ModelConfig config = config_of(v32_text());
  write_checkpoint(dir, random_tensors(config, 1), 20000);
  EXPECT_EQ(load_error(dir, config), "(loaded)");
  std::vector<std::filesystem::path> shards;
  for (const auto& entry : std::filesystem::directory_iterator(dir)) {
    if (entry.path().extension() == ".safetensors") shards.push_back(entry.path());
  }
  ASSERT_GT(shards.size(), 2u);
  std::filesystem::resize_file(shards[1], std::filesystem::file_size(shards[1]) - 1);
  EXPECT_THAT(load_error(dir, config), HasSubstr("it is truncated"));
  EXPECT_THAT(load_error(dir, config), HasSubstr(shards[1].string()));
  std::filesystem::remove(shards[1]);
  EXPECT_THAT(load_error(dir, config), HasSubstr(shards[1].string() + " is missing"));
}

TEST(Weights, UnknownDtypeMattersOnlyWhereItIsUsed) {
  const std::filesystem::path dir = fresh_dir("unknown_dtype");
  const ModelConfig config = config_of(v32_text());
  Tensors tensors = random_tensors(config, 1);
  std::mt19937 random(1);
  tensors["model.layers.0.extra"] = random_tensor(DType::kU8, {4}, random);
  write_checkpoint(dir, tensors);
  const auto rename_dtype = [&](std::string_view near) {
    std::fstream file(dir / "model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
    std::string bytes((std::istreambuf_iterator<char>(file)), {});
    const size_t at = bytes.find("\"dtype\":\"", bytes.find(fmt::format("\"{}\":", near)));
    file.clear();
    file.seekp(static_cast<std::streamoff>(at + 9));
    file << "Q";
  };
  rename_dtype("model.layers.0.extra");
  EXPECT_EQ(load_error(dir, config), "(loaded)");
  rename_dtype("model.norm.weight");
  EXPECT_THAT(load_error(dir, config), HasSubstr("'model.norm.weight' has dtype QF16, which Lantern does not know"));
}

TEST(Weights, MtpLayerIsOptionalButNotHalf) {
  const std::filesystem::path dir = fresh_dir("mtp");
  const ModelConfig config = config_of(v32_text());
  Tensors tensors = random_tensors(config, 1);
  tensors.erase("model.layers.2.embed_tokens.weight");  // duplicates of the model's own may be left out
  tensors.erase("model.layers.2.shared_head.head.weight");
  write_checkpoint(dir, tensors);
  const auto device = make_host_device(1);
  {
    const auto store = load_weights(dir, config, *device);
    ASSERT_TRUE(store.ok()) << store.error().message();
    const ModelWeights& w = (*store)->weights();
    ASSERT_EQ(w.mtp.size(), 1u);
    EXPECT_EQ(w.mtp[0].embed_tokens.data.get(), w.embed_tokens.data.get());
    EXPECT_EQ(w.mtp[0].head.data.get(), w.lm_head.data.get());
  }
  std::erase_if(tensors, [](const auto& item) { return item.first.starts_with("model.layers.2."); });
  write_checkpoint(dir, tensors);
  const auto store = load_weights(dir, config, *device);
  ASSERT_TRUE(store.ok()) << store.error().message();
  EXPECT_TRUE((*store)->weights().mtp.empty());
}

TEST(Weights, SharedIndexersTiedHeadAndUncompressedQueries) {
  ModelConfig config = config_of(v32_text());
  config.selection[1] = {SelectionKind::kReuse, 0};
  config.tie_word_embeddings = true;
  const std::filesystem::path dir = fresh_dir("variants");
  Tensors tensors = random_tensors(config, 1);
  EXPECT_FALSE(tensors.contains("lm_head.weight"));
  EXPECT_TRUE(tensors.contains("model.layers.0.self_attn.indexer.wk.weight"));
  EXPECT_FALSE(tensors.contains("model.layers.1.self_attn.indexer.wk.weight"));
  write_checkpoint(dir, tensors);
  const auto device = make_host_device(1);
  const auto store = load_weights(dir, config, *device);
  ASSERT_TRUE(store.ok()) << store.error().message();
  EXPECT_TRUE((*store)->weights().layers[1].attention.indexer.wq_b.empty());
  EXPECT_EQ((*store)->weights().lm_head.data.get(), (*store)->weights().embed_tokens.data.get());

  // V2-Lite: q_proj, no router bias.
  ModelConfig v2 = config_of(builtin_config_json("deepseek-v2-lite").value());
  RecordingSource source;
  ASSERT_TRUE(collect_weights(v2, source).ok());
  EXPECT_EQ(source.shapes.at("model.layers.5.self_attn.q_proj.weight"), (std::vector<int64_t>{16 * 192, 2048}));
  EXPECT_FALSE(source.shapes.contains("model.layers.5.self_attn.q_a_proj.weight"));
  EXPECT_FALSE(source.shapes.contains("model.layers.5.mlp.gate.e_score_correction_bias"));
  EXPECT_EQ(source.shapes.at("model.layers.5.mlp.shared_experts.up_proj.weight"), (std::vector<int64_t>{2816, 2048}));
}

// A device that cannot read the files gets copies, of which each begins where kernels like it.
TEST(Weights, CopiesAreAligned) {
  const ModelConfig config = config_of(v32_text(kFp8));
  const std::filesystem::path dir = fresh_dir("copies");
  const Tensors tensors = random_tensors(config, 6, true);
  write_checkpoint(dir, tensors, 8000);
  SmallDevice device(size_t{1} << 30, DeviceKind::kCuda);
  {
    const auto store = load_weights(dir, config, device);
    ASSERT_TRUE(store.ok()) << store.error().message();
    const ModelWeights& w = (*store)->weights();
    int count = 0;
    for_each_address(w, [&](const void* address) {
      ++count;
      EXPECT_EQ(reinterpret_cast<uintptr_t>(address) % 256, 0u);
      EXPECT_TRUE(device.ledger().contains(address, 1));
    });
    EXPECT_GT(count, 100);
    expect_matrix(w.lm_head, tensors, "lm_head.weight");
    expect_vector(w.final_norm, tensors, "model.norm.weight");
    expect_matrix(w.layers[0].attention.kv_a_proj, tensors, "model.layers.0.self_attn.kv_a_proj_with_mqa.weight", 16,
                  32);
    for (int e = 0; e < 4; ++e) {
      expect_matrix(w.mtp[0].layer.experts[e].down, tensors,
                    fmt::format("model.layers.2.mlp.experts.{}.down_proj.weight", e), 16, 32);
    }
  }
  EXPECT_EQ(device.ledger().total_bytes(), 0u);
}

TEST(Weights, TooLittleMemoryIsSaidWithNumbers) {
  const std::filesystem::path dir = fresh_dir("memory");
  const ModelConfig config = config_of(v32_text());
  write_checkpoint(dir, random_tensors(config, 1));
  SmallDevice device(1000);
  const auto store = load_weights(dir, config, device);
  ASSERT_FALSE(store.ok());
  EXPECT_EQ(store.error().code(), ErrorCode::kOutOfMemory);
  EXPECT_THAT(store.error().message(), HasSubstr("GiB, but only 0.00 GiB of memory are free on a small device"));
  const auto dummy = make_dummy_weights(config, DummyFormat::kBf16, 1, device);
  ASSERT_FALSE(dummy.ok());
  EXPECT_EQ(dummy.error().code(), ErrorCode::kOutOfMemory);
}

// Caches and activations that fit one by one but not together are refused before the first of them is made.
TEST(ModelMemory, IsRefusedAsAWhole) {
  const ModelConfig config = config_of(v32_text());
  const auto host = make_host_device(1);
  const std::shared_ptr<const WeightStore> weights = make_dummy_weights(config, DummyFormat::kBf16, 1, *host).value();
  ModelOptions options;
  options.layouts = {LatentLayout::kF32, IndexKeyLayout::kF32};
  options.limits.max_tokens = 8;
  options.limits.max_requests = 1;
  options.limits.max_model_len = 64;
  options.limits.max_blocks_per_request = 1;
  options.limits.num_blocks = 2;
  const ModelMemory needs = model_memory(config, options, 1);
  EXPECT_EQ(needs.caches, 2 * 64 * 3 * (4 * 28 + 4 * 16)) << "two blocks, of latents and index keys of three layers";
  const auto most = static_cast<size_t>(needs.caches + needs.activations);
  SmallDevice small(most - 1);
  const auto refused = Model::create(small, config, weights, options);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), ErrorCode::kOutOfMemory);
  EXPECT_THAT(refused.error().message(), HasSubstr("GiB for a step's activations), but only 0.00 GiB are free; lower"));
  EXPECT_EQ(small.ledger().total_bytes(), 0u);
  SmallDevice enough(most);
  const auto made = Model::create(enough, config, weights, options);
  ASSERT_TRUE(made.ok()) << made.error().message();
  EXPECT_GE(enough.ledger().total_bytes(), most) << "what it says that it needs it takes";
}

int64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t size = 0;
  int64_t resident = 0;
  statm >> size >> resident;
  return resident * 4096;
}

// A sparse checkpoint of 3.5 GB: binding it must touch headers and vectors alone.
TEST(Weights, LoadingDoesNotReadTheMatrices) {
  ModelConfig config = config_of(builtin_config_json("moonlight").value());
  config.num_layers = 3;
  config.layer_is_moe.resize(3);
  config.selection.resize(3);
  const std::filesystem::path dir = fresh_dir("sparse");
  RecordingSource source;
  ASSERT_TRUE(collect_weights(config, source).ok());
  SafetensorsWriter writer(dir, {.max_shard_bytes = uint64_t{1} << 40});
  for (const auto& [name, shape] : source.shapes) ASSERT_TRUE(writer.declare(name, DType::kBF16, shape).ok());
  ASSERT_TRUE(writer.begin().ok());  // the file has its size now, and holds nothing
  ASSERT_GT(std::filesystem::file_size(dir / "model.safetensors"), uint64_t{3} << 30);
  const auto device = make_host_device(1);
  const int64_t before = resident_bytes();
  const auto start = std::chrono::steady_clock::now();
  const auto store = load_weights(dir, config, *device);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  ASSERT_TRUE(store.ok()) << store.error().message();
  EXPECT_LT(seconds.count(), 1.0);
  EXPECT_LT(resident_bytes() - before, 64 << 20);
  std::filesystem::remove_all(dir);
}

double rms(const QuantizedMatrix& matrix) {
  double sum = 0;
  for (int64_t i = 0; i < matrix.rows; ++i) {
    for (int64_t j = 0; j < matrix.cols; ++j) sum += std::pow(dequantized(matrix, i, j), 2);
  }
  return std::sqrt(sum / static_cast<double>(matrix.rows * matrix.cols));
}

TEST(DummyWeights, AreScaledFiniteAndReproducible) {
  const ModelConfig config = config_of(v32_text());
  for (const DummyFormat format : {DummyFormat::kBf16, DummyFormat::kFp8Block}) {
    const auto one = make_host_device(1);
    const auto two = make_host_device(2);
    const auto a = make_dummy_weights(config, format, 7, *one);
    const auto b = make_dummy_weights(config, format, 7, *two);
    const auto c = make_dummy_weights(config, format, 8, *one);
    ASSERT_TRUE(a.ok() && b.ok() && c.ok());
    const ModelWeights& w = (*a)->weights();
    const bool fp8 = format == DummyFormat::kFp8Block;
    const QuantizedMatrix& up = w.layers[1].experts[2].up;
    EXPECT_EQ(up.dtype, fp8 ? DType::kF8E4M3 : DType::kBF16);
    EXPECT_EQ(w.layers[1].router.dtype, DType::kBF16);
    // Power-of-two scales reach the wanted size within a factor of sqrt 2; the sample adds some.
    const double wanted = 1 / std::sqrt(48.0);
    EXPECT_NEAR(std::log2(rms(up) / wanted), 0, fp8 ? 0.6 : 0.15);
    EXPECT_NEAR(std::log2(rms(w.embed_tokens) / wanted), 0, 0.15);
    const QuantizedMatrix& same = (*b)->weights().layers[1].experts[2].up;
    const QuantizedMatrix& other = (*c)->weights().layers[1].experts[2].up;
    int equal = 0;
    for (int64_t i = 0; i < up.rows; ++i) {
      for (int64_t j = 0; j < up.cols; ++j) {
        ASSERT_TRUE(std::isfinite(dequantized(up, i, j)));
        ASSERT_EQ(dequantized(up, i, j), dequantized(same, i, j));
        equal += dequantized(up, i, j) == dequantized(other, i, j) ? 1 : 0;
      }
    }
    EXPECT_LT(equal, up.rows * up.cols / 20);
    EXPECT_EQ(w.final_norm[47], 1.0f);
    EXPECT_EQ(w.layers[1].router_bias[3], 0.0f);
    EXPECT_EQ(w.layers[0].attention.indexer.k_norm_bias[0], 0.0f);
    ASSERT_EQ(w.mtp.size(), 1u);
    EXPECT_EQ(w.mtp[0].head.data.get(), w.lm_head.data.get());
    EXPECT_TRUE(one->ledger().contains(up.data.get(), static_cast<size_t>(up.rows * up.row_bytes)));
    for_each_address(w, [](const void* address) { EXPECT_EQ(reinterpret_cast<uintptr_t>(address) % 256, 0u); });
  }
}

// Bytes of one decode step, added up by hand for the two-layer model in bf16 (vectors are floats).
TEST(DummyWeights, ActiveBytesCountWhatOneTokenReads) {
  const ModelConfig config = config_of(v32_text());
  const auto device = make_host_device(1);
  const auto store = make_dummy_weights(config, DummyFormat::kBf16, 7, *device);
  ASSERT_TRUE(store.ok());
  const int64_t attention = 2 * (36 * 48 + 40 * 36 + 28 * 48 + 44 * 20 + 48 * 20) + 4 * (36 + 20);
  const int64_t indexer = 2 * (48 * 36 + 16 * 48 + 3 * 48) + 4 * (16 + 16);
  const int64_t norms = 4 * (48 + 48);
  const int64_t dense = 2 * 3 * 56 * 48;
  const int64_t router = 2 * 4 * 48 + 4 * 4;
  const int64_t shared = 2 * 3 * 48 * 48;
  const int64_t expert = 2 * 3 * 24 * 48;
  const int64_t head = 2 * 40 * 48 + 4 * 48;
  EXPECT_EQ((*store)->weights().active_bytes_per_token(config),
            2 * (attention + indexer + norms) + dense + router + shared + 2 * expert + head);
  const int64_t mtp = attention + indexer + norms + router + shared + 4 * expert + 2 * 48 * 96 + 4 * 3 * 48;
  EXPECT_EQ((*store)->weights().total_bytes(),
            2 * (attention + indexer + norms) + dense + router + shared + 4 * expert + head + 2 * 40 * 48 + mtp);
}

}  // namespace
}  // namespace lantern
