// A captured step: launches that were recorded for one bucket, to be replayed for every step that fits it. It holds the
// launches' parameters as bytes; everything that changes from step to step is read from device memory at the addresses
// in those bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "device/bucket_key.h"

namespace lantern {

class Device;
class LaunchLog;
class Stream;
class StreamBackend;

// What a capture has collected, whatever the device.
struct GraphCapture {
  struct Launch {
    const char* name;
    size_t params_bytes;
  };
  BucketKey bucket;
  const Device* device = nullptr;
  std::vector<Launch> launches;
  std::vector<uint64_t> memory;  // ledger entries that the launches' pointers lie in, sorted, each once
  uint64_t removals = 0;         // of the ledger when all of them were there
};

struct ReplayOptions {
  // For pieces of a step that hand over activations in the workspace: it is left as it is even where the stream
  // poisons it before replays.
  bool keep_workspace = false;
};

class Graph {
 public:
  virtual ~Graph() = default;
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  const BucketKey& bucket() const { return capture_.bucket; }
  // In order.
  const std::vector<GraphCapture::Launch>& launches() const { return capture_.launches; }
  // What the graph itself takes, parameters included; not the memory that its launches use.
  virtual size_t bytes() const = 0;

  // Runs the launches after everything launched on the stream before. Broken invariant when the stream is another
  // device's or is recording, or when memory that the launches were recorded on has been released since.
  void replay(Stream& stream, const ReplayOptions& options = {});

 protected:
  explicit Graph(GraphCapture capture) : capture_(std::move(capture)) {}

  // Each host launch, or the whole where single launches cannot be seen, is entered in the log, which has been told
  // the bucket.
  virtual void run(StreamBackend& backend, LaunchLog& log) = 0;

 private:
  void check_memory(const Stream& stream);

  GraphCapture capture_;
};

// Records what `body(stream)` launches. Run the body eagerly once before: what it does for the
// first time only (loading code, choosing algorithms) does not belong into a graph.
// Errors: the body's own; a launch whose pointers lead out of the memory that the device's ledger knows; an allocation.
Result<std::unique_ptr<Graph>> capture_graph(Stream& stream, const BucketKey& bucket,
                                             const std::function<Status(Stream&)>& body);

}  // namespace lantern
