#pragma once

#include <cstring>

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
    copy(destination, source, bytes);
  }
  void copy_to_host(void* destination, const void* source, size_t bytes) override { copy(destination, source, bytes); }
  ThreadPool& threads() { return threads_; }

 protected:
  void* allocate_zeroed(size_t bytes) override;
  void release_memory(void* address) override;

 private:
  // Nothing may come from nowhere: memcpy itself forbids null even for no bytes.
  static void copy(void* destination, const void* source, size_t bytes) {
    if (bytes != 0) std::memcpy(destination, source, bytes);
  }

  ThreadPool threads_;
};

}  // namespace lantern
