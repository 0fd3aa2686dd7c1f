// The inner loops, on every instruction set of this machine that was built.
#include "attention/host_math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "attention/test_support.h"
#include "hwy/highway.h"

namespace lantern {
namespace {

using host_math::kTile;

// Runs a test body once for each instruction set, by narrowing what Highway may choose from.
class HostMath : public testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override {
    hwy::SetSupportedTargetsForTest(GetParam());
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    ASSERT_EQ(std::string(host_math::target_name()), hwy::TargetName(GetParam()));
  }
  void TearDown() override {
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
  std::mt19937 generator_{7};
};

TEST_P(HostMath, ProductsEqualFloat64AndDependOnTheirOwnRowAlone) {
  struct Shape {
    int64_t m, n, k;
  };
  for (const Shape s : {Shape{1, 64, 128}, Shape{13, 64, 192}, Shape{7, 37, 300}, Shape{2, 3, 5}, Shape{6, 128, 1},
                        Shape{17, 512, 64}, Shape{5, 16, 577}}) {
    std::vector<float> a = test::random_floats(generator_, static_cast<size_t>(s.m * s.k));
    std::vector<float> b = test::random_floats(generator_, static_cast<size_t>(s.k * s.n));
    std::vector<float> bt(b.size());
    host_math::transpose(s.k, s.n, b.data(), s.n, bt.data(), s.k);
    std::vector<float> nn(static_cast<size_t>(s.m * s.n), 9e9f), nt = nn;
    host_math::multiply_nn(s.m, s.n, s.k, a.data(), s.k, b.data(), s.n, nn.data(), s.n, false);
    host_math::multiply_nt(s.m, s.n, s.k, a.data(), s.k, bt.data(), s.k, nt.data(), s.n, false);
    // Sums of k products of unit normals, each step rounded by 6e-8 of a partial sum of about sqrt(k): a deviation of
    // 6e-8 * k, of which four are allowed. One product left out changes a sum by about 1.
    const double tolerance = 2.4e-7 * static_cast<double>(s.k) + 1e-6;
    for (int64_t i = 0; i < s.m; ++i) {
      for (int64_t j = 0; j < s.n; ++j) {
        double want = 0.0;
        for (int64_t k = 0; k < s.k; ++k) {
          want += double{a[static_cast<size_t>(i * s.k + k)]} * double{b[static_cast<size_t>(k * s.n + j)]};
        }
        ASSERT_NEAR(nn[static_cast<size_t>(i * s.n + j)], want, tolerance);
        ASSERT_NEAR(nt[static_cast<size_t>(i * s.n + j)], want, tolerance);
      }
      std::vector<float> row(static_cast<size_t>(s.n));
      host_math::multiply_nn(1, s.n, s.k, a.data() + i * s.k, s.k, b.data(), s.n, row.data(), s.n, false);
      ASSERT_EQ(std::memcmp(row.data(), nn.data() + i * s.n, row.size() * 4), 0) << "row " << i;
      host_math::multiply_nt(1, s.n, s.k, a.data() + i * s.k, s.k, bt.data(), s.k, row.data(), s.n, false);
      ASSERT_EQ(std::memcmp(row.data(), nt.data() + i * s.n, row.size() * 4), 0) << "row " << i;
    }
    // A factor first, then the same sums.
    std::vector<float> factor = test::random_floats(generator_, static_cast<size_t>(s.m));
    std::vector<float> c = nn;
    host_math::multiply_nn(s.m, s.n, s.k, a.data(), s.k, b.data(), s.n, c.data(), s.n, false, factor.data());
    for (size_t i = 0; i < c.size(); ++i) {
      const double want = double{nn[i]} * (1.0 + double{factor[i / static_cast<size_t>(s.n)]});
      ASSERT_NEAR(c[i], want, 4 * tolerance);
    }
  }
}

TEST_P(HostMath, DecodesEveryCodeExactly) {
  std::vector<std::byte> codes(256 + 5);
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::byte>(i);
  std::vector<float> values(codes.size());
  host_math::decode_values(DType::kF8E4M3, codes.data(), static_cast<int64_t>(codes.size()), 0.25f, values.data());
  for (size_t i = 0; i < codes.size(); ++i) {
    const float want = to_float(e4m3_t{static_cast<uint8_t>(i)}) * 0.25f;
    if (std::isnan(want)) {
      EXPECT_TRUE(std::isnan(values[i]));
    } else {
      EXPECT_EQ(values[i], want) << i;
      EXPECT_EQ(std::signbit(values[i]), std::signbit(want)) << i;
    }
  }
  std::vector<uint16_t> halves(65536);
  for (size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<uint16_t>(i);
  std::vector<float> wide(halves.size());
  const auto* bytes = reinterpret_cast<const std::byte*>(halves.data());
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    host_math::decode_values(dtype, bytes, 65536, 1.0f, wide.data());
    for (size_t i = 0; i < halves.size(); ++i) {
      const float want = dtype == DType::kBF16 ? to_float(bf16_t{halves[i]}) : to_float(f16_t{halves[i]});
      // Without a conversion instruction f16 infinities become large numbers; no weight holds one.
      if (dtype == DType::kF16 && !std::isfinite(want)) continue;
      ASSERT_TRUE(wide[i] == want || (std::isnan(wide[i]) && std::isnan(want))) << to_string(dtype) << " " << i;
    }
  }
}

TEST_P(HostMath, OneRowByFp8EqualsTheProductOfDecodedValuesBitByBit) {
  struct Shape {
    int64_t rows, cols, block_cols;  // of the matrix
  };
  for (const Shape s : {Shape{192, 512, 128}, Shape{5, 96, 32}, Shape{21, 320, 128}, Shape{8, 64, 512}}) {
    const int64_t row_bytes = s.cols + 3;
    const int64_t blocks = (s.cols + s.block_cols - 1) / s.block_cols;
    std::vector<std::byte> codes(static_cast<size_t>(s.rows * row_bytes), std::byte{0x7f});
    std::vector<float> scales = test::random_floats(generator_, static_cast<size_t>(blocks));
    std::vector<float> values(static_cast<size_t>(s.rows * s.cols));
    const host_math::E4m3Rows rows = {codes.data(), row_bytes, scales.data(), s.block_cols};
    for (int64_t r = 0; r < s.rows; ++r) {
      for (int64_t j = 0; j < s.cols; ++j) {
        auto code = static_cast<uint8_t>(generator_());
        if ((code & 0x7f) == 0x7f) code = 0x81;  // the smallest; NaN has a case of its own
        codes[static_cast<size_t>(r * row_bytes + j)] = std::byte{code};
        values[static_cast<size_t>(r * s.cols + j)] =
            to_float(e4m3_t{code}) * scales[static_cast<size_t>(j / s.block_cols)];
      }
    }
    ASSERT_TRUE(host_math::multiply_row_takes(rows, s.cols));
    const std::vector<float> a = test::random_floats(generator_, static_cast<size_t>(std::max(s.rows, s.cols)));
    for (const bool accumulate : {false, true}) {
      // Without accumulation what stands there must not be read.
      std::vector<float> want(static_cast<size_t>(s.cols), accumulate ? 0.5f : NAN), got = want;
      host_math::multiply_nn(1, s.cols, s.rows, a.data(), s.rows, values.data(), s.cols, want.data(), s.cols,
                             accumulate);
      host_math::multiply_row_e4m3_nn(s.cols, s.rows, a.data(), rows, got.data(), accumulate);
      EXPECT_EQ(std::memcmp(got.data(), want.data(), got.size() * 4), 0) << s.rows << " x " << s.cols;
      want.assign(static_cast<size_t>(s.rows), accumulate ? 0.5f : NAN);
      got = want;
      host_math::multiply_nt(1, s.rows, s.cols, a.data(), s.cols, values.data(), s.cols, want.data(), s.rows,
                             accumulate);
      host_math::multiply_row_e4m3_nt(s.rows, s.cols, a.data(), rows, got.data(), accumulate);
      EXPECT_EQ(std::memcmp(got.data(), want.data(), got.size() * 4), 0) << s.rows << " x " << s.cols << " transposed";
    }
    codes[static_cast<size_t>(3 * row_bytes + 37)] = std::byte{0xff};
    std::vector<float> c(static_cast<size_t>(std::max(s.rows, s.cols)));
    host_math::multiply_row_e4m3_nn(s.cols, s.rows, a.data(), rows, c.data(), false);
    for (int64_t j = 0; j < s.cols; ++j) EXPECT_EQ(std::isnan(c[static_cast<size_t>(j)]), j == 37);
    host_math::multiply_row_e4m3_nt(s.rows, s.cols, a.data(), rows, c.data(), false);
    for (int64_t j = 0; j < s.rows; ++j) EXPECT_EQ(std::isnan(c[static_cast<size_t>(j)]), j == 3);
    EXPECT_FALSE(host_math::multiply_row_takes(rows, s.cols - 1));
    scales.back() = 2e36f;
    EXPECT_FALSE(host_math::multiply_row_takes(rows, s.cols));
  }
}

TEST_P(HostMath, ExponentialIsAccurateAndExactAtZero) {
  EXPECT_EQ(host_math::exponential(0.0f), 1.0f);
  EXPECT_EQ(host_math::exponential(-0.0f), 1.0f);
  EXPECT_EQ(host_math::exponential(-88.0f), 0.0f);
  EXPECT_EQ(host_math::exponential(-std::numeric_limits<float>::infinity()), 0.0f);
  EXPECT_TRUE(std::isnan(host_math::exponential(std::numeric_limits<float>::quiet_NaN())));
  for (float x = -87.2f; x < 0.0f; x += 0.00317f) {
    const double want = std::exp(double{x});
    // Two units in the last place of float.
    ASSERT_NEAR(host_math::exponential(x) / want, 1.0, 2.4e-7) << x;
  }
}

TEST_P(HostMath, SoftmaxTileMasksExactly) {
  for (const uint64_t bits :
       {uint64_t{0}, uint64_t{1}, uint64_t{1} << 63, uint64_t{0xf0f0f0f0f0f0f0f0}, ~uint64_t{0}}) {
    std::vector<float> scores = test::random_floats(generator_, kTile, 4.0f);
    const std::vector<float> before = scores;
    for (size_t j = 0; j < kTile; ++j) {
      if ((bits >> j & 1) == 0) scores[j] = 1e30f;  // would win if it were seen
    }
    float max = -0.5f;
    float sum = 2.0f;
    float factor = -1.0f;
    host_math::softmax_tile(1, scores.data(), &bits, 0.5f, &max, &sum, &factor);
    double want_max = -0.5;
    for (size_t j = 0; j < kTile; ++j) {
      if ((bits >> j & 1) != 0) want_max = std::max(want_max, 0.5 * double{before[j]});
    }
    double want_sum = 2.0 * std::exp(-0.5 - want_max);
    EXPECT_NEAR(factor, std::exp(-0.5 - want_max), 1e-6);
    for (size_t j = 0; j < kTile; ++j) {
      if ((bits >> j & 1) == 0) {
        EXPECT_EQ(scores[j], 0.0f);
        continue;
      }
      const double p = std::exp(0.5 * double{before[j]} - want_max);
      EXPECT_NEAR(scores[j], p, 2e-6);
      want_sum += p;
    }
    EXPECT_NEAR(max, want_max, 1e-6);
    EXPECT_NEAR(sum, want_sum, 1e-5);
    if (bits == 0) {
      EXPECT_EQ(factor, 1.0f);
      EXPECT_EQ(sum, 2.0f);
    }
  }
}

// Whatever lane the NaN is in, and whatever the others hold: numbers, what is masked, or minus infinity.
TEST_P(HostMath, SoftmaxTileKeepsNaN) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const uint64_t bits : {uint64_t{1} << 5, uint64_t{0xfffff}, uint64_t{0xf0f0f0f0f0f0f0f0}, ~uint64_t{0}}) {
    for (const float others : {1.0f, -kInfinity, nan}) {
      for (const float value : {nan, -nan}) {
        for (size_t at = 0; at < kTile; ++at) {
          if ((bits >> at & 1) == 0) continue;
          for (const float before : {-kInfinity, 0.5f}) {
            std::vector<float> scores(kTile, others);
            scores[at] = value;
            float max = before;
            float sum = before == 0.5f ? 1.0f : 0.0f;
            float factor = 0.0f;
            host_math::softmax_tile(1, scores.data(), &bits, 0.5f, &max, &sum, &factor);
            ASSERT_TRUE(std::isnan(sum)) << at << " " << others << " " << before;
            ASSERT_TRUE(std::isnan(scores[at])) << at << " " << others << " " << before;
          }
        }
      }
    }
  }
}

TEST_P(HostMath, SmallLoops) {
  for (const int64_t count : {1, 15, 16, 37}) {
    std::vector<float> x = test::random_floats(generator_, static_cast<size_t>(count));
    const std::vector<float> y = test::random_floats(generator_, static_cast<size_t>(count));
    const std::vector<float> before = x;
    host_math::combine(count, x.data(), 0.5f, y.data(), 2.0f);
    for (size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(x[i], 0.5f * before[i] + 2.0f * y[i], 1e-6);
    x = before;
    host_math::scale(count, x.data(), 3.0f);
    for (size_t i = 0; i < x.size(); ++i) EXPECT_EQ(x[i], 3.0f * before[i]);
  }
  const std::vector<float> products = test::random_floats(generator_, 5 * kTile);
  const std::vector<float> weights = test::random_floats(generator_, 5);
  std::vector<float> out(kTile);
  host_math::relu_weighted_sum(5, products.data(), weights.data(), out.data());
  for (size_t j = 0; j < kTile; ++j) {
    double want = 0.0;
    for (size_t h = 0; h < 5; ++h) want += double{weights[h]} * std::max(0.0, double{products[h * kTile + j]});
    EXPECT_NEAR(out[j], want, 2e-6);
  }
  std::vector<float> broken = products;
  broken[2 * kTile + 7] = std::numeric_limits<float>::quiet_NaN();
  broken[3 * kTile + 63] = -std::numeric_limits<float>::quiet_NaN();
  host_math::relu_weighted_sum(5, broken.data(), weights.data(), out.data());
  for (size_t j = 0; j < kTile; ++j) EXPECT_EQ(std::isnan(out[j]), j == 7 || j == 63) << j;
}

std::vector<int64_t> targets() {
  std::vector<int64_t> list;
  for (int64_t rest = hwy::SupportedTargets() & HWY_TARGETS; rest != 0; rest &= rest - 1) list.push_back(rest & -rest);
  return list;
}

INSTANTIATE_TEST_SUITE_P(Isa, HostMath, testing::ValuesIn(targets()),
                         [](const auto& instance) { return std::string(hwy::TargetName(instance.param)); });

}  // namespace
}  // namespace lantern
