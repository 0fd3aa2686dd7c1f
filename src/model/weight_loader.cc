// load_weights: binds the tensors of a mapped checkpoint. A first walk checks and adds up, without touching data or
// memory; the second one binds into memory of the size found. Everything on a device that needs copies begins at a
// multiple of 256 bytes, wherever it lies in its file.
#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/log.h"
#include "base/units.h"
#include "device/persistent_buffer.h"
#include "model/safetensors.h"
#include "model/weight_slice.h"
#include "model/weight_source.h"
#include "model/weights.h"

namespace lantern {
namespace {

constexpr int64_t kAlignment = 256;  // of copies, in bytes: what GPUs that fetch tiles or whole sectors ask for

constexpr int64_t aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

class CheckpointStore final : public WeightStore, private WeightSource, private FixedOwner {
 public:
  CheckpointStore(Checkpoint checkpoint, const ModelConfig& config, Device& device)
      : owned_(std::make_unique<const Checkpoint>(std::move(checkpoint))),
        checkpoint_(*owned_),
        config_(config),
        device_(&device) {}
  // Without a device it can only check.
  CheckpointStore(const Checkpoint& checkpoint, const ModelConfig& config)
      : checkpoint_(checkpoint), config_(config), device_(nullptr) {}

  ~CheckpointStore() override {
    for (const void* begin : registered_) device_->unregister_memory(begin);
  }

  Status check() {
    RETURN_IF_ERROR(collect_weights(config_, *this));
    return {};
  }

  Status load() {
    RETURN_IF_ERROR(check());
    const int64_t total = matrix_bytes_ + vector_floats_ * static_cast<int64_t>(sizeof(float)) +
                          expert_count_ * static_cast<int64_t>(sizeof(ExpertWeights));
    const auto available = static_cast<double>(device_->available_bytes());
    if (static_cast<double>(total) > available) {
      return Error(ErrorCode::kOutOfMemory,
                   fmt::format("the weights in {} take {:.2f} GiB, but only {:.2f} GiB of memory are free on {}; free "
                               "memory, or take a smaller or quantised model",
                               checkpoint_.dir().string(), static_cast<double>(total) / kGiB, available / kGiB,
                               device_->description()));
    }
    RETURN_IF_ERROR(make_room_for_matrices());
    ASSIGN_OR_RETURN(
        vectors_, PersistentBuffer<float>::create(*device_, "weight vectors", vector_floats_, MemoryClass::kWeights));
    ASSIGN_OR_RETURN(expert_tables_, PersistentBuffer<ExpertWeights>::create(*device_, "expert tables", expert_count_,
                                                                             MemoryClass::kWeights));
    binding_ = true;
    matrix_bytes_ = vector_floats_ = expert_count_ = 0;
    ASSIGN_OR_RETURN(weights_, collect_weights(config_, *this));
    report();
    return {};
  }

  const ModelWeights& weights() const override { return weights_; }

 private:
  std::string where() const override { return checkpoint_.dir().string(); }
  bool contains(std::string_view name) const override { return checkpoint_.contains(name); }
  bool contains_prefix(std::string_view prefix) const override {
    const auto it = checkpoint_.tensors().lower_bound(prefix);
    return it != checkpoint_.tensors().end() && it->first.starts_with(prefix);
  }

  Result<QuantizedMatrix> matrix(const std::string& name, int64_t rows, int64_t cols) override {
    ASSIGN_OR_RETURN(const Checkpoint::Tensor* tensor, take(name, {rows, cols}));
    StoredMatrix stored;
    stored.rows = rows;
    stored.cols = cols;
    stored.dtype = *tensor->info->dtype;
    stored.data = on_device(*tensor);
    const std::string scale_name = name + "_scale_inv";
    switch (stored.dtype) {
      case DType::kF32:
      case DType::kF16:
      case DType::kBF16:
        if (contains(scale_name)) {
          return Error(ErrorCode::kCorrupt, fmt::format("{}: '{}' is {}, yet there is a '{}'", where(*tensor), name,
                                                        tensor->info->dtype_name, scale_name));
        }
        break;
      case DType::kF8E4M3: RETURN_IF_ERROR(add_scales(*tensor, scale_name, stored)); break;
      default:
        return Error(ErrorCode::kUnsupported,
                     fmt::format("{}: '{}' has dtype {}; weights may be BF16, F16, F32, or F8_E4M3 with block scales",
                                 where(*tensor), name, tensor->info->dtype_name));
    }
    return slice_matrix(stored, TensorSlice{name, {}, {}});
  }

  Result<DevPtr<const float>> vector(const std::string& name, int64_t size) override {
    ASSIGN_OR_RETURN(const Checkpoint::Tensor* tensor, take(name, {size}));
    const DType dtype = *tensor->info->dtype;
    if (dtype != DType::kF32 && dtype != DType::kBF16 && dtype != DType::kF16) {
      return Error(ErrorCode::kUnsupported, fmt::format("{}: '{}' has dtype {}; a vector may be BF16, F16 or F32",
                                                        where(*tensor), name, tensor->info->dtype_name));
    }
    const int64_t begin = vector_floats_;
    vector_floats_ += aligned(size * int64_t{sizeof(float)}) / int64_t{sizeof(float)};
    if (!binding_) return DevPtr<const float>();
    std::vector<float> values(static_cast<size_t>(size));
    const std::byte* source = tensor->data().data();
    for (size_t i = 0; i < values.size(); ++i) {
      if (dtype == DType::kF32) {
        std::memcpy(&values[i], source + 4 * i, 4);
      } else {
        uint16_t bits = 0;
        std::memcpy(&bits, source + 2 * i, 2);
        values[i] = dtype == DType::kBF16 ? to_float(bf16_t{bits}) : to_float(f16_t{bits});
      }
    }
    const Fixed<float> target = vectors_->fixed().sub(begin, size);
    device_->copy_to_device(target.data(), values.data(), values.size() * sizeof(float));
    return DevPtr<const float>(target);
  }

  Result<DevPtr<const ExpertWeights>> expert_table(std::span<const ExpertWeights> experts) override {
    const int64_t begin = expert_count_;
    expert_count_ += std::ssize(experts);
    if (!binding_) return DevPtr<const ExpertWeights>();
    const Fixed<ExpertWeights> target = expert_tables_->fixed().sub(begin, std::ssize(experts));
    device_->copy_to_device(target.data(), experts.data(), experts.size_bytes());
    return DevPtr<const ExpertWeights>(target);
  }

  // The tensor, which must exist, be of a known dtype and of this shape, and be aligned to its elements.
  Result<const Checkpoint::Tensor*> take(const std::string& name, const std::vector<int64_t>& shape) {
    const Checkpoint::Tensor* tensor = checkpoint_.find(name);
    if (tensor == nullptr) {
      return Error(ErrorCode::kNotFound, fmt::format("{} holds no tensor '{}', which config.json calls for",
                                                     checkpoint_.dir().string(), name));
    }
    const TensorInfo& info = *tensor->info;
    if (info.shape != shape) {
      TensorInfo expected;
      expected.shape = shape;
      return Error(ErrorCode::kCorrupt, fmt::format("{}: '{}' has shape {}, but config.json calls for {}",
                                                    where(*tensor), name, info.shape_text(), expected.shape_text()));
    }
    if (!info.dtype) {
      return Error(ErrorCode::kUnsupported, fmt::format("{}: '{}' has dtype {}, which Lantern does not know",
                                                        where(*tensor), name, info.dtype_name));
    }
    const auto element_bytes = static_cast<uintptr_t>(dtype_bytes(*info.dtype, 1));
    if (reinterpret_cast<uintptr_t>(tensor->data().data()) % element_bytes != 0) {
      return Error(ErrorCode::kUnsupported,
                   fmt::format("{}: '{}' does not begin at a multiple of {} bytes; save the checkpoint again with a "
                               "current safetensors version, which aligns tensors",
                               where(*tensor), name, element_bytes));
    }
    if (!binding_) used_.insert(info.name);
    return tensor;
  }

  Status add_scales(const Checkpoint::Tensor& weight, const std::string& scale_name, StoredMatrix& stored) {
    const QuantizationConfig& quantization = config_.quantization;
    if (quantization.block_rows == 0) {
      return Error(ErrorCode::kCorrupt,
                   fmt::format("{}: '{}' is F8_E4M3, but config.json has no quantization_config with a "
                               "weight_block_size",
                               where(weight), weight.info->name));
    }
    stored.block_rows = quantization.block_rows;
    stored.block_cols = quantization.block_cols;
    const int64_t scale_rows = (stored.rows + stored.block_rows - 1) / stored.block_rows;
    const int64_t scale_cols = (stored.cols + stored.block_cols - 1) / stored.block_cols;
    ASSIGN_OR_RETURN(const Checkpoint::Tensor* scales, take(scale_name, {scale_rows, scale_cols}));
    stored.scale_dtype = *scales->info->dtype;
    if (stored.scale_dtype != DType::kF32 && stored.scale_dtype != DType::kF8E8M0) {
      return Error(ErrorCode::kUnsupported, fmt::format("{}: '{}' has dtype {}; block scales may be F32 or F8_E8M0",
                                                        where(*scales), scale_name, scales->info->dtype_name));
    }
    stored.scales = on_device(*scales);
    return {};
  }

  // The host device reads the mapped files themselves; others get copies of the matrices.
  Status make_room_for_matrices() {
    if (device_->kind() != DeviceKind::kCpu) {
      ASSIGN_OR_RETURN(copies_, PersistentBuffer<std::byte>::create(*device_, "weight matrices", matrix_bytes_,
                                                                    MemoryClass::kWeights));
      return {};
    }
    for (const auto& shard : checkpoint_.shards()) {
      const auto mapping = shard->mapping();
      device_->register_memory(MemoryClass::kWeights, shard->path().filename().string(), mapping.data(),
                               mapping.size());
      registered_.push_back(mapping.data());
    }
    return {};
  }

  // A matrix's bytes as the device sees them; where it needs a copy, this makes it.
  Fixed<const std::byte> on_device(const Checkpoint::Tensor& tensor) {
    const std::span<const std::byte> data = tensor.data();
    const int64_t begin = matrix_bytes_;
    matrix_bytes_ += aligned(std::ssize(data));
    if (copies_ == nullptr) return mint(data.data(), std::ssize(data));
    const Fixed<std::byte> copy = copies_->fixed().sub(begin, std::ssize(data));
    device_->copy_to_device(copy.data(), data.data(), data.size());
    return copy;
  }
  static std::string where(const Checkpoint::Tensor& tensor) { return tensor.file->path().string(); }

  void report() const {
    if (config_.num_mtp_layers > 0 && weights_.mtp.empty()) {
      log_info("{}: config.json speaks of {} MTP layer(s), but the checkpoint holds none; drafting is off",
               checkpoint_.dir().string(), config_.num_mtp_layers);
    }
    std::vector<std::string> left_out;
    left_out.reserve(static_cast<size_t>(config_.num_left_out_mtp_layers));
    for (int32_t i = 0; i < config_.num_left_out_mtp_layers; ++i) {
      left_out.push_back(fmt::format("model.layers.{}.", config_.total_layers() + i));
    }
    std::vector<std::string_view> unused;
    for (const auto& [name, tensor] : checkpoint_.tensors()) {
      const bool tied_head = config_.tie_word_embeddings && name == "lm_head.weight";
      if (used_.contains(name) || tied_head || name.ends_with("rotary_emb.inv_freq")) continue;
      if (std::ranges::any_of(left_out, [&](const std::string& layer) { return name.starts_with(layer); })) continue;
      unused.push_back(name);
    }
    if (unused.empty()) return;
    constexpr size_t kNamed = 5;
    std::string names;
    for (size_t i = 0; i < std::min(unused.size(), kNamed); ++i) {
      names += fmt::format("{}'{}'", i > 0 ? ", " : "", unused[i]);
    }
    log_warning("{}: {} tensor(s) are not part of the model that config.json describes and are not used: {}{}",
                checkpoint_.dir().string(), unused.size(), names, unused.size() > kNamed ? ", ..." : "");
  }

  const std::unique_ptr<const Checkpoint> owned_;
  const Checkpoint& checkpoint_;
  const ModelConfig config_;
  Device* device_;
  ModelWeights weights_;
  std::unique_ptr<PersistentBuffer<float>> vectors_;
  std::unique_ptr<PersistentBuffer<ExpertWeights>> expert_tables_;
  std::vector<const void*> registered_;
  std::unique_ptr<PersistentBuffer<std::byte>> copies_;  // of matrices; null where the files are read in place
  std::set<std::string_view> used_;

  bool binding_ = false;      // false in the first walk
  int64_t matrix_bytes_ = 0;  // aligned
  int64_t vector_floats_ = 0;
  int64_t expert_count_ = 0;
};

}  // namespace

Status check_weights(const Checkpoint& checkpoint, const ModelConfig& config) {
  return CheckpointStore(checkpoint, config).check();
}

Result<std::unique_ptr<WeightStore>> load_weights(const std::filesystem::path& dir, const ModelConfig& config,
                                                  Device& device) {
  ASSIGN_OR_RETURN(Checkpoint checkpoint, Checkpoint::open(dir));
  auto store = std::make_unique<CheckpointStore>(std::move(checkpoint), config, device);
  RETURN_IF_ERROR(store->load());
  return std::unique_ptr<WeightStore>(std::move(store));
}

}  // namespace lantern
