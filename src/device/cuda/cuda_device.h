// A GPU. Compiled by nvcc only: everybody else makes one with make_cuda_device() and sees a Device.
#pragma once

#include <mutex>
#include <string>
#include <unordered_map>

#include "device/device.h"
#include "device/stream_backend.h"

namespace lantern {

class CudaDevice final : public Device {
 public:
  CudaDevice(int ordinal, std::string description, int multiprocessors, cudaStream_t copies);
  ~CudaDevice() override;

  DeviceKind kind() const override { return DeviceKind::kCuda; }
  std::string description() const override { return description_; }
  size_t available_bytes() const override;
  int worker_count() const override { return multiprocessors_; }
  void copy_to_device(void* destination, const void* source, size_t bytes) override;
  void copy_to_host(void* destination, const void* source, size_t bytes) override;
  void* allocate_pinned(size_t bytes) override;
  void release_pinned(void* address) override;
  std::unique_ptr<StreamBackend> make_stream_backend() override;

  // CUDA speaks to the calling thread's device.
  void make_current() const;

  // Streams that copies wait for. One that is being captured has nothing to wait for, and must not be asked.
  void add_stream(cudaStream_t stream);
  void remove_stream(cudaStream_t stream);
  void set_capturing(cudaStream_t stream, bool capturing);

 protected:
  void* allocate_zeroed(size_t bytes) override;
  void release_memory(void* address) override;

 private:
  void copy(void* destination, const void* source, size_t bytes, cudaMemcpyKind kind);

  int ordinal_;
  std::string description_;
  int multiprocessors_;
  cudaStream_t copies_;
  std::mutex mutex_;
  std::unordered_map<void*, void*> allocations_;    // what was handed out -> what CUDA gave
  std::unordered_map<cudaStream_t, bool> streams_;  // -> whether it is being captured
};

// A call that cannot fail unless something is badly wrong, such as an illegal access of an earlier launch: the CHECK
// prints what was launched last. `what` is a verb: "copy 12 bytes".
#define LANTERN_CUDA_CHECK(call, ...)                                                                \
  do {                                                                                               \
    const cudaError_t cuda_error = (call);                                                           \
    CHECK(cuda_error == cudaSuccess,                                                                 \
          "CUDA could not {}: {} ({}); an error of an earlier launch may only show up here",         \
          ::fmt::format(__VA_ARGS__), cudaGetErrorString(cuda_error), cudaGetErrorName(cuda_error)); \
  } while (false)

}  // namespace lantern
