// Which tensors a model is made of, independent of where they come from: a checkpoint or a random generator.
// Names as published (docs of the DeepSeek-V3 release and of transformers' classes).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "device/fixed.h"
#include "model/config.h"
#include "model/weights.h"

namespace lantern {

// Which matrices the public FP8 releases quantise. The others (embedding, head, router, the indexer's weights_proj,
// eh_proj) stay in the dtype of the training checkpoint.
enum class MatrixUse : uint8_t { kProjection, kUnquantized };
// By name, e.g. "model.layers.3.mlp.up_proj.weight" is a projection.
MatrixUse matrix_use(std::string_view tensor_name);

// Provides tensors by name. Every name is asked for at most once in one walk.
class WeightSource {
 public:
  virtual ~WeightSource() = default;
  // What errors begin with, e.g. the checkpoint's directory.
  virtual std::string where() const = 0;
  virtual bool contains(std::string_view name) const = 0;
  virtual bool contains_prefix(std::string_view prefix) const = 0;
  // A 2-D tensor of exactly this shape; an error that names it when it is missing or has another one.
  virtual Result<QuantizedMatrix> matrix(const std::string& name, int64_t rows, int64_t cols) = 0;
  // A 1-D tensor as floats.
  virtual Result<DevPtr<const float>> vector(const std::string& name, int64_t size) = 0;
  // A copy of the table in fixed memory.
  virtual Result<DevPtr<const ExpertWeights>> expert_table(std::span<const ExpertWeights> experts) = 0;
};

// Walks every tensor that `config` calls for, in the order of the layers. MTP layers are left out when the source holds
// none of their tensors.
Result<ModelWeights> collect_weights(const ModelConfig& config, WeightSource& source);

}  // namespace lantern
