#include "model/inspect.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "model/kv_cache.h"
#include "model/safetensors.h"
#include "model/weight_source.h"

namespace lantern {
namespace {

constexpr int32_t kBlockSize = 64;  // tokens in a cache block; the bytes of one token do not depend on it
constexpr int64_t kScaleBlock = 128;

constexpr std::array<std::string_view, 11> kParts = {"embedding",      "attention", "indexer", "dense_mlp", "router",
                                                     "shared_experts", "experts",   "norms",   "head",      "mtp",
                                                     "other"};

struct TensorLine {
  std::string name;
  std::string dtype;
  int64_t elements = 0;
  int64_t bytes = 0;
};

// The layer of "model.layers.N...", or -1.
int32_t layer_of(std::string_view name) {
  constexpr std::string_view kPrefix = "model.layers.";
  if (!name.starts_with(kPrefix)) return -1;
  int32_t layer = -1;
  std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), layer);
  return layer;
}

std::string_view part_of(std::string_view name, const ModelConfig& config) {
  const int32_t layer = layer_of(name);
  if (layer >= config.num_layers) return "mtp";
  const auto has = [&](std::string_view piece) { return name.find(piece) != std::string_view::npos; };
  if (layer < 0) {
    if (name.starts_with("model.embed_tokens.")) return "embedding";
    if (name.starts_with("lm_head.")) return "head";
    return name.starts_with("model.norm.") ? "norms" : "other";
  }
  if (has(".indexer.")) return "indexer";
  if (has("norm.")) return "norms";
  if (has(".self_attn.")) return "attention";
  if (has(".mlp.experts.")) return "experts";
  if (has(".mlp.shared_experts.")) return "shared_experts";
  if (has(".mlp.gate.")) return "router";
  return has(".mlp.") ? "dense_mlp" : "other";
}

ModelSummary::Group& group(std::vector<ModelSummary::Group>& groups, std::string_view name) {
  const auto it = std::ranges::find(groups, name, &ModelSummary::Group::name);
  if (it != groups.end()) return *it;
  groups.push_back({std::string(name)});
  return groups.back();
}

void add_kv_cache(ModelSummary& summary, ModelConfig config, bool has_mtp) {
  if (!has_mtp) config.num_mtp_layers = 0;
  for (const char* name : {"bf16", "fp8", "f32"}) {
    const Result<KvCacheLayouts> layouts = parse_kv_cache_dtype(name, config);
    if (layouts.ok()) summary.kv_cache.push_back({name, kv_bytes_per_token(config, *layouts, kBlockSize)});
  }
}

ModelSummary summarize(const std::vector<TensorLine>& tensors, const ModelConfig& config) {
  ModelSummary summary;
  summary.architecture = to_string(config.architecture);
  summary.model_type = config.model_type;
  for (std::string_view part : kParts) summary.parts.push_back({std::string(part)});
  for (const TensorLine& tensor : tensors) {
    const int64_t parameters = tensor.name.ends_with("_scale_inv") ? 0 : tensor.elements;
    for (ModelSummary::Group* one :
         {&group(summary.parts, part_of(tensor.name, config)), &group(summary.dtypes, tensor.dtype)}) {
      ++one->tensors;
      one->bytes += tensor.bytes;
      one->parameters += parameters;
    }
    summary.total_parameters += parameters;
    summary.total_bytes += tensor.bytes;
  }
  const bool has_mtp = group(summary.parts, "mtp").tensors > 0;
  for (const ModelSummary::Group& part : summary.parts) {
    if (part.name == "mtp" || part.name == "other" || (part.name == "embedding" && !config.tie_word_embeddings))
      continue;
    const bool experts = part.name == "experts";
    const int64_t used = experts ? config.experts_per_token : 1;
    const int64_t of = experts ? std::max(config.num_routed_experts, 1) : 1;
    summary.active_parameters += part.parameters / of * used;
    summary.active_bytes_per_token += part.bytes / of * used;
  }
  std::erase_if(summary.parts, [](const ModelSummary::Group& part) { return part.tensors == 0; });
  std::ranges::stable_sort(summary.dtypes, std::greater(), &ModelSummary::Group::bytes);
  add_kv_cache(summary, config, has_mtp);
  return summary;
}

// Notes what a checkpoint of this config would hold.
class ShapeSource final : public WeightSource {
 public:
  explicit ShapeSource(DummyFormat format) : format_(format) {}
  std::string where() const override { return "config"; }
  bool contains(std::string_view) const override { return false; }
  bool contains_prefix(std::string_view) const override { return true; }
  Result<QuantizedMatrix> matrix(const std::string& name, int64_t rows, int64_t cols) override {
    const bool fp8 = format_ == DummyFormat::kFp8Block && matrix_use(name) == MatrixUse::kProjection;
    add(name, fp8 ? DType::kF8E4M3 : DType::kBF16, rows * cols);
    if (fp8) {
      add(name + "_scale_inv", DType::kF32,
          (rows + kScaleBlock - 1) / kScaleBlock * ((cols + kScaleBlock - 1) / kScaleBlock));
    }
    return QuantizedMatrix();
  }
  Result<DevPtr<const float>> vector(const std::string& name, int64_t size) override {
    add(name, name.ends_with("e_score_correction_bias") ? DType::kF32 : DType::kBF16, size);
    return DevPtr<const float>();
  }
  Result<DevPtr<const ExpertWeights>> expert_table(std::span<const ExpertWeights>) override {
    return DevPtr<const ExpertWeights>();
  }

  std::vector<TensorLine> tensors;

 private:
  void add(const std::string& name, DType dtype, int64_t elements) {
    tensors.push_back({name, std::string(to_string(dtype)), elements,
                       static_cast<int64_t>(dtype_bytes(dtype, static_cast<size_t>(elements)))});
  }

  DummyFormat format_;
};

}  // namespace

Result<ModelSummary> summarize_checkpoint(const std::filesystem::path& dir, const ModelConfig& config) {
  ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::open(dir));
  RETURN_IF_ERROR(check_weights(checkpoint, config));
  std::vector<TensorLine> tensors;
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    tensors.push_back(
        {name, tensor.info->dtype_name, tensor.info->count(), static_cast<int64_t>(tensor.info->bytes())});
  }
  ModelSummary summary = summarize(tensors, config);
  summary.shards = static_cast<int32_t>(checkpoint.shards().size());
  const QuantizationConfig& quantization = config.quantization;
  if (!quantization.method.empty()) {
    summary.quantization = fmt::format("{} {}x{}{}", quantization.method, quantization.block_rows,
                                       quantization.block_cols, quantization.ue8m0_scales ? " ue8m0" : "");
  }
  return summary;
}

Result<ModelSummary> summarize_shapes(const ModelConfig& config, DummyFormat format) {
  ShapeSource source(format);
  RETURN_IF_ERROR(collect_weights(config, source));
  ModelSummary summary = summarize(source.tensors, config);
  if (format == DummyFormat::kFp8Block) summary.quantization = "fp8 128x128 ue8m0";
  return summary;
}

}  // namespace lantern
