// What was asked of the device about kernels, or for them: once for each, and then found without an allocation.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <utility>

namespace lantern {

// For any number of threads.
template <class Value>
class KernelTable {
 public:
  // What `ask` returned, an optional<Value>, when it was first called for the kernel on the device; null where it
  // returns nothing, which is not kept.
  template <class Ask>
  const Value* find(const void* kernel, int device, const Ask& ask) {
    const std::lock_guard lock(mutex_);
    const std::pair key(kernel, device);
    if (const auto known = values_.find(key); known != values_.end()) return &known->second;
    const std::optional<Value> value = ask();
    return value ? &values_.emplace(key, *value).first->second : nullptr;
  }

 private:
  std::mutex mutex_;
  std::map<std::pair<const void*, int>, Value> values_;  // their addresses stay
};

}  // namespace lantern
