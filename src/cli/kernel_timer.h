// Times what is launched on a device: recorded into a graph and replayed with cold caches.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "base/result.h"
#include "device/persistent_buffer.h"
#include "device/stream.h"

namespace lantern::cli {

class KernelTimer {
 public:
  // Measures how fast the device reads memory. Each measurement is the median of `repetitions` replays. Errors:
  // out_of_memory; a device that records no graphs.
  static Result<std::unique_ptr<KernelTimer>> create(Device& device, int32_t repetitions);

  Stream& stream() { return stream_; }
  // Of a buffer that no cache holds, in a graph too.
  double read_bytes_per_second() const { return read_bytes_per_second_; }
  // Read before each replay, so that the caches hold nothing of what it needs.
  int64_t flush_bytes() const { return flush_bytes_; }

  // Seconds that one replay of what `body` launches takes on the device. Errors: those of capture_graph().
  Result<double> measure(const std::function<void(Stream&)>& body);

 private:
  KernelTimer(Device& device, int32_t repetitions, int64_t flush_bytes)
      : stream_(device), repetitions_(repetitions), flush_bytes_(flush_bytes) {}
  Result<double> median_of_replays(const std::function<void(Stream&)>& body, bool flush);
  void read(int64_t bytes);

  Stream stream_;
  int32_t repetitions_;
  int64_t flush_bytes_;
  double read_bytes_per_second_ = 0;
  std::unique_ptr<PersistentBuffer<std::byte>> memory_;
  std::unique_ptr<PersistentBuffer<uint64_t>> word_;
};

}  // namespace lantern::cli
