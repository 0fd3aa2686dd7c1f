#include "ops/memory_read.h"

#include <fmt/core.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <vector>

#include "base/check.h"
#include "base/median.h"
#include "device/device.h"
#include "ops/cuda_ops.h"

#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/memory_read.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace lantern::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The xor of all 64-bit words of `streams` (even) pieces of `count` words that follow each other, read side by side: a
// core asks memory for more at a time when it follows several streams. `count` is a multiple of 8.
uint64_t read_words(const uint64_t* words, int64_t count, int64_t streams) {
  const hn::ScalableTag<uint64_t> d;
  const int64_t n = static_cast<int64_t>(hn::Lanes(d));
  auto even = hn::Zero(d), odd = hn::Zero(d);
  for (int64_t i = 0; i < count; i += 8) {  // a cache line of each
    for (int64_t j = i; j < i + 8; j += n) {
      for (int64_t stream = 0; stream < streams; stream += 2) {
        even = hn::Xor(even, hn::LoadU(d, words + stream * count + j));
        odd = hn::Xor(odd, hn::LoadU(d, words + (stream + 1) * count + j));
      }
    }
  }
  uint64_t lanes[8] = {};
  hn::StoreU(hn::Xor(even, odd), d, lanes);
  uint64_t word = 0;
  for (const uint64_t lane : lanes) word ^= lane;
  return word;
}

}  // namespace lantern::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE  // Highway compiles the file once per instruction set; this part belongs to the last pass alone.
namespace lantern {
namespace {

HWY_EXPORT(read_words);

// Processors differ in how many streams they read fastest: Zen 5 reads 2 half as fast again as 8, others the other way.
constexpr int64_t kStreamCounts[] = {2, 8};

// The xor of `pieces` pieces. A piece is read by one thread: long enough to stream, short enough that all threads end
// together.
uint64_t read_pieces(ThreadPool& threads, const std::byte* data, int64_t pieces, int64_t streams) {
  constexpr int64_t kWords = kReadPieceBytes / 8;
  std::atomic<uint64_t> all{0};
  threads.parallel_for(pieces, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t piece = begin; piece < end; ++piece) {
      const auto* words = reinterpret_cast<const uint64_t*>(data) + piece * kWords;
      all.fetch_xor(HWY_DYNAMIC_DISPATCH(read_words)(words, kWords / streams, streams), std::memory_order_relaxed);
    }
  });
  return all.load(std::memory_order_relaxed);
}

void read_memory_kernel(const ReadMemoryParams& p, HostContext& context) {
  p.word[0] ^= read_pieces(context.threads, p.data.get(), p.bytes / kReadPieceBytes, kStreamCounts[0]);
}

// Bytes per second of one pass over whole pieces of `buffer`.
double read_once(ThreadPool& threads, std::span<const std::byte> buffer, int64_t streams) {
  const int64_t pieces = std::ssize(buffer) / kReadPieceBytes;
  CHECK(pieces > 0, "a buffer of {} bytes is too small to measure with", buffer.size());
  const auto start = std::chrono::steady_clock::now();
  read_pieces(threads, buffer.data(), pieces, streams);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  return static_cast<double>(pieces * kReadPieceBytes) / seconds.count();
}

// Of one pass by each count of streams, the fastest: which one that is depends on the moment, too.
double read_fastest(ThreadPool& threads, std::span<const std::byte> buffer) {
  double fastest = 0.0;
  for (const int64_t streams : kStreamCounts) fastest = std::max(fastest, read_once(threads, buffer, streams));
  return fastest;
}

ReadBandwidth summary(const ThreadPool& threads, std::span<const std::byte> buffer, const std::vector<double>& rates) {
  CHECK(!rates.empty(), "a summary of no measurement");
  return {.bytes = std::ssize(buffer) / kReadPieceBytes * kReadPieceBytes,
          .threads = threads.thread_count(),
          .repetitions = static_cast<int>(rates.size()),
          .median_bytes_per_second = median(rates),
          .best_bytes_per_second = *std::max_element(rates.begin(), rates.end())};
}

}  // namespace

void read_memory(Stream& stream, const ReadMemoryParams& params) {
  CHECK(params.bytes % kReadPieceBytes == 0, "{} bytes to read are not whole pieces of {}", params.bytes,
        kReadPieceBytes);
  launch_op(stream, "read_memory", &read_memory_kernel, &CudaOps::read_memory, params);
}

ReadBandwidth measure_read_bandwidth(ThreadPool& threads, std::span<const std::byte> buffer, int repetitions) {
  CHECK(repetitions >= 1, "{} repetitions of a measurement", repetitions);
  read_fastest(threads, buffer);  // warms up threads and page tables
  std::vector<double> rates(static_cast<size_t>(repetitions));
  for (double& rate : rates) rate = read_fastest(threads, buffer);
  return summary(threads, buffer, rates);
}

// Large pages, zeroed, given back at the end of its life.
class ReadBandwidthMeter::Memory {
 public:
  explicit Memory(int64_t bytes) : bytes_(static_cast<size_t>(bytes)) {
    address_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (address_ != MAP_FAILED) madvise(address_, bytes_, MADV_HUGEPAGE);  // a hint: refusal costs speed alone
  }
  ~Memory() {
    if (address_ != MAP_FAILED) munmap(address_, bytes_);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  std::byte* data() const { return address_ == MAP_FAILED ? nullptr : static_cast<std::byte*>(address_); }

 private:
  size_t bytes_;
  void* address_;
};

ReadBandwidthMeter::ReadBandwidthMeter(ThreadPool& threads, int64_t bytes)
    : threads_(threads), bytes_(bytes), memory_(std::make_unique<Memory>(bytes)) {}
ReadBandwidthMeter::~ReadBandwidthMeter() = default;

Result<std::unique_ptr<ReadBandwidthMeter>> ReadBandwidthMeter::create(ThreadPool& threads, int64_t bytes) {
  std::unique_ptr<ReadBandwidthMeter> meter(new ReadBandwidthMeter(threads, bytes));
  const size_t available = available_host_memory();
  std::byte* const data = meter->memory_->data();
  if (data == nullptr || static_cast<size_t>(bytes) > available) {
    return Error(ErrorCode::kOutOfMemory,
                 fmt::format("measuring needs {} MiB of memory, but {} MiB are available; ask for a smaller buffer",
                             bytes >> 20, available >> 20));
  }
  threads.parallel_for(bytes / 4096, 1024, [&](int64_t begin, int64_t end, int) {
    for (int64_t page = begin; page < end; ++page) data[page * 4096] = static_cast<std::byte>(page | 1);
  });
  read_fastest(threads, meter->memory());  // warms up threads and page tables
  return meter;
}

std::span<const std::byte> ReadBandwidthMeter::memory() const {
  return std::span(memory_->data(), static_cast<size_t>(bytes_));
}

double ReadBandwidthMeter::measure() {
  rates_.push_back(read_fastest(threads_, memory()));
  return rates_.back();
}

ReadBandwidth ReadBandwidthMeter::result() const { return summary(threads_, memory(), rates_); }

Result<ReadBandwidth> measure_read_bandwidth(ThreadPool& threads, int64_t bytes, int repetitions) {
  ASSIGN_OR_RETURN(const std::unique_ptr<ReadBandwidthMeter> meter, ReadBandwidthMeter::create(threads, bytes));
  for (int i = 0; i < repetitions; ++i) meter->measure();
  return meter->result();
}

int64_t last_level_cache_bytes() {
  for (const int name : {_SC_LEVEL4_CACHE_SIZE, _SC_LEVEL3_CACHE_SIZE, _SC_LEVEL2_CACHE_SIZE}) {
    if (const long bytes = sysconf(name); bytes > 0) return bytes;
  }
  return 0;
}

}  // namespace lantern
#endif
