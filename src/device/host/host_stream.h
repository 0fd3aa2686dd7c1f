// The host device's side of a stream: launches run as they come, or are stored as bytes.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "device/graph.h"
#include "device/stream.h"
#include "device/stream_backend.h"

namespace lantern {

class HostGraph final : public Graph {
 public:
  struct Launch {
    const char* name;
    HostLaunch::Kernel kernel;
    HostLaunch::Invoke invoke;
    size_t params_begin;  // in units of max_align_t
    size_t params_bytes;
  };
  // Launches and, aligned for any of them, their parameters.
  struct Recording {
    std::vector<Launch> launches;
    std::vector<std::max_align_t> params;
  };

  HostGraph(GraphCapture capture, Recording recording);
  size_t bytes() const override;

 protected:
  void run(StreamBackend& backend, LaunchLog& log) override;

 private:
  Recording recording_;
};

class HostStream final : public StreamBackend {
 public:
  explicit HostStream(ThreadPool& threads) : context_{threads} {}

  HostContext* host_context() override { return &context_; }
  void synchronize() override {}
  void copy_to_device(void* destination, const void* source, size_t bytes) override;
  void copy_to_host(void* destination, const void* source, size_t bytes) override;
  void fill(void* destination, uint32_t pattern, size_t bytes) override;
  Status begin_capture() override;
  Result<std::unique_ptr<Graph>> end_capture(GraphCapture capture) override;
  void abandon_capture() override { recording_ = {}; }
  void record(const HostLaunch& launch) override;

 private:
  HostContext context_;
  HostGraph::Recording recording_;
};

}  // namespace lantern
