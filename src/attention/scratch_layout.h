// Lays regions out in a launch's scratch. The same sequence of take() calls over a null base counts the bytes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lantern {

class ScratchLayout {
 public:
  explicit ScratchLayout(std::byte* base) : base_(base) {}

  // `count` elements, 64 bytes apart from the next region.
  template <class T>
  T* take(int64_t count) {
    T* region = base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + used_);
    used_ += (count * static_cast<int64_t>(sizeof(T)) + 63) / 64 * 64;
    return region;
  }
  int64_t used() const { return used_; }

 private:
  std::byte* base_;
  int64_t used_ = 0;
};

}  // namespace lantern
