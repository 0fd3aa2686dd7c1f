// Fixed<T>: a contiguous view of memory whose address does not change for the life of its owner. Only owners of fixed
// memory can make one (PersistentBuffer, Workspace, WeightStore, BlockPool), or borrow_fixed() at the C boundary.
// DevPtr<T> is what a launch's parameter struct holds; it is made from a Fixed only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/check.h"

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

// For memory owned by a caller of the C ABI, who promises that it outlives every recorded launch.
template <class T>
Fixed<T> borrow_fixed(T* data, int64_t capacity) {
  return FixedOwner::mint(data, capacity);
}

// A device address inside a parameter struct. Trivially copyable; null means "not given".
template <class T>
class DevPtr {
 public:
  DevPtr() = default;
  DevPtr(const Fixed<T>& fixed) : address_(fixed.data()) {}
  DevPtr(const Fixed<std::remove_const_t<T>>& fixed)
    requires std::is_const_v<T>
      : address_(fixed.data()) {}

  T* get() const { return address_; }
  T& operator[](int64_t i) const { return address_[i]; }
  explicit operator bool() const { return address_ != nullptr; }

 private:
  T* address_ = nullptr;
};

}  // namespace lantern
