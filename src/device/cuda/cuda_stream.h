// A GPU's side of a stream. Captures are thread-local: what another thread does meanwhile is its own affair, and what
// this one must not do fails. Compiled by nvcc only.
#pragma once

#include "device/cuda/cuda_device.h"
#include "device/stream_backend.h"

namespace lantern {

class CudaGraph final : public Graph {
 public:
  // Takes over `instance`, which takes `bytes` of device memory and runs `kernels`.
  CudaGraph(GraphCapture capture, const CudaDevice& device, cudaGraphExec_t instance, size_t bytes, int64_t kernels);
  ~CudaGraph() override;
  size_t bytes() const override { return bytes_; }
  int64_t kernels() const { return kernels_; }

 protected:
  void run(StreamBackend& backend, LaunchLog& log) override;

 private:
  const CudaDevice& device_;
  cudaGraphExec_t instance_;
  size_t bytes_;
  int64_t kernels_;
};

class CudaStream final : public StreamBackend {
 public:
  explicit CudaStream(CudaDevice& device);
  ~CudaStream() override;

  void* native_handle() override { return stream_; }
  void synchronize() override;
  void copy_to_device(void* destination, const void* source, size_t bytes) override;
  void copy_to_host(void* destination, const void* source, size_t bytes) override;
  void fill(void* destination, uint32_t pattern, size_t bytes) override;
  Status begin_capture() override;
  Result<std::unique_ptr<Graph>> end_capture(GraphCapture capture) override;
  void abandon_capture() override;
  void record(const HostLaunch& launch) override;

 private:
  CudaDevice& device_;
  cudaStream_t stream_ = nullptr;
};

}  // namespace lantern
