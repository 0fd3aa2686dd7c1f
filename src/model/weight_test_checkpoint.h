// Checkpoints for tests: every tensor that a config calls for, with values from a seed, written by the writer.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "model/config.h"
#include "model/safetensors.h"
#include "model/safetensors_test_dir.h"
#include "model/weight_source.h"

namespace lantern::testing_checkpoint {

struct Tensor {
  DType dtype = DType::kBF16;
  std::vector<int64_t> shape;
  std::vector<std::byte> data;
};
using Tensors = std::map<std::string, Tensor>;

// Notes what the walk asks for.
class RecordingSource final : public WeightSource {
 public:
  std::string where() const override { return "test"; }
  bool contains(std::string_view) const override { return true; }
  bool contains_prefix(std::string_view) const override { return true; }
  Result<QuantizedMatrix> matrix(const std::string& name, int64_t rows, int64_t cols) override {
    EXPECT_TRUE(shapes.emplace(name, std::vector<int64_t>{rows, cols}).second) << name << " is asked for twice";
    return QuantizedMatrix();
  }
  Result<DevPtr<const float>> vector(const std::string& name, int64_t size) override {
    EXPECT_TRUE(shapes.emplace(name, std::vector<int64_t>{size}).second) << name << " is asked for twice";
    return DevPtr<const float>();
  }
  Result<DevPtr<const ExpertWeights>> expert_table(std::span<const ExpertWeights>) override {
    return DevPtr<const ExpertWeights>();
  }
  std::map<std::string, std::vector<int64_t>> shapes;
};

inline Tensor random_tensor(DType dtype, std::vector<int64_t> shape, std::mt19937& random) {
  Tensor tensor{dtype, std::move(shape), {}};
  size_t count = 1;
  for (int64_t extent : tensor.shape) count *= static_cast<size_t>(extent);
  tensor.data.resize(dtype_bytes(dtype, count));
  std::normal_distribution<float> normal;
  for (size_t i = 0; i < count; ++i) {
    const float value = normal(random);
    const auto put = [&](auto stored) { std::memcpy(tensor.data.data() + i * sizeof stored, &stored, sizeof stored); };
    switch (dtype) {
      case DType::kF32: put(value); break;
      case DType::kF16: put(to_f16(value)); break;
      case DType::kBF16: put(to_bf16(value)); break;
      case DType::kF8E4M3: put(to_e4m3_saturate(value * 100)); break;
      case DType::kF8E8M0: put(e8m0_t{static_cast<uint8_t>(120 + random() % 8)}); break;
      default: put(static_cast<uint8_t>(random())); break;
    }
  }
  return tensor;
}

// Every tensor of `config`, in bf16 (f32 router biases, as published). With `fp8` projections are F8_E4M3 with scales
// of `scale_dtype` for blocks of the config's size.
inline Tensors random_tensors(const ModelConfig& config, uint32_t seed, bool fp8 = false,
                              DType scale_dtype = DType::kF32) {
  RecordingSource source;
  EXPECT_TRUE(collect_weights(config, source).ok());
  std::mt19937 random(seed);
  Tensors tensors;
  for (const auto& [name, shape] : source.shapes) {
    DType dtype = name.ends_with("e_score_correction_bias") ? DType::kF32 : DType::kBF16;
    if (fp8 && matrix_use(name) == MatrixUse::kProjection) {
      dtype = DType::kF8E4M3;
      const int64_t rows = (shape[0] + config.quantization.block_rows - 1) / config.quantization.block_rows;
      const int64_t cols = (shape[1] + config.quantization.block_cols - 1) / config.quantization.block_cols;
      tensors[name + "_scale_inv"] = random_tensor(scale_dtype, {rows, cols}, random);
    }
    tensors[name] = random_tensor(dtype, shape, random);
  }
  return tensors;
}

inline void write_checkpoint(const std::filesystem::path& dir, const Tensors& tensors,
                             uint64_t max_shard_bytes = uint64_t{1} << 30) {
  for (const auto& entry : std::filesystem::directory_iterator(dir)) {
    if (entry.path().filename().string().starts_with("model")) std::filesystem::remove(entry.path());
  }
  SafetensorsWriter writer(dir, {.max_shard_bytes = max_shard_bytes});
  for (const auto& [name, tensor] : tensors) ASSERT_TRUE(writer.declare(name, tensor.dtype, tensor.shape).ok());
  const Status begun = writer.begin();
  ASSERT_TRUE(begun.ok()) << begun.error().message();
  for (const auto& [name, tensor] : tensors) ASSERT_TRUE(writer.write(name, tensor.data).ok());
  ASSERT_TRUE(writer.finish().ok());
}

}  // namespace lantern::testing_checkpoint
