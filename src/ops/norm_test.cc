#include "ops/norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ops/host_op_test.h"

namespace lantern {
namespace {

// Relative error of a float norm: half an ulp for each of the three last operations, plus the sum of squares, which is
// half of its own relative error: at most cols / 64 + 8 additions per lane at 2^-24 each, in practice its square root.
constexpr double kRelative = 1e-6;
constexpr int64_t kWidths[] = {1, 3, 16, 63, 64, 65, 127, 512, 576, 1000, 1536, 7168};

std::vector<double> rms_reference(const float* x, const std::vector<float>& weight, double eps) {
  double sum = 0;
  for (size_t i = 0; i < weight.size(); ++i) sum += double{x[i]} * double{x[i]};
  const double scale = 1 / std::sqrt(sum / static_cast<double>(weight.size()) + eps);
  std::vector<double> y(weight.size());
  for (size_t i = 0; i < y.size(); ++i) y[i] = double{x[i]} * scale * double{weight[i]};
  return y;
}

void expect_relative(const std::vector<double>& expected, const float* actual, double relative, double absolute = 0) {
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_NEAR(expected[i], double{actual[i]}, std::fabs(expected[i]) * relative + absolute) << "element " << i;
  }
}

TEST(RmsNorm, EqualsTheFormulaForEveryWidthAndScale) {
  HostOps ops(2);
  for (int64_t cols : kWidths) {
    // At scale 1e-3 mean(x^2) is as large as eps 1e-6: eps outside of the root, or a sum for a mean, fails.
    for (float scale : {1e-3f, 1.0f, 1e4f}) {
      const int64_t rows = 3;
      const auto x = random_normal(static_cast<uint32_t>(cols), rows * cols, scale);
      const auto weight = random_normal(7, cols);
      std::vector<float> y(x.size());
      rms_norm(ops.stream, {.x = fixed(x),
                            .x_stride = cols,
                            .weight = fixed(weight),
                            .y = fixed(y),
                            .y_stride = cols,
                            .rows = rows,
                            .cols = cols,
                            .eps = 1e-6f});
      for (int64_t r = 0; r < rows; ++r) {
        expect_relative(rms_reference(x.data() + r * cols, weight, 1e-6), y.data() + r * cols, kRelative);
      }
    }
  }
}

TEST(RmsNorm, HonoursStridesAndLeavesTheGapAlone) {
  // The latent: 512 of 576 columns are normalised in place, the rope part of the row stays.
  HostOps ops;
  const int64_t rows = 4;
  auto x = random_normal(1, rows * 576);
  const auto before = x;
  const auto weight = random_normal(2, 512);
  rms_norm(ops.stream, {.x = fixed(x),
                        .x_stride = 576,
                        .weight = fixed(weight),
                        .y = fixed(x),
                        .y_stride = 576,
                        .rows = rows,
                        .cols = 512,
                        .eps = 1e-5f});
  for (int64_t r = 0; r < rows; ++r) {
    const float* source = before.data() + r * 576;
    expect_relative(rms_reference(source, weight, 1e-5), x.data() + r * 576, kRelative);
    for (int64_t i = 512; i < 576; ++i) EXPECT_EQ(x[static_cast<size_t>(r * 576 + i)], source[i]);
  }
}

TEST(RmsNorm, ZeroRowGivesZerosAndNaNStaysVisible) {
  HostOps ops;
  std::vector<float> x(128, 0.0f);
  x[64] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> weight(64, 2.0f);
  std::vector<float> y(128, 5.0f);
  rms_norm(
      ops.stream,
      {.x = fixed(x), .x_stride = 64, .weight = fixed(weight), .y = fixed(y), .y_stride = 64, .rows = 2, .cols = 64});
  for (size_t i = 0; i < 64; ++i) EXPECT_EQ(y[i], 0.0f);
  for (size_t i = 64; i < 128; ++i) EXPECT_TRUE(std::isnan(y[i]));
}

TEST(AddRmsNorm, AddsThenNormalises) {
  HostOps ops(2);
  for (int64_t cols : kWidths) {
    const int64_t rows = 2;
    const auto delta = random_normal(3, rows * cols);
    auto residual = random_normal(4, rows * cols);
    const auto before = residual;
    const auto weight = random_normal(5, cols);
    std::vector<float> y(residual.size());
    add_rms_norm(ops.stream, {.delta = fixed(delta),
                              .residual = fixed(residual),
                              .weight = fixed(weight),
                              .y = fixed(y),
                              .rows = rows,
                              .cols = cols});
    for (size_t i = 0; i < residual.size(); ++i) EXPECT_EQ(residual[i], before[i] + delta[i]);
    for (int64_t r = 0; r < rows; ++r) {
      expect_relative(rms_reference(residual.data() + r * cols, weight, 1e-6), y.data() + r * cols, kRelative);
    }
  }
}

TEST(LayerNorm, EqualsTheFormulaAlsoWithALargeMean) {
  HostOps ops(2);
  for (int64_t cols : {1, 5, 64, 128, 129, 1000}) {
    // With mean 1000 and deviation 1, mean(x^2) - mean^2 in float would lose the variance altogether.
    for (float mean : {0.0f, 1000.0f}) {
      const int64_t rows = 3;
      auto x = random_normal(static_cast<uint32_t>(cols) + 1, rows * cols);
      for (float& value : x) value += mean;
      const auto weight = random_normal(8, cols);
      const auto bias = random_normal(9, cols);
      std::vector<float> y(x.size());
      layer_norm(ops.stream, {.x = fixed(x),
                              .x_stride = cols,
                              .weight = fixed(weight),
                              .bias = fixed(bias),
                              .y = fixed(y),
                              .y_stride = cols,
                              .rows = rows,
                              .cols = cols,
                              .eps = 1e-6f});
      for (int64_t r = 0; r < rows; ++r) {
        const float* row = x.data() + r * cols;
        double average = 0;
        for (int64_t i = 0; i < cols; ++i) average += double{row[i]} / static_cast<double>(cols);
        double variance = 0;
        for (int64_t i = 0; i < cols; ++i) variance += (row[i] - average) * (row[i] - average);
        variance /= static_cast<double>(cols);  // population variance: cols - 1 fails below
        std::vector<double> expected(static_cast<size_t>(cols));
        for (size_t i = 0; i < expected.size(); ++i) {
          expected[i] = (double{row[i]} - average) / std::sqrt(variance + 1e-6) * double{weight[i]} + double{bias[i]};
        }
        // The mean is known to an ulp of itself only: 2^-24 * 1000 = 6e-5 of a deviation; one column hides it in eps.
        const double absolute = mean == 0.0f ? 2e-6 : 4e-4;
        expect_relative(expected, y.data() + r * cols, kRelative, absolute);
      }
    }
  }
}

TEST(LayerNorm, InPlaceGivesTheSameBits) {
  HostOps ops;
  auto x = random_normal(11, 2 * 128);
  const auto weight = random_normal(12, 128);
  const auto bias = random_normal(13, 128);
  std::vector<float> y(x.size());
  LayerNormParams params{.x = fixed(x),
                         .x_stride = 128,
                         .weight = fixed(weight),
                         .bias = fixed(bias),
                         .y = fixed(y),
                         .y_stride = 128,
                         .rows = 2,
                         .cols = 128};
  layer_norm(ops.stream, params);
  params.y = fixed(x);
  layer_norm(ops.stream, params);
  EXPECT_TRUE(same_bits(x, y));
}

TEST(Norms, ARowDoesNotDependOnItsBatchOrTheThreads) {
  const int64_t rows = 37;
  const int64_t cols = 1537;
  const auto x = random_normal(21, rows * cols);
  const auto weight = random_normal(22, cols);
  const auto bias = random_normal(23, cols);
  std::vector<float> alone(x.size());
  std::vector<float> alone_layer(x.size());
  HostOps one(1);
  for (int64_t r = 0; r < rows; ++r) {
    const auto source = fixed(x).sub(r * cols, cols);
    rms_norm(one.stream, {.x = source,
                          .x_stride = cols,
                          .weight = fixed(weight),
                          .y = fixed(alone).sub(r * cols, cols),
                          .y_stride = cols,
                          .rows = 1,
                          .cols = cols});
    layer_norm(one.stream, {.x = source,
                            .x_stride = cols,
                            .weight = fixed(weight),
                            .bias = fixed(bias),
                            .y = fixed(alone_layer).sub(r * cols, cols),
                            .y_stride = cols,
                            .rows = 1,
                            .cols = cols});
  }
  for (int threads : {1, 2, 3}) {
    HostOps ops(threads);
    std::vector<float> together(x.size());
    rms_norm(ops.stream, {.x = fixed(x),
                          .x_stride = cols,
                          .weight = fixed(weight),
                          .y = fixed(together),
                          .y_stride = cols,
                          .rows = rows,
                          .cols = cols});
    EXPECT_TRUE(same_bits(together, alone));
    layer_norm(ops.stream, {.x = fixed(x),
                            .x_stride = cols,
                            .weight = fixed(weight),
                            .bias = fixed(bias),
                            .y = fixed(together),
                            .y_stride = cols,
                            .rows = rows,
                            .cols = cols});
    EXPECT_TRUE(same_bits(together, alone_layer));
  }
}

TEST(Norms, NoRowsIsNoWork) {
  HostOps ops;
  rms_norm(ops.stream, {.cols = 64});
  add_rms_norm(ops.stream, {.cols = 64});
  layer_norm(ops.stream, {.cols = 64});
}

}  // namespace
}  // namespace lantern
