// make_dummy_weights: random weights of real shapes. One region of huge pages, filled by all cores with a counter-based
// generator, so that the values depend on the seed alone.
#include <fmt/core.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "base/thread_pool.h"
#include "device/persistent_buffer.h"
#include "model/weight_slice.h"
#include "model/weight_source.h"
#include "model/weights.h"

namespace lantern {
namespace {

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;
constexpr int64_t kAlignment = 256;
constexpr int64_t kHugePage = 2 << 20;
constexpr int32_t kBlock = 128;
constexpr int64_t kFillBytes = 1 << 20;  // one piece of a thread's work

// The finaliser of splitmix64 (Steele, Lea, Flood 2014): word `counter` of the stream `key`.
uint64_t random_word(uint64_t key, uint64_t counter) {
  uint64_t x = key + (counter + 1) * 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

// Root mean square of the e4m3 codes below when every code is as likely as any other.
double e4m3_rms() {
  double sum = 0;
  for (int code = 0; code < 256; ++code) {
    const auto bits = static_cast<uint8_t>((code & 0x7f) == 0x7f ? code ^ 1 : code);
    sum += std::pow(to_float(e4m3_t{bits}), 2);
  }
  return std::sqrt(sum / 256);
}

struct FillJob {
  enum class Kind { kBf16, kE4m3, kConstant } kind = Kind::kBf16;
  std::byte* begin = nullptr;
  int64_t bytes = 0;
  uint64_t key = 0;
  float value = 0;  // kBf16: half the width of the uniform distribution; kConstant: the float
};

// Bytes [begin, end) of a job; both are multiples of 8 or the end of the job.
void fill(const FillJob& job, int64_t begin, int64_t end) {
  if (job.kind == FillJob::Kind::kConstant) {
    for (int64_t at = begin; at < end; at += 4) std::memcpy(job.begin + at, &job.value, 4);
    return;
  }
  const float step = job.value / 32768.0f;
  for (int64_t at = begin; at < end; at += 8) {
    uint64_t word = random_word(job.key, static_cast<uint64_t>(at / 8));
    if (job.kind == FillJob::Kind::kBf16) {
      uint64_t packed = 0;
      for (int lane = 0; lane < 64; lane += 16) {
        const float value = static_cast<float>(static_cast<int16_t>(word >> lane)) * step;
        packed |= static_cast<uint64_t>(std::bit_cast<uint32_t>(value) >> 16) << lane;
      }
      word = packed;
    } else {
      // 0x7f and 0xff are NaN: clear the lowest bit of bytes whose low seven bits are all set.
      const uint64_t low = (word & 0x7f7f7f7f7f7f7f7fu) + 0x0101010101010101u;  // bit 7 set where they were
      word &= ~((low & 0x8080808080808080u) >> 7);
    }
    std::memcpy(job.begin + at, &word, static_cast<size_t>(std::min<int64_t>(8, end - at)));
  }
}

class DummyStore final : public WeightStore, private WeightSource, private FixedOwner {
 public:
  DummyStore(const ModelConfig& config, DummyFormat format, uint64_t seed, Device& device)
      : config_(config), format_(format), seed_(seed), device_(device) {}

  ~DummyStore() override {
    if (region_ == nullptr) return;
    if (copy_ == nullptr) device_.unregister_memory(region_);
    unmap_region();
  }

  Status make() {
    RETURN_IF_ERROR(collect_weights(config_, *this));
    RETURN_IF_ERROR(map_region());
    used_bytes_ = 0;
    tensor_index_ = 0;
    ASSIGN_OR_RETURN(weights_, collect_weights(config_, *this));
    run_jobs();
    if (copy_ != nullptr) {
      device_.copy_to_device(base_, region_, static_cast<size_t>(region_bytes_));
      unmap_region();
    }
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
    FillJob job;
    job.key = next_key();
    job.kind = fp8 ? FillJob::Kind::kE4m3 : FillJob::Kind::kBf16;
    const double rms = 1.0 / std::sqrt(static_cast<double>(cols));
    job.value = static_cast<float>(rms * std::sqrt(3.0));  // uniform in [-value, value) has this rms
    stored.data = take(rows * cols * (fp8 ? 1 : 2), job);
    if (fp8) {
      stored.block_rows = stored.block_cols = kBlock;
      const int64_t scales = (rows + kBlock - 1) / kBlock * ((cols + kBlock - 1) / kBlock);
      FillJob scale_job;
      scale_job.kind = FillJob::Kind::kConstant;
      scale_job.value = static_cast<float>(std::exp2(std::round(std::log2(rms / e4m3_rms()))));
      stored.scales = take(scales * 4, scale_job);
    }
    if (region_ == nullptr) return QuantizedMatrix();
    return slice_matrix(stored, TensorSlice{name, {}, {}});
  }

  Result<DevPtr<const float>> vector(const std::string& name, int64_t size) override {
    FillJob job;
    job.kind = FillJob::Kind::kConstant;
    job.value = name.ends_with("bias") ? 0.0f : 1.0f;
    const Fixed<const std::byte> bytes = take(size * 4, job);
    return DevPtr<const float>(mint(reinterpret_cast<const float*>(bytes.data()), size));
  }

  Result<DevPtr<const ExpertWeights>> expert_table(std::span<const ExpertWeights> experts) override {
    const Fixed<const std::byte> bytes = reserve(std::ssize(std::as_bytes(experts)));
    if (region_ != nullptr) std::memcpy(region_ + (bytes.data() - base_), experts.data(), experts.size_bytes());
    return DevPtr<const ExpertWeights>(mint(reinterpret_cast<const ExpertWeights*>(bytes.data()), std::ssize(experts)));
  }

  uint64_t next_key() { return random_word(seed_, static_cast<uint64_t>(tensor_index_++)); }

  // The next `bytes` of the region; null while counting.
  Fixed<const std::byte> reserve(int64_t bytes) {
    const int64_t begin = used_bytes_;
    used_bytes_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    if (region_ == nullptr) return mint(static_cast<const std::byte*>(nullptr), bytes);
    CHECK(used_bytes_ <= region_bytes_, "{} bytes were counted, {} are asked for", region_bytes_, used_bytes_);
    return mint(static_cast<const std::byte*>(base_ + begin), bytes);
  }
  Fixed<const std::byte> take(int64_t bytes, FillJob job) {
    const Fixed<const std::byte> reserved = reserve(bytes);
    if (region_ != nullptr) {
      job.begin = region_ + (reserved.data() - base_);
      job.bytes = bytes;
      jobs_.push_back(job);
    }
    return reserved;
  }

  Status map_region() {
    const int64_t bytes = (used_bytes_ + kHugePage - 1) / kHugePage * kHugePage;
    const auto available = static_cast<double>(device_.available_bytes());
    if (static_cast<double>(bytes) > available) {
      return Error(ErrorCode::kOutOfMemory,
                   fmt::format("dummy weights of this shape take {:.2f} GiB, but only {:.2f} GiB of memory are free on "
                               "{}; use fewer layers or the FP8 format",
                               static_cast<double>(bytes) / kGiB, available / kGiB, device_.description()));
    }
    void* address =
        ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (address == MAP_FAILED) {
      return Error(ErrorCode::kOutOfMemory, fmt::format("{:.2f} GiB for dummy weights were refused by the system: {}",
                                                        static_cast<double>(bytes) / kGiB, std::strerror(errno)));
    }
    ::madvise(address, static_cast<size_t>(bytes), MADV_HUGEPAGE);  // a hint; without it only the TLB suffers
    region_ = static_cast<std::byte*>(address);
    region_bytes_ = bytes;
    base_ = region_;
    if (device_.kind() == DeviceKind::kCpu) {
      device_.register_memory(MemoryClass::kWeights, "dummy weights", region_, static_cast<size_t>(bytes));
      return {};
    }
    ASSIGN_OR_RETURN(copy_,
                     PersistentBuffer<std::byte>::create(device_, "dummy weights", bytes, MemoryClass::kWeights));
    base_ = copy_->fixed().data();
    return {};
  }

  void unmap_region() {
    if (region_ != nullptr) ::munmap(region_, static_cast<size_t>(region_bytes_));
    region_ = nullptr;
  }

  void run_jobs() {
    struct Piece {
      const FillJob* job;
      int64_t begin, end;
    };
    std::vector<Piece> pieces;
    for (const FillJob& job : jobs_) {
      for (int64_t begin = 0; begin < job.bytes; begin += kFillBytes) {
        pieces.push_back({&job, begin, std::min(job.bytes, begin + kFillBytes)});
      }
    }
    ThreadPool threads(device_.worker_count());
    threads.parallel_for(std::ssize(pieces), 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        const Piece& piece = pieces[static_cast<size_t>(i)];
        fill(*piece.job, piece.begin, piece.end);
      }
    });
    jobs_.clear();
    jobs_.shrink_to_fit();
  }

  const ModelConfig config_;
  const DummyFormat format_;
  const uint64_t seed_;
  Device& device_;
  ModelWeights weights_;
  std::vector<FillJob> jobs_;
  std::byte* region_ = nullptr;  // where the values are made; null while the first walk counts
  std::byte* base_ = nullptr;    // the region as the device sees it: itself, or the copy of it
  std::unique_ptr<PersistentBuffer<std::byte>> copy_;
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
