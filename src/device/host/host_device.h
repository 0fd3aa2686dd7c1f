#pragma once

#include "device/device.h"

namespace lantern {

class HostDevice final : public Device {
 public:
  explicit HostDevice(int threads) : threads_(threads) {}

  DeviceKind kind() const override { return DeviceKind::kCpu; }
  std::string description() const override;
  size_t available_bytes() const override;
  ThreadPool& threads() { return threads_; }

 protected:
  void* allocate_zeroed(size_t bytes) override;
  void release_memory(void* address) override;

 private:
  ThreadPool threads_;
};

}  // namespace lantern
