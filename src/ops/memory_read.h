// How fast this machine reads memory: what every bandwidth-bound kernel is compared with. read_memory() reads that of
// any device; the meter takes the time of the host's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "device/fixed.h"
#include "device/stream.h"

namespace lantern {

// word[0] ^= all 64-bit words of `data`: the least that a kernel can do with memory that it reads.
struct ReadMemoryParams {
  DevPtr<const std::byte> data{};  // `bytes`, aligned to 64
  int64_t bytes = 0;               // a multiple of kReadPieceBytes
  DevPtr<uint64_t> word{};         // [1]
};
inline constexpr int64_t kReadPieceBytes = 2 << 20;
void read_memory(Stream& stream, const ReadMemoryParams& params);

struct ReadBandwidth {
  int64_t bytes = 0;  // read by a pass
  int threads = 0;
  int repetitions = 0;
  double median_bytes_per_second = 0.0;
  double best_bytes_per_second = 0.0;
};

// Reads `buffer` twice per repetition (>= 1), of which the faster counts, with all threads of the pool, each streaming
// through long contiguous pieces with the widest loads the machine has. The buffer should be several times the size of
// the last-level cache and written before, page by page (pages never written are all the same page of zeros, and come
// from the cache).
ReadBandwidth measure_read_bandwidth(ThreadPool& threads, std::span<const std::byte> buffer, int repetitions);

// Fresh memory, in large pages where the system grants them, to be read again and again between other measurements.
class ReadBandwidthMeter {
 public:
  // out_of_memory when `bytes` do not fit. `threads` must outlive the meter.
  static Result<std::unique_ptr<ReadBandwidthMeter>> create(ThreadPool& threads, int64_t bytes);
  ~ReadBandwidthMeter();
  // Bytes per second of the faster of two passes, which differ in how many places a thread reads at once.
  double measure();
  // Of all passes, at least one.
  ReadBandwidth result() const;
  std::span<const std::byte> memory() const;

 private:
  class Memory;
  ReadBandwidthMeter(ThreadPool& threads, int64_t bytes);

  ThreadPool& threads_;
  int64_t bytes_;
  std::unique_ptr<Memory> memory_;
  std::vector<double> rates_;
};

// `repetitions` (>= 1) passes of a meter.
Result<ReadBandwidth> measure_read_bandwidth(ThreadPool& threads, int64_t bytes, int repetitions);

// Bytes of the last-level cache as the system reports it; 0 when it does not say.
int64_t last_level_cache_bytes();

}  // namespace lantern
