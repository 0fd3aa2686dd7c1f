// Host memory between which and the device a stream copies while the calling thread goes on.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "device/device.h"

namespace lantern {

template <class T>
class PinnedBuffer {
 public:
  // Zeroed; out_of_memory where the system does not give it. The device must outlive it.
  static Result<std::unique_ptr<PinnedBuffer>> create(Device& device, std::string_view owner, int64_t capacity) {
    const size_t bytes = static_cast<size_t>(capacity) * sizeof(T);
    void* address = device.allocate_pinned(bytes);
    if (address == nullptr) {
      return Error(
          ErrorCode::kOutOfMemory,
          fmt::format("'{}' needs {} bytes of pinned host memory, which the system does not give", owner, bytes));
    }
    return std::unique_ptr<PinnedBuffer>(
        new PinnedBuffer(device, {static_cast<T*>(address), static_cast<size_t>(capacity)}));
  }
  ~PinnedBuffer() { device_.release_pinned(values_.data()); }
  PinnedBuffer(const PinnedBuffer&) = delete;
  PinnedBuffer& operator=(const PinnedBuffer&) = delete;

  std::span<T> values() const { return values_; }

 private:
  PinnedBuffer(Device& device, std::span<T> values) : device_(device), values_(values) {}

  Device& device_;
  std::span<T> values_;
};

}  // namespace lantern
