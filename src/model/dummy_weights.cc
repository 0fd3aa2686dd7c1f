// make_dummy_weights: random weights of real shapes in one region, filled by the device itself with a counter-based
// generator, so that the values depend on the seed alone and a GPU's never pass through main memory.
#include <fmt/core.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <optional>

#include "base/check.h"
#include "base/units.h"
#include "device/persistent_buffer.h"
#include "device/stream.h"
#include "model/weight_slice.h"
#include "model/weight_source.h"
#include "model/weights.h"
#include "ops/elementwise.h"
#include "ops/random_fill.h"

namespace lantern {
namespace {

constexpr int64_t kAlignment = 256;
constexpr int64_t kHugePage = 2 << 20;
constexpr int32_t kBlock = 128;

class DummyStore final : public WeightStore, private WeightSource, private FixedOwner {
 public:
  DummyStore(const ModelConfig& config, DummyFormat format, uint64_t seed, Device& device)
      : config_(config), format_(format), seed_(seed), device_(device) {}

  ~DummyStore() override {
    if (mapping_ == nullptr) return;
    device_.unregister_memory(mapping_);
    ::munmap(mapping_, static_cast<size_t>(region_bytes_));
  }

  Status make() {
    RETURN_IF_ERROR(collect_weights(config_, *this));
    RETURN_IF_ERROR(make_region());
    used_bytes_ = 0;
    tensor_index_ = 0;
    stream_.emplace(device_);
    ASSIGN_OR_RETURN(weights_, collect_weights(config_, *this));
    stream_->synchronize();
    stream_.reset();
    return {};
  }

  const ModelWeights& weights() const override { return weights_; }

 private:
  std::string where() const override { return "dummy weights"; }
  // MTP layers take embedding and head from the model, as their published duplicates are equal to them.
  bool contains(std::string_view) const override { return false; }
  bool contains_prefix(std::string_view) const override { return true; }

  Result<QuantizedMatrix> matrix(const std::string& name, int64_t rows, int64_t cols) override {
    StoredMatrix stored;
    stored.rows = rows;
    stored.cols = cols;
    const bool fp8 = format_ == DummyFormat::kFp8Block && matrix_use(name) == MatrixUse::kProjection;
    stored.dtype = fp8 ? DType::kF8E4M3 : DType::kBF16;
    const uint64_t key = random_word(seed_, static_cast<uint64_t>(tensor_index_++));
    const Fixed<std::byte> data = take(rows * cols * (fp8 ? 1 : 2));
    if (stream_) {
      random_fill(*stream_, {.data = data,
                             .bytes = data.size(),
                             .values = fp8 ? RandomValues::kE4m3 : RandomValues::kBf16,
                             .key = key,
                             .width = random_weight_width(cols)});
    }
    stored.data = data;
    if (fp8) {
      stored.block_rows = stored.block_cols = kBlock;
      const Fixed<std::byte> scales =
          take((rows + kBlock - 1) / kBlock * ((cols + kBlock - 1) / kBlock) * int64_t{sizeof(float)});
      fill_floats(scales, random_weight_scale(cols));
      stored.scales = scales;
    }
    if (!stream_) return QuantizedMatrix();
    return slice_matrix(stored, TensorSlice{name, {}, {}});
  }

  Result<DevPtr<const float>> vector(const std::string& name, int64_t size) override {
    const Fixed<std::byte> bytes = take(size * int64_t{sizeof(float)});
    return DevPtr<const float>(fill_floats(bytes, name.ends_with("bias") ? 0.0f : 1.0f));
  }

  Result<DevPtr<const ExpertWeights>> expert_table(std::span<const ExpertWeights> experts) override {
    const Fixed<std::byte> bytes = take(std::ssize(std::as_bytes(experts)));
    if (stream_) device_.copy_to_device(bytes.data(), experts.data(), experts.size_bytes());
    return DevPtr<const ExpertWeights>(mint(reinterpret_cast<const ExpertWeights*>(bytes.data()), std::ssize(experts)));
  }

  // The next `bytes` of the region; null while counting.
  Fixed<std::byte> take(int64_t bytes) {
    const int64_t begin = used_bytes_;
    used_bytes_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    if (!stream_) return mint(static_cast<std::byte*>(nullptr), bytes);
    CHECK(used_bytes_ <= region_bytes_, "{} bytes were counted, {} are asked for", region_bytes_, used_bytes_);
    return mint(base_ + begin, bytes);
  }
  Fixed<float> fill_floats(const Fixed<std::byte>& bytes, float value) {
    const Fixed<float> floats =
        mint(reinterpret_cast<float*>(bytes.data()), bytes.size() / static_cast<int64_t>(sizeof(float)));
    if (stream_) fill(*stream_, {.x = floats, .count = floats.size(), .value = value});
    return floats;
  }

  // On the CPU huge pages, which the system gives as they are written.
  Status make_region() {
    const int64_t bytes = (used_bytes_ + kHugePage - 1) / kHugePage * kHugePage;
    const auto available = static_cast<double>(device_.available_bytes());
    if (static_cast<double>(bytes) > available) {
      return Error(ErrorCode::kOutOfMemory,
                   fmt::format("dummy weights of this shape take {:.2f} GiB, but only {:.2f} GiB of memory are free on "
                               "{}; use fewer layers or the FP8 format",
                               static_cast<double>(bytes) / kGiB, available / kGiB, device_.description()));
    }
    region_bytes_ = bytes;
    if (device_.kind() != DeviceKind::kCpu) {
      ASSIGN_OR_RETURN(buffer_,
                       PersistentBuffer<std::byte>::create(device_, "dummy weights", bytes, MemoryClass::kWeights));
      base_ = buffer_->fixed().data();
      return {};
    }
    void* address =
        ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (address == MAP_FAILED) {
      return Error(ErrorCode::kOutOfMemory, fmt::format("{:.2f} GiB for dummy weights were refused by the system: {}",
                                                        static_cast<double>(bytes) / kGiB, std::strerror(errno)));
    }
    ::madvise(address, static_cast<size_t>(bytes), MADV_HUGEPAGE);  // a hint; without it only the TLB suffers
    mapping_ = address;
    base_ = static_cast<std::byte*>(address);
    device_.register_memory(MemoryClass::kWeights, "dummy weights", mapping_, static_cast<size_t>(bytes));
    return {};
  }

  const ModelConfig config_;
  const DummyFormat format_;
  const uint64_t seed_;
  Device& device_;
  ModelWeights weights_;
  std::optional<Stream> stream_;                         // fills; none while the first walk counts
  void* mapping_ = nullptr;                              // the region on the CPU
  std::unique_ptr<PersistentBuffer<std::byte>> buffer_;  // and on other devices
  std::byte* base_ = nullptr;
  int64_t region_bytes_ = 0;
  int64_t used_bytes_ = 0;
  int64_t tensor_index_ = 0;
};

}  // namespace

Result<std::unique_ptr<WeightStore>> make_dummy_weights(const ModelConfig& config, DummyFormat format, uint64_t seed,
                                                        Device& device) {
  auto store = std::make_unique<DummyStore>(config, format, seed, device);
  RETURN_IF_ERROR(store->make());
  return std::unique_ptr<WeightStore>(std::move(store));
}

}  // namespace lantern
