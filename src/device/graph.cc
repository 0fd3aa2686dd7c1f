#include "device/graph.h"

#include "base/check.h"
#include "device/stream.h"

namespace lantern {

void Graph::check_memory(const Stream& stream) {
  const MemoryLedger& ledger = stream.device().ledger();
  const uint64_t removals = ledger.removals();
  if (removals == capture_.removals) return;
  for (const uint64_t id : capture_.memory) {
    CHECK(ledger.has(id), "the graph of the {} was recorded on memory that has been released since",
          to_string(bucket()));
  }
  capture_.removals = removals;
}

void Graph::replay(Stream& stream, const ReplayOptions& options) {
  CHECK(&stream.device() == capture_.device, "the graph of the {} was replayed on another device, {}",
        to_string(bucket()), stream.device().description());
  CaptureGuard::forbid("a replay");
  check_memory(stream);
  if (stream.poison_before_replay() && !options.keep_workspace) stream.poison_workspaces();
  stream.log_.set_mode(LaunchRecord::Mode::kReplayed, bucket());
  run(*stream.backend_, stream.log_);
  stream.log_.set_mode(LaunchRecord::Mode::kEager);
}

Result<std::unique_ptr<Graph>> capture_graph(Stream& stream, const BucketKey& bucket,
                                             const std::function<Status(Stream&)>& body) {
  RETURN_IF_ERROR(stream.begin_capture(bucket));
  Status status = body(stream);
  if (!status.ok()) {
    stream.abandon_capture();
    return std::move(status).error();
  }
  return stream.end_capture();
}

}  // namespace lantern
