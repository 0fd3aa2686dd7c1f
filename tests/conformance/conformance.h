// A case runs one op on a device and gives what it wrote. The host's answer is the reference for all other devices; the
// host's own kernels are held to references in double by the tests beside them.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <random>
#include <string>
#include <variant>
#include <vector>

#include "device/persistent_buffer.h"
#include "device/stream.h"

namespace lantern::conformance {

// Memory of one device, and a stream on it.
class Bench {
 public:
  explicit Bench(Device& device) : stream(device), device_(device) {}

  template <class T>
  Fixed<T> put(const std::vector<T>& values) {
    auto buffer = PersistentBuffer<T>::create(device_, "conformance", static_cast<int64_t>(values.size()));
    CHECK(buffer.ok(), "no memory for a test: {}", buffer.ok() ? "" : buffer.error().message());
    const Fixed<T> fixed = (*buffer)->fixed();
    device_.copy_to_device(fixed.data(), values.data(), values.size() * sizeof(T));
    owned_.push_back(std::shared_ptr<void>(std::move(buffer).value().release(),
                                           [](void* b) { delete static_cast<PersistentBuffer<T>*>(b); }));
    return fixed;
  }
  template <class T>
  Fixed<const T> input(const std::vector<T>& values) {
    return put(values);
  }
  // Room for a result, of bytes that no kernel would write.
  template <class T>
  Fixed<T> room(int64_t count) {
    std::vector<T> values(static_cast<size_t>(count));
    std::fill_n(reinterpret_cast<unsigned char*>(values.data()), values.size() * sizeof(T), 0x5a);
    return put(values);
  }
  template <class T>
  std::vector<T> get(const Fixed<T>& source) {
    stream.synchronize();
    std::vector<T> values(static_cast<size_t>(source.size()));
    device_.copy_to_host(values.data(), source.data(), values.size() * sizeof(T));
    return values;
  }
  int workers() const { return device_.worker_count(); }

  Stream stream;

 private:
  Device& device_;
  std::vector<std::shared_ptr<void>> owned_;
};

struct Output {
  std::string name;
  std::variant<std::vector<float>, std::vector<int32_t>, std::vector<std::byte>> values;
  // Of floats: largest difference, as a share of the largest finite magnitude of the host's answer. 0: the same bits
  // but for NaN, which must be NaN.
  double tolerance = 0;
};

struct Case {
  std::string name;
  std::function<std::vector<Output>(Bench&)> run;
};
void PrintTo(const Case& c, std::ostream* out);
inline std::string case_name(const testing::TestParamInfo<Case>& info) { return info.param.name; }

// Runs the case on the host, twice for equal bits, and on the GPU, twice as well. Without one the test is skipped then.
void check(const Case& c);

using Random = std::mt19937;
std::vector<float> normal(Random& random, int64_t count, float scale = 1.0f);
std::vector<int32_t> integers(Random& random, int64_t count, int32_t low, int32_t high);  // in [low, high]

}  // namespace lantern::conformance
