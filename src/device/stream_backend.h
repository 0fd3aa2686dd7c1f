// What a device implements for Stream: running, recording and replaying launches. For stream.h and for
// implementations of devices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/result.h"
#include "device/graph.h"

namespace lantern {

struct HostContext;
class LaunchLog;

// A host launch in a form that does not know its parameters' type.
struct HostLaunch {
  using Kernel = void (*)();
  using Invoke = void (*)(Kernel kernel, const void* params, HostContext& context);

  const char* name;
  Kernel kernel;  // as Invoke casts it back
  Invoke invoke;
  const void* params;
  size_t params_bytes;
};

class StreamBackend {
 public:
  virtual ~StreamBackend() = default;

  // Null where host kernels cannot run.
  virtual HostContext* host_context() { return nullptr; }
  // The device's own stream, for launches of its own kind: cudaStream_t.
  virtual void* native_handle() { return nullptr; }

  // Waits until everything launched has finished.
  virtual void synchronize() = 0;
  // Ordered after what was launched before. Host memory must stay until synchronize() and be pinned for the copy to be
  // asynchronous. Never called while recording.
  virtual void copy_to_device(void* destination, const void* source, size_t bytes) = 0;
  virtual void copy_to_host(void* destination, const void* source, size_t bytes) = 0;
  // Fills device memory with a 4-byte pattern, from its first byte on; the last bytes may hold a part of one.
  virtual void fill(void* destination, uint32_t pattern, size_t bytes) = 0;

  // From begin to end or abandon, launches are recorded instead of run. An error leaves nothing recorded.
  virtual Status begin_capture() = 0;
  // `capture` goes into the graph.
  virtual Result<std::unique_ptr<Graph>> end_capture(GraphCapture capture) = 0;
  virtual void abandon_capture() = 0;
  // Only where host_context() is not null.
  virtual void record(const HostLaunch& launch) = 0;
};

}  // namespace lantern
