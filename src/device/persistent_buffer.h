// One allocation that keeps its address and capacity for life: it cannot be resized, copied or moved.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "device/device.h"
#include "device/fixed.h"

namespace lantern {

template <class T>
class PersistentBuffer : FixedOwner {
 public:
  static Result<std::unique_ptr<PersistentBuffer>> create(Device& device, std::string_view owner, int64_t capacity,
                                                          MemoryClass memory_class = MemoryClass::kPersistent) {
    CHECK(capacity >= 0, "'{}' asked for {} elements", owner, capacity);
    size_t bytes = 0;
    // More than the address space: let the device refuse it with its numbers.
    if (__builtin_mul_overflow(static_cast<size_t>(capacity), sizeof(T), &bytes)) bytes = SIZE_MAX;
    ASSIGN_OR_RETURN(void* address, device.allocate(memory_class, owner, bytes));
    return std::unique_ptr<PersistentBuffer>(new PersistentBuffer(device, static_cast<T*>(address), capacity));
  }
  ~PersistentBuffer() { device_.release(data_); }
  PersistentBuffer(const PersistentBuffer&) = delete;
  PersistentBuffer& operator=(const PersistentBuffer&) = delete;

  int64_t capacity() const { return capacity_; }
  Fixed<T> fixed() const { return mint(data_, capacity_); }
  Fixed<T> fixed(int64_t count) const { return fixed().sub(0, count); }

 private:
  PersistentBuffer(Device& device, T* data, int64_t capacity) : device_(device), data_(data), capacity_(capacity) {}

  Device& device_;
  T* data_;
  int64_t capacity_;
};

}  // namespace lantern
