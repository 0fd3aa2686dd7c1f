// Fixed<T>: a contiguous view of memory whose address does not change for the life of its owner. Only owners of fixed
// memory can make one (PersistentBuffer, Workspace, WeightStore, BlockPool), or borrow_fixed() at the C boundary.
// DevPtr<T> is what a launch's parameter struct holds; it is made from a Fixed only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/check.h"
#include "base/host_device.h"

namespace lantern {

template <class T>
class Fixed {
 public:
  Fixed() = default;
  // Fixed<T> -> Fixed<const T>.
  operator Fixed<const T>() const
    requires(!std::is_const_v<T>)
  {
    return Fixed<const T>(data_, size_);
  }

  int64_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  // Elements [begin, begin + count): still fixed, still contiguous.
  Fixed sub(int64_t begin, int64_t count) const {
    CHECK(begin >= 0 && count >= 0 && begin <= size_ - count, "a view of {} elements from {} of a buffer of {}", count,
          begin, size_);
    return Fixed(data_ + begin, count);
  }
  // The device address. On the host device it may be dereferenced.
  T* data() const { return data_; }

 private:
  template <class U>
  friend class Fixed;
  friend struct FixedOwner;
  Fixed(T* data, int64_t size) : data_(data), size_(size) {}

  T* data_ = nullptr;
  int64_t size_ = 0;
};

// The one door through which owners of fixed memory mint views. Owners derive from it; nobody else may.
struct FixedOwner {
 protected:
  template <class T>
  static Fixed<T> mint(T* data, int64_t size) {
    return Fixed<T>(data, size);
  }
  template <class T>
  friend Fixed<T> borrow_fixed(T* data, int64_t capacity);
};

// For memory owned by a caller of the C ABI, who promises that it outlives every recorded launch. The promise is not
// taken on trust: a capture refuses memory that was not registered with the device (Device::register_memory).
template <class T>
Fixed<T> borrow_fixed(T* data, int64_t capacity) {
  return FixedOwner::mint(data, capacity);
}

// How DevPtr remembers its extent: bytes in the lower 48 bits, above them a checksum of address and bytes by which a
// capture finds the pointers in a launch's parameters (launch_pointers.h). The checksum is never that of a small
// positive or negative number.
constexpr uint64_t kDeviceExtentMask = (uint64_t{1} << 48) - 1;
constexpr uint64_t device_extent(uint64_t address, uint64_t bytes) {
  const uint64_t extent = bytes < kDeviceExtentMask ? bytes : kDeviceExtentMask;
  const uint64_t mixed = (address ^ (extent * 0x9e3779b97f4a7c15u)) * 0xd6e8feb86659fd93u;
  return extent | ((((mixed >> 48) & 0x7ffeu) | 0x8000u) << 48);
}

// A device address inside a parameter struct. Trivially copyable; null means "not given".
template <class T>
class DevPtr {
 public:
  DevPtr() = default;
  DevPtr(const Fixed<T>& fixed) : DevPtr(fixed.data(), fixed.size()) {}
  DevPtr(const Fixed<std::remove_const_t<T>>& fixed)
    requires std::is_const_v<T>
      : DevPtr(fixed.data(), fixed.size()) {}

  LANTERN_HOST_DEVICE T* get() const { return address_; }
  // Elements of the view that it was made from.
  int64_t size() const { return static_cast<int64_t>((extent_ & kDeviceExtentMask) / sizeof(T)); }
  LANTERN_HOST_DEVICE T& operator[](int64_t i) const { return address_[i]; }
  LANTERN_HOST_DEVICE explicit operator bool() const { return address_ != nullptr; }

 private:
  DevPtr(T* address, int64_t size) : address_(address) {
    if (address == nullptr) return;
    const auto count = static_cast<uint64_t>(size);  // a negative size is far too long, and a capture sees it so
    const uint64_t bytes = count <= kDeviceExtentMask / sizeof(T) ? count * sizeof(T) : kDeviceExtentMask;
    extent_ = device_extent(reinterpret_cast<uintptr_t>(address), bytes);
  }

  T* address_ = nullptr;
  uint64_t extent_ = 0;
};
static_assert(sizeof(DevPtr<float>) == 16 && alignof(DevPtr<float>) == 8);

}  // namespace lantern
