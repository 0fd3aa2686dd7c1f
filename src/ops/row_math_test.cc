#include "ops/row_math_host.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ops/host_op_test.h"

namespace lantern {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// Distance of `actual` from the exact value in units of the exact value's last place (normal numbers).
double ulps(double exact, float actual) {
  const double unit = std::ldexp(1.0, std::max(std::ilogb(exact), -126) - 23);
  return std::fabs(double{actual} - exact) / unit;
}

TEST(SiluMultiply, IsWithinItsStatedErrorOverTheWholeRange) {
  std::vector<float> x;
  for (int i = -80 * 512; i <= 80 * 512; ++i) x.push_back(static_cast<float>(i) / 512.0f);
  for (float tiny : {1e-30f, -1e-30f, 1e-8f, -1e-8f}) x.push_back(tiny);
  std::vector<float> gate = x;
  const std::vector<float> up(x.size(), 1.0f);
  silu_multiply_row(gate.data(), up.data(), static_cast<int64_t>(x.size()));
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double exact = double{x[i]} / (1 + std::exp(-double{x[i]}));
    if (exact == 0) {
      EXPECT_EQ(gate[i], 0.0f);
      continue;
    }
    worst = std::max(worst, ulps(exact, gate[i]));
  }
  EXPECT_LE(worst, 4.0);
  RecordProperty("worst_ulps", std::to_string(worst));
}

TEST(SiluMultiply, MultipliesByUpAndHandlesTheEnds) {
  std::vector<float> gate{200.0f, -200.0f, 0.0f, kNaN, kInf, 3.0e38f, -3.0e38f};
  const std::vector<float> up{-2.0f, 5.0f, 7.0f, 1.0f, 1.0f, 0.5f, 1.0f};
  silu_multiply_row(gate.data(), up.data(), 7);
  EXPECT_EQ(gate[0], -400.0f);
  EXPECT_EQ(gate[1], 0.0f);
  EXPECT_EQ(gate[2], 0.0f);
  EXPECT_TRUE(std::isnan(gate[3]));
  EXPECT_EQ(gate[4], kInf);
  EXPECT_EQ(gate[5], 1.5e38f);
  EXPECT_EQ(gate[6], 0.0f);
}

TEST(SiluMultiply, AnElementDoesNotDependOnItsPlace) {
  const auto x = random_normal(1, 301, 3.0f);
  const auto up = random_normal(2, 301);
  std::vector<float> whole = x;
  silu_multiply_row(whole.data(), up.data(), 301);
  std::vector<float> single = x;
  for (size_t i = 0; i < single.size(); ++i) silu_multiply_row(single.data() + i, up.data() + i, 1);
  EXPECT_TRUE(same_bits(whole, single));
}

TEST(RowMaximum, IgnoresNaNAndFindsEveryPlace) {
  for (int64_t count : {1, 2, 15, 16, 17, 100}) {
    for (int64_t place = 0; place < count; ++place) {
      std::vector<float> x(static_cast<size_t>(count), -5.0f);
      x[0] = place == 0 ? -5.0f : kNaN;
      x[static_cast<size_t>(place)] = -1.0f;
      EXPECT_EQ(row_maximum(x.data(), count), -1.0f);
    }
  }
  const std::vector<float> nothing{kNaN, -kInf, kNaN};
  EXPECT_EQ(row_maximum(nothing.data(), 3), -kInf);
  EXPECT_EQ(row_maximum(nothing.data(), 0), -kInf);
  const std::vector<float> infinite{1.0f, kInf, kNaN};
  EXPECT_EQ(row_maximum(infinite.data(), 3), kInf);
}

TEST(ExponentialRow, IsWithinItsStatedError) {
  std::vector<float> x;
  for (int i = 0; i <= 87 * 1024; ++i) x.push_back(static_cast<float>(-i) / 1024.0f);
  std::vector<float> out(x.size());
  exponential_row(x.data(), static_cast<int64_t>(x.size()), 0.0f, 1.0f, out.data());
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) worst = std::max(worst, ulps(std::exp(double{x[i]}), out[i]));
  EXPECT_LE(worst, 2.0);
  EXPECT_EQ(out[0], 1.0f) << "the maximum has weight exactly 1";
}

TEST(ExponentialRow, UnusualElementsAreZero) {
  const std::vector<float> x{kNaN, -kInf, -3.0e38f, 2.0f, 1.0f};
  std::vector<float> out(5, -1.0f);
  exponential_row(x.data(), 5, 2.0f, 0.5f, out.data());
  EXPECT_EQ(out[0], 0.0f);
  EXPECT_EQ(out[1], 0.0f);
  EXPECT_EQ(out[2], 0.0f);
  EXPECT_EQ(out[3], 1.0f);
  EXPECT_NEAR(out[4], std::exp(-2.0), 2e-8);
  exponential_row(x.data(), 5, 2.0f, 1e-30f, out.data());  // (1 - 2) / 1e-30 is far out of range
  EXPECT_EQ(out[3], 1.0f);
  EXPECT_EQ(out[4], 0.0f);
}

TEST(LogSoftmax, EqualsDoubleOnALargeRow) {
  auto x = random_normal(3, 129280, 4.0f);
  const LogSoftmax softmax = log_softmax_of(x.data(), static_cast<int64_t>(x.size()));
  double sum = 0;
  for (float value : x) sum += std::exp(double{value} - 10.0);
  const double log_sum = std::log(sum) + 10.0;
  for (size_t i = 0; i < x.size(); i += 997) {
    // Each term of the sum is off by an ulp at most; the sum's logarithm by that much absolutely.
    EXPECT_NEAR(softmax.of(x[i]), double{x[i]} - log_sum, 3e-7 + 1e-7 * std::fabs(double{x[i]} - log_sum));
  }
}

TEST(LogSoftmax, IsNeverNaN) {
  const std::vector<float> two{kInf, 0.0f, kInf, kNaN, -kInf};
  const LogSoftmax infinite = log_softmax_of(two.data(), 5);
  EXPECT_NEAR(infinite.of(kInf), -std::log(2.0), 1e-7);
  EXPECT_EQ(infinite.of(0.0f), -kInf);
  EXPECT_EQ(infinite.of(kNaN), -kInf);
  const std::vector<float> none{kNaN, -kInf};
  EXPECT_EQ(log_softmax_of(none.data(), 2).of(kNaN), -kInf);
  EXPECT_EQ(log_softmax_of(none.data(), 2).of(-kInf), -kInf);
  const std::vector<float> large{3.0e38f, -3.0e38f, kNaN};
  const LogSoftmax wide = log_softmax_of(large.data(), 3);
  EXPECT_EQ(wide.of(3.0e38f), 0.0f);
  EXPECT_EQ(wide.of(-3.0e38f), -kInf) << "-6e38 is beyond float";
}

}  // namespace
}  // namespace lantern
