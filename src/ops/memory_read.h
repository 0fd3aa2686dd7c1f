// How fast this machine reads memory: what every bandwidth-bound kernel is compared with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"
#include "base/thread_pool.h"

namespace lantern {

struct ReadBandwidth {
  int64_t bytes = 0;  // read once per repetition
  int threads = 0;
  int repetitions = 0;
  double median_bytes_per_second = 0.0;
  double best_bytes_per_second = 0.0;
};

// Reads `buffer` `repetitions` times (>= 1) with all threads of the pool, each streaming through long contiguous pieces
// with the widest loads the machine has. The buffer should be several times the size of the last-level cache and
// written before, page by page (pages never written are all the same page of zeros, and come from the cache).
ReadBandwidth measure_read_bandwidth(ThreadPool& threads, std::span<const std::byte> buffer, int repetitions);

// The same over `bytes` of fresh memory in large pages where the system grants them. out_of_memory when it does not
// fit.
Result<ReadBandwidth> measure_read_bandwidth(ThreadPool& threads, int64_t bytes, int repetitions);

// Bytes of the last-level cache as the system reports it; 0 when it does not say.
int64_t last_level_cache_bytes();

}  // namespace lantern
