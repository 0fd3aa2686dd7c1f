#include "cli/kernel_timer.h"

#include <algorithm>
#include <vector>

#include "base/median.h"
#include "device/stream_event.h"
#include "ops/memory_read.h"
#include "ops/random_fill.h"

namespace lantern::cli {
namespace {

constexpr int64_t kMebi = int64_t{1} << 20;

// Several times what a GPU's L2 cache holds; twice the last-level cache of a CPU, unless that is one of many sockets.
int64_t flush_bytes_of(const Device& device) {
  constexpr int64_t kMost = 256 * kMebi;
  if (device.kind() == DeviceKind::kCuda) return kMost;
  const int64_t twice = std::clamp(2 * last_level_cache_bytes(), 32 * kMebi, kMost);
  return (twice + kReadPieceBytes - 1) / kReadPieceBytes * kReadPieceBytes;
}

}  // namespace

Result<std::unique_ptr<KernelTimer>> KernelTimer::create(Device& device, int32_t repetitions) {
  const int64_t flush = flush_bytes_of(device);
  const int64_t bytes = device.kind() == DeviceKind::kCuda ? 4 * flush : 2 * flush;
  std::unique_ptr<KernelTimer> timer(new KernelTimer(device, repetitions, flush));
  ASSIGN_OR_RETURN(timer->memory_, PersistentBuffer<std::byte>::create(device, "memory to read", bytes));
  ASSIGN_OR_RETURN(timer->word_, PersistentBuffer<uint64_t>::create(device, "word of memory read", 1));
  random_fill(timer->stream_, {.data = timer->memory_->fixed(), .bytes = bytes, .values = RandomValues::kE4m3});
  ASSIGN_OR_RETURN(const double seconds,
                   timer->median_of_replays([&](Stream&) { timer->read(bytes); }, /*flush=*/false));
  timer->read_bytes_per_second_ = static_cast<double>(bytes) / seconds;
  return timer;
}

void KernelTimer::read(int64_t bytes) {
  read_memory(stream_, {.data = Fixed<const std::byte>(memory_->fixed(bytes)), .bytes = bytes, .word = word_->fixed()});
}

Result<double> KernelTimer::measure(const std::function<void(Stream&)>& body) { return median_of_replays(body, true); }

Result<double> KernelTimer::median_of_replays(const std::function<void(Stream&)>& body, bool flush) {
  body(stream_);
  stream_.synchronize();
  ASSIGN_OR_RETURN(const std::unique_ptr<Graph> graph,
                   capture_graph(stream_, BucketKey{}, [&](Stream& stream) -> Status {
                     body(stream);
                     return {};
                   }));
  const std::unique_ptr<StreamEvent> begin = StreamEvent::make(stream_), end = StreamEvent::make(stream_);
  std::vector<double> seconds;
  for (int32_t i = -1; i < repetitions_; ++i) {
    // A GPU gets all of this at once and is still reading when the replay is submitted, so that it never waits for the
    // host between the events.
    if (flush) read(flush_bytes_);
    begin->record();
    graph->replay(stream_, {.keep_workspace = true});
    end->record();
    const double passed = end->seconds_since(*begin);
    if (i >= 0) seconds.push_back(passed);
  }
  return median(std::move(seconds));
}

}  // namespace lantern::cli
