// The CPU as a device: memory of the process, kernels on the calling thread and a thread pool.
#pragma once

#include <cstring>

#include "device/capture_guard.h"
#include "device/device.h"

namespace lantern {

class HostDevice final : public Device {
 public:
  explicit HostDevice(int threads) : threads_(threads) {}

  DeviceKind kind() const override { return DeviceKind::kCpu; }
  std::string description() const override;
  size_t available_bytes() const override;
  int worker_count() const override { return threads_.thread_count(); }
  void copy_to_device(void* destination, const void* source, size_t bytes) override {
    CaptureGuard::forbid("copy_to_device()");
    copy(destination, source, bytes);
  }
  void copy_to_host(void* destination, const void* source, size_t bytes) override {
    CaptureGuard::forbid("copy_to_host()");
    copy(destination, source, bytes);
  }
  std::unique_ptr<StreamBackend> make_stream_backend() override;

  // Nothing may come from nowhere: memcpy itself forbids null even for no bytes.
  static void copy(void* destination, const void* source, size_t bytes) {
    if (bytes != 0) std::memcpy(destination, source, bytes);
  }

 protected:
  void* allocate_zeroed(size_t bytes) override;
  void release_memory(void* address) override;

 private:
  ThreadPool threads_;
};

}  // namespace lantern
