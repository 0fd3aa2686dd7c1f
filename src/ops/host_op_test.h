// What the tests of host operators share: a device and stream of a given number of threads, and test data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "device/device.h"
#include "device/fixed.h"
#include "device/stream.h"

namespace lantern {

struct HostOps {
  explicit HostOps(int threads = 1) : device(make_host_device(threads)), stream(*device) {}

  std::unique_ptr<Device> device;
  Stream stream;
};

template <class T>
Fixed<T> fixed(std::vector<T>& values) {
  return borrow_fixed(values.data(), static_cast<int64_t>(values.size()));
}
template <class T>
Fixed<const T> fixed(const std::vector<T>& values) {
  return borrow_fixed(values.data(), static_cast<int64_t>(values.size()));
}

inline std::vector<float> random_normal(uint32_t seed, int64_t count, float scale = 1.0f) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(generator);
  return values;
}

// Equal as bytes: tells -0 from 0 and accepts equal NaNs.
template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

}  // namespace lantern
