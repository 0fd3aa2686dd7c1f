#include "model/quantize.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>

#include "base/e4m3_encode.h"
#include "model/inspect.h"
#include "model/quantize_block.h"
#include "model/weight_test_checkpoint.h"

namespace lantern {
namespace {

using namespace testing_checkpoint;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

TEST(QuantizeBlock, EncoderEqualsTheExactConversion) {
  // Every bf16 value, and floats around every rounding boundary of e4m3.
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float x = to_float(bf16_t{static_cast<uint16_t>(bits)});
    if (!std::isfinite(x)) continue;
    ASSERT_EQ(encode_e4m3(x).bits, to_e4m3_saturate(x).bits) << x;
  }
  for (int code = 0; code < 0x7e; ++code) {
    const float low = to_float(e4m3_t{static_cast<uint8_t>(code)});
    const float high = to_float(e4m3_t{static_cast<uint8_t>(code + 1)});
    const float middle = (low + high) / 2;
    for (float x : {low, middle, high, std::nextafter(middle, 0.0f), std::nextafter(middle, 1e9f)}) {
      ASSERT_EQ(encode_e4m3(x).bits, to_e4m3_saturate(x).bits) << x;
      ASSERT_EQ(encode_e4m3(-x).bits, to_e4m3_saturate(-x).bits) << x;
    }
  }
  EXPECT_EQ(encode_e4m3(std::numeric_limits<float>::quiet_NaN()).bits, 0x7f);
}

TEST(QuantizeBlock, ScalesArePowersOfTwoThatJustFit) {
  EXPECT_EQ(fp8_block_scale(448.0f), 1.0f);
  EXPECT_EQ(fp8_block_scale(std::nextafter(448.0f, 1e9f)), 2.0f);
  EXPECT_EQ(fp8_block_scale(224.0f), 0.5f);
  EXPECT_EQ(fp8_block_scale(1.0f), 0x1p-8f);  // 1 / 448 lies between 2^-9 and 2^-8
  EXPECT_EQ(fp8_block_scale(0.0f), 1.0f);
  EXPECT_EQ(fp8_block_scale(1e-45f), 0x1p-126f);
  EXPECT_TRUE(std::isfinite(1.0f / fp8_block_scale(std::numeric_limits<float>::max())));
}

// 130 x 140 in bf16 from an integer formula, blocks of different sizes of values, one of zeros. Codes and scales were
// made by PyTorch 2.11: scale = exp2(ceil(log2(amax / 448))), (block / scale).to(torch.float8_e4m3fn).
TEST(QuantizeBlock, EqualsPytorch) {
  constexpr int64_t kRows = 130;
  constexpr int64_t kCols = 140;
  std::vector<bf16_t> values(kRows * kCols);
  for (int64_t i = 0; i < kRows * kCols; ++i) {
    float value = static_cast<float>((i * 2654435761 + 12345) % 2001 - 1000) / 128.0f;
    const int64_t row = i / kCols;
    const int64_t col = i % kCols;
    if (row < 128 && col >= 128) value *= 0x1p-20f;
    if (row >= 128 && col < 128) value = 0;
    values[static_cast<size_t>(i)] = to_bf16(value);
  }
  std::vector<std::byte> codes(kRows * kCols);
  float scales[4];
  const auto* source = reinterpret_cast<const std::byte*>(values.data());
  EXPECT_EQ(quantize_strip(source, DType::kBF16, 128, kCols, codes.data(), scales), -1);
  EXPECT_EQ(quantize_strip(source + 128 * kCols * 2, DType::kBF16, 2, kCols, codes.data() + 128 * kCols, scales + 2),
            -1);
  EXPECT_THAT(scales, ElementsAre(0x1p-5f, 0x1p-25f, 1.0f, 0x1p-5f));
  const auto at = [&](int64_t row, int64_t col, size_t count) {
    std::vector<int> bytes;
    bytes.reserve(count);
    for (size_t i = 0; i < count; ++i) {
      bytes.push_back(std::to_integer<int>(codes[static_cast<size_t>(row * kCols + col) + i]));
    }
    return bytes;
  };
  EXPECT_THAT(at(0, 0, 12), ElementsAre(0xf2, 0x70, 0xe8, 0x77, 0x62, 0xf2, 0x71, 0xe6, 0x78, 0x64, 0xf1, 0x72));
  EXPECT_THAT(at(5, 128, 12), ElementsAre(0x67, 0xf1, 0x72, 0xe1, 0xf7, 0x68, 0xf0, 0x73, 0xde, 0xf6, 0x69, 0xef));
  EXPECT_THAT(at(129, 128, 12), ElementsAre(0xf3, 0x6f, 0xea, 0x76, 0x5e, 0xf3, 0x70, 0xe8, 0x77, 0x61, 0xf2, 0x71));
  uint64_t hash = 0xCBF29CE484222325u;  // FNV-1a of all codes
  for (std::byte code : codes) hash = (hash ^ std::to_integer<uint64_t>(code)) * 0x100000001B3u;
  EXPECT_EQ(hash, 0x37e8f4298c2a2f49u);
}

TEST(QuantizeBlock, NamesTheFirstValueThatIsNotFinite) {
  std::vector<float> values(3 * 200, 1.0f);
  std::vector<std::byte> codes(values.size());
  float scales[2];
  const auto* source = reinterpret_cast<const std::byte*>(values.data());
  EXPECT_EQ(quantize_strip(source, DType::kF32, 3, 200, codes.data(), scales), -1);
  values[2 * 200 + 150] = -std::numeric_limits<float>::infinity();
  EXPECT_EQ(quantize_strip(source, DType::kF32, 3, 200, codes.data(), scales), 2 * 200 + 150);
  values[1 * 200 + 7] = std::nanf("");
  EXPECT_EQ(quantize_strip(source, DType::kF32, 3, 200, codes.data(), scales), 1 * 200 + 7);
}

// A V3.2 model with partial blocks in every direction.
constexpr const char* kConfig = R"({"architectures": ["DeepseekV32ForCausalLM"], "model_type": "deepseek_v32",
  "vocab_size": 40, "hidden_size": 192, "intermediate_size": 136, "moe_intermediate_size": 72, "num_hidden_layers": 2,
  "num_attention_heads": 2, "q_lora_rank": 144, "kv_lora_rank": 128, "qk_nope_head_dim": 24, "qk_rope_head_dim": 16,
  "v_head_dim": 40, "n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2, "n_group": 2,
  "topk_group": 1, "first_k_dense_replace": 1, "rope_theta": 10000, "rms_norm_eps": 1e-06,
  "max_position_embeddings": 64, "index_n_heads": 3, "index_head_dim": 32, "index_topk": 4,
  "num_nextn_predict_layers": 1})";

class QuantizeTest : public ::testing::Test {
 protected:
  QuantizeTest() : source_(fresh_dir("quantize_source")), target_(fresh_dir("quantize_target") / "fp8") {
    std::ofstream(source_ / "config.json") << kConfig;
    std::ofstream(source_ / "tokenizer.json") << "{\"x\": 1}";
    std::ofstream(source_ / "pytorch_model.bin") << "not copied";
    config_ = *parse_model_config(kConfig, {});
    tensors_ = random_tensors(config_, 4);
    write_checkpoint(source_, tensors_, 300000);
  }
  std::string error() {
    const Result<QuantizeSummary> summary = quantize_checkpoint(source_, target_);
    return summary.ok() ? "(quantised)" : summary.error().message();
  }
  // Nothing half-made stays behind.
  void expect_nothing_left() { EXPECT_TRUE(fs::is_empty(target_.parent_path())); }

  fs::path source_, target_;
  ModelConfig config_;
  Tensors tensors_;
};

TEST_F(QuantizeTest, MakesACheckpointThatLoads) {
  target_ = target_.parent_path() / "folders" / "above" / "fp8";  // that are made
  int64_t last = 0;
  int64_t total = 0;
  const Result<QuantizeSummary> summary =
      quantize_checkpoint(source_, target_, {.threads = 2, .max_shard_bytes = 200000}, [&](int64_t done, int64_t all) {
        EXPECT_GE(done, last);
        last = done;
        total = all;
        return true;
      });
  ASSERT_TRUE(summary.ok()) << summary.error().message();
  EXPECT_EQ(last, total);
  EXPECT_EQ(summary->bytes_before, total);
  EXPECT_EQ(summary->tensors, std::ssize(tensors_));
  EXPECT_LT(summary->bytes_after, summary->bytes_before * 6 / 10);
  EXPECT_TRUE(fs::exists(target_ / "tokenizer.json"));
  EXPECT_FALSE(fs::exists(target_ / "pytorch_model.bin"));
  EXPECT_EQ(std::distance(fs::directory_iterator(target_.parent_path()), {}), 1);

  const Result<ModelConfig> config = load_model_config(target_, ConfigOptions{.strict = true});
  ASSERT_TRUE(config.ok()) << config.error().message();
  EXPECT_EQ(config->quantization.block_rows, 128);
  EXPECT_TRUE(config->quantization.ue8m0_scales);
  EXPECT_EQ(config->rms_norm_eps, 1e-6f);
  const auto device = make_host_device(1);
  const auto store = load_weights(target_, *config, *device);
  ASSERT_TRUE(store.ok()) << store.error().message();

  const Result<Checkpoint> checkpoint = Checkpoint::open(target_);
  ASSERT_TRUE(checkpoint.ok());
  EXPECT_GT(checkpoint->shards().size(), 1u);
  // What the public FP8 releases leave alone.
  const auto kept = [](std::string_view name) {
    for (std::string_view piece :
         {"embed_tokens", "lm_head", "norm", "mlp.gate.", "weights_proj", "eh_proj", "shared_head"}) {
      if (name.find(piece) != std::string_view::npos) return true;
    }
    return false;
  };
  int64_t quantized = 0;
  for (const auto& [name, before] : tensors_) {
    const Checkpoint::Tensor* after = checkpoint->find(name);
    ASSERT_NE(after, nullptr) << name;
    ASSERT_EQ(after->info->shape, before.shape);
    if (kept(name)) {
      EXPECT_EQ(after->info->dtype, before.dtype) << name;
      EXPECT_TRUE(std::ranges::equal(after->data(), before.data)) << name;
      continue;
    }
    ++quantized;
    ASSERT_EQ(after->info->dtype, DType::kF8E4M3) << name;
    const Checkpoint::Tensor* scales = checkpoint->find(name + "_scale_inv");
    ASSERT_NE(scales, nullptr) << name;
    ASSERT_EQ(scales->info->dtype, DType::kF32);
    const int64_t rows = before.shape[0];
    const int64_t cols = before.shape[1];
    ASSERT_THAT(scales->info->shape, ElementsAre((rows + 127) / 128, (cols + 127) / 128));
    std::vector<float> amax(static_cast<size_t>(scales->info->count()));
    for (int64_t i = 0; i < rows * cols; ++i) {
      const auto block = static_cast<size_t>(i / cols / 128 * scales->info->shape[1] + i % cols / 128);
      bf16_t stored;
      std::memcpy(&stored, before.data.data() + 2 * i, 2);
      const float value = to_float(stored);
      amax[block] = std::max(amax[block], std::fabs(value));
      float scale = 0;
      std::memcpy(&scale, scales->data().data() + 4 * block, 4);
      const float back = to_float(e4m3_t{std::to_integer<uint8_t>(after->data()[static_cast<size_t>(i)])}) * scale;
      // Three mantissa bits: half a unit in the last place is 2^-4 of the value; below 2^-6 the step is 2^-9.
      ASSERT_LE(std::fabs(back - value), std::max(std::fabs(value) * 0x1p-4f, scale * 0x1p-10f)) << name << " " << i;
    }
    for (size_t b = 0; b < amax.size(); ++b) {
      float scale = 0;
      std::memcpy(&scale, scales->data().data() + 4 * b, 4);
      EXPECT_EQ(scale, std::exp2(std::ceil(std::log2(amax[b] / 448.0f)))) << name;
    }
  }
  EXPECT_EQ(summary->quantized_tensors, quantized);

  std::ifstream text(target_ / "config.json");
  const std::string json((std::istreambuf_iterator<char>(text)), {});
  EXPECT_THAT(json, HasSubstr("{\n  \"architectures\": [\n    \"DeepseekV32ForCausalLM\"\n  ],\n"));
  EXPECT_THAT(json, HasSubstr("\"scale_fmt\": \"ue8m0\"\n  }\n}\n"));
}

TEST_F(QuantizeTest, RefusesToOverwriteOrQuantiseTwice) {
  ASSERT_EQ(error(), "(quantised)");
  EXPECT_THAT(error(), HasSubstr("fp8 exists already"));
  const fs::path again = target_.parent_path() / "again";
  EXPECT_THAT(quantize_checkpoint(target_, again).error().message(), HasSubstr("is quantised already (fp8)"));
  EXPECT_FALSE(fs::exists(again));
}

TEST_F(QuantizeTest, FailuresLeaveNothingBehind) {
  Tensors bad = tensors_;
  const bf16_t nan{0x7fc0};
  std::memcpy(bad["model.layers.1.mlp.experts.2.up_proj.weight"].data.data() + 2 * (70 * 192 + 5), &nan, 2);
  write_checkpoint(source_, bad);
  EXPECT_THAT(error(), HasSubstr("'model.layers.1.mlp.experts.2.up_proj.weight' holds a value that is not finite at "
                                 "[70, 5]"));
  expect_nothing_left();
  std::mt19937 random(1);
  bad = tensors_;
  bad["model.layers.0.mlp.up_proj.weight"] = random_tensor(DType::kF8E4M3, {136, 192}, random);
  write_checkpoint(source_, bad);
  EXPECT_THAT(error(), HasSubstr("is F8_E4M3; only BF16, F16 and F32 weights can be quantised"));
  expect_nothing_left();
  fs::remove(source_ / "model.safetensors");
  EXPECT_THAT(error(), HasSubstr("holds neither model.safetensors"));
  fs::remove(source_ / "config.json");
  EXPECT_THAT(error(), HasSubstr("config.json cannot be opened"));
  expect_nothing_left();
}

TEST_F(QuantizeTest, StopsWhenItIsAsked) {
  int calls = 0;
  const Result<QuantizeSummary> stopped =
      quantize_checkpoint(source_, target_, {}, [&](int64_t, int64_t) { return ++calls < 3; });
  ASSERT_FALSE(stopped.ok());
  EXPECT_EQ(calls, 3);
  EXPECT_THAT(stopped.error().message(), HasSubstr("stopped before " + target_.string()));
  expect_nothing_left();
}

// What loading refuses is not quantised and not summed up either, by the same sentence.
TEST_F(QuantizeTest, WeightsThatDoNotFitTheConfigAreRefusedAlike) {
  const std::string name = "model.layers.1.self_attn.indexer.wk.weight";
  std::mt19937 random(1);
  for (const bool missing : {false, true}) {
    Tensors bad = tensors_;
    missing ? void(bad.erase(name)) : void(bad[name] = random_tensor(DType::kBF16, {32, 160}, random));
    write_checkpoint(source_, bad);
    const auto device = make_host_device(1);
    const std::string sentence = load_weights(source_, config_, *device).error().message();
    EXPECT_THAT(sentence, HasSubstr(missing ? "holds no tensor '" + name : name + "' has shape [32, 160]"));
    EXPECT_EQ(error(), sentence);
    EXPECT_EQ(summarize_checkpoint(source_, config_).error().message(), sentence);
    expect_nothing_left();
  }
}

// An index key of 256 values has no FP8 form, but a reference form.
TEST(Inspect, CachesThatAShapeCannotHaveAreLeftOut) {
  ModelConfig config = *parse_model_config(kConfig, {});
  config.index_head_dim = 256;
  const ModelSummary summary = *summarize_shapes(config, DummyFormat::kBf16);
  ASSERT_EQ(summary.kv_cache.size(), 1u);
  EXPECT_EQ(summary.kv_cache[0].layout, "f32");
}

const ModelSummary::Group* find(const std::vector<ModelSummary::Group>& groups, std::string_view name) {
  const auto it = std::ranges::find(groups, name, &ModelSummary::Group::name);
  return it != groups.end() ? &*it : nullptr;
}

TEST_F(QuantizeTest, InspectAddsUpPartsAndDtypes) {
  ASSERT_EQ(error(), "(quantised)");
  const Result<ModelConfig> config = load_model_config(target_);
  const Result<ModelSummary> summary = summarize_checkpoint(target_, *config);
  ASSERT_TRUE(summary.ok()) << summary.error().message();
  EXPECT_EQ(summary->architecture, "DeepseekV32ForCausalLM");
  EXPECT_EQ(summary->quantization, "fp8 128x128 ue8m0");
  int64_t parameters = 0;
  for (const auto& [name, tensor] : tensors_) {
    int64_t count = 1;
    for (int64_t extent : tensor.shape) count *= extent;
    parameters += count;
  }
  EXPECT_EQ(summary->total_parameters, parameters);
  int64_t bytes = 0;
  for (const ModelSummary::Group& part : summary->parts) bytes += part.bytes;
  EXPECT_EQ(bytes, summary->total_bytes);
  bytes = 0;
  for (const ModelSummary::Group& dtype : summary->dtypes) bytes += dtype.bytes;
  EXPECT_EQ(bytes, summary->total_bytes);
  EXPECT_EQ(find(summary->parts, "embedding")->bytes, 40 * 192 * 2);
  EXPECT_EQ(find(summary->parts, "experts")->parameters, 4 * 3 * 72 * 192);
  EXPECT_EQ(find(summary->parts, "experts")->bytes, 4 * (3 * 72 * 192 + 4 * 3 * 2));
  EXPECT_EQ(find(summary->parts, "dense_mlp")->parameters, 3 * 136 * 192);
  EXPECT_EQ(find(summary->parts, "router")->parameters, 4 * 192 + 4);
  EXPECT_EQ(find(summary->parts, "indexer")->parameters, 2 * (96 * 144 + 32 * 192 + 2 * 32 + 3 * 192));
  EXPECT_EQ(find(summary->parts, "other"), nullptr);
  EXPECT_GT(find(summary->parts, "mtp")->parameters, 2 * 192 * 192);
  EXPECT_EQ(summary->dtypes.front().name, "F8_E4M3");
  // Three layers with MTP: (128 + 16) bf16 values and a 32-byte key with its scale; the index keys of bf16 are FP8.
  ASSERT_EQ(summary->kv_cache.size(), 3u);
  EXPECT_EQ(summary->kv_cache[0].bytes_per_token, 3 * (2 * 144 + 32 + 4));
  EXPECT_EQ(summary->kv_cache[1].bytes_per_token, 3 * (128 + 4 + 2 * 16 + 32 + 4));
}

// Totals that the publishers state, in billions of parameters.
TEST(Inspect, PublishedModelsHaveTheirPublishedSizes) {
  const struct {
    const char* name;
    double total, mtp, active;
    double tolerance;  // of what the publishers round to
  } models[] = {{"deepseek-v2-lite", 15.7, 0, 2.4, 0.1}, {"deepseek-v2", 235.7, 0, 21, 0.7},
                {"deepseek-v3", 671.0, 11.6, 37, 1.0},   {"deepseek-v32", 671.9, 11.6, 37, 1.0},
                {"kimi-k2", 1026, 0, 32, 1.0},           {"moonlight", 16.0, 0, 2.24, 0.4},
                {"glm47-flash", 29.9, 0.6, 3, 0.6},      {"glm5", 743.9, 10.0, 40, 1.0}};
  for (const auto& m : models) {
    SCOPED_TRACE(m.name);
    const Result<ModelConfig> config = parse_model_config(builtin_config_json(m.name).value(), {});
    const Result<ModelSummary> summary = summarize_shapes(*config, DummyFormat::kBf16);
    ASSERT_TRUE(summary.ok()) << summary.error().message();
    const ModelSummary::Group* mtp = find(summary->parts, "mtp");
    const int64_t mtp_parameters = mtp != nullptr ? mtp->parameters : 0;
    EXPECT_NEAR(static_cast<double>(mtp_parameters) / 1e9, m.mtp, 0.15);
    EXPECT_NEAR(static_cast<double>(summary->total_parameters - mtp_parameters) / 1e9, m.total,
                m.total < 100 ? 0.1 : 0.6);
    EXPECT_NEAR(static_cast<double>(summary->active_parameters) / 1e9, m.active, m.tolerance);
  }
  // V3.2 without MTP: 61 x (1152 + 132) bytes in bf16, 61 x (656 + 132) in FP8; one more layer with it.
  const Result<ModelConfig> v32 = parse_model_config(builtin_config_json("deepseek-v32").value(), {});
  const Result<ModelSummary> summary = summarize_shapes(*v32, DummyFormat::kFp8Block);
  EXPECT_EQ(summary->kv_cache[0].bytes_per_token, 62 * (1152 + 132));
  EXPECT_EQ(summary->kv_cache[1].bytes_per_token, 62 * (656 + 132));
}

}  // namespace
}  // namespace lantern
