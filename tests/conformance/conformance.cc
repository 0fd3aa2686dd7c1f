#include "conformance/conformance.h"

#include <cmath>
#include <cstring>

namespace lantern::conformance {
namespace {

void compare(const Output& want, const Output& got, const std::string& who) {
  SCOPED_TRACE(who + ", " + want.name);
  ASSERT_EQ(want.values.index(), got.values.index());
  if (!std::holds_alternative<std::vector<float>>(want.values)) {
    EXPECT_TRUE(want.values == got.values);
    if (std::holds_alternative<std::vector<int32_t>>(want.values)) {
      EXPECT_EQ(std::get<std::vector<int32_t>>(want.values), std::get<std::vector<int32_t>>(got.values));
    }
    return;
  }
  const auto& a = std::get<std::vector<float>>(want.values);
  const auto& b = std::get<std::vector<float>>(got.values);
  ASSERT_EQ(a.size(), b.size());
  double largest = 0;
  for (const float value : a) largest = std::isfinite(value) ? std::max(largest, std::fabs(double{value})) : largest;
  int faults = 0;
  for (size_t i = 0; i < a.size() && faults < 4; ++i) {
    const bool same = std::memcmp(&a[i], &b[i], sizeof(float)) == 0 || (std::isnan(a[i]) && std::isnan(b[i]));
    if (same || std::fabs(double{a[i]} - double{b[i]}) <= want.tolerance * largest) continue;
    ++faults;
    ADD_FAILURE() << "element " << i << " is " << b[i] << ", on the host " << a[i] << "; of magnitudes up to "
                  << largest << ", tolerance " << want.tolerance;
  }
}

// The answer, which a second run must repeat bit by bit.
std::vector<Output> answer(const Case& c, Device& device, const std::string& who) {
  Bench first(device), second(device);
  std::vector<Output> outputs = c.run(first);
  std::vector<Output> again = c.run(second);
  EXPECT_EQ(outputs.size(), again.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    const double tolerance = std::exchange(outputs[i].tolerance, 0);
    compare(outputs[i], again[i], who + " again");
    outputs[i].tolerance = tolerance;
  }
  return outputs;
}

}  // namespace

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

void check(const Case& c) {
  const std::unique_ptr<Device> host = make_host_device(2);
  const std::vector<Output> want = answer(c, *host, "cpu");
  Result<std::unique_ptr<Device>> cuda = make_cuda_device();
  if (!cuda.ok()) GTEST_SKIP() << "no device: " << cuda.error().message();
  const std::vector<Output> got = answer(c, **cuda, "cuda");
  ASSERT_EQ(want.size(), got.size());
  for (size_t i = 0; i < want.size(); ++i) compare(want[i], got[i], "cuda");
}

std::vector<float> normal(Random& random, int64_t count, float scale) {
  std::normal_distribution<float> distribution(0.0f, scale);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = distribution(random);
  return values;
}

std::vector<int32_t> integers(Random& random, int64_t count, int32_t low, int32_t high) {
  std::uniform_int_distribution<int32_t> distribution(low, high);
  std::vector<int32_t> values(static_cast<size_t>(count));
  for (int32_t& value : values) value = distribution(random);
  return values;
}

}  // namespace lantern::conformance
