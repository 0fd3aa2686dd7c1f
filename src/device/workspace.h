// All activations and scratch of a step, laid out once. The same layout code runs twice: over a counting Workspace,
// which only adds up, and over the real one. Regions may share memory by mark() and rewind().
#pragma once

#include <algorithm>
#include <memory>

#include "device/device.h"
#include "device/fixed.h"

namespace lantern {

class Workspace : FixedOwner {
 public:
  // A counting workspace: take() returns views that must not be dereferenced.
  static Workspace counting() { return Workspace(nullptr, nullptr, 0); }
  static Result<Workspace> create(Device& device, size_t bytes) {
    ASSIGN_OR_RETURN(void* address, device.allocate(MemoryClass::kWorkspace, "workspace", bytes));
    return Workspace(&device, static_cast<std::byte*>(address), bytes);
  }
  Workspace(Workspace&& other) noexcept
      : device_(std::exchange(other.device_, nullptr)),
        base_(std::exchange(other.base_, nullptr)),
        capacity_(other.capacity_),
        used_(other.used_),
        peak_(other.peak_) {}
  Workspace& operator=(Workspace&&) = delete;
  ~Workspace() {
    if (device_ != nullptr) device_->release(base_);
  }

  // `count` elements aligned to 256 bytes. Contents are undefined.
  template <class T>
  Fixed<T> take(int64_t count) {
    const size_t begin = (used_ + 255) / 256 * 256;
    size_t bytes = 0;
    const bool overflow = count < 0 || __builtin_mul_overflow(static_cast<size_t>(count), sizeof(T), &bytes) ||
                          __builtin_add_overflow(begin, bytes, &used_);
    CHECK(!overflow, "a workspace region of {} elements of {} bytes was asked for", count, sizeof(T));
    peak_ = std::max(peak_, used_);
    CHECK(device_ == nullptr || used_ <= capacity_, "the workspace of {} bytes was laid out for {}", capacity_, used_);
    return mint(device_ == nullptr ? static_cast<T*>(nullptr) : reinterpret_cast<T*>(base_ + begin), count);
  }

  size_t mark() const { return used_; }
  void rewind(size_t mark) {
    CHECK(mark <= used_, "the workspace cannot be rewound forward, from {} to {}", used_, mark);
    used_ = mark;
  }
  // Bytes that the layout needs at its widest.
  size_t peak_bytes() const { return peak_; }

 private:
  Workspace(Device* device, std::byte* base, size_t capacity) : device_(device), base_(base), capacity_(capacity) {}

  Device* device_;
  std::byte* base_;
  size_t capacity_;
  size_t used_ = 0;
  size_t peak_ = 0;
};

}  // namespace lantern
