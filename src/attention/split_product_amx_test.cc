#include "attention/split_product_amx.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "attention/host_amx.h"
#include "attention/test_support.h"
#include "base/dtype.h"

namespace lantern {
namespace {

using split_amx::Pieces;
using split_amx::round_up;

struct Matrix {
  explicit Matrix(int64_t count) : high(static_cast<size_t>(count), 0xffff), low(high) {}  // NaN until written
  Pieces pieces() { return {high.data(), low.data()}; }
  std::vector<uint16_t> high, low;
};

float value(uint16_t bits) { return to_float(bf16_t{bits}); }

class SplitProduct : public testing::Test {
 protected:
  void SetUp() override {
    if (missing_host_amx() != nullptr)
      GTEST_SKIP() << "this machine has no AMX for bf16: the split products are not tested here";
  }
  std::mt19937 generator_{13};
};

TEST_F(SplitProduct, PiecesAreTheNearestBf16AndTheNearestOfTheRest) {
  const std::vector<float> x = test::random_floats(generator_, 37, 3.0f);
  Matrix m(64);
  split_amx::split_values(x.data(), 37, 3, m.pieces());
  for (size_t i = 0; i < 37; ++i) {
    const float high = to_float(to_bf16(x[i]));
    EXPECT_EQ(value(m.high[3 + i]), high);
    EXPECT_EQ(value(m.low[3 + i]), to_float(to_bf16(x[i] - high)));
  }
  EXPECT_EQ(m.high[2], 0xffff);
  EXPECT_EQ(m.low[40], 0xffff) << "wrote beyond the values";
}

TEST_F(SplitProduct, EqualsFloat64AndDependsOnItsOwnRowAlone) {
  const int64_t m = 45, keys = 64, width = 200, depth = round_up(width, 32);
  const std::vector<float> a = test::random_floats(generator_, static_cast<size_t>(m * width));
  const std::vector<float> b = test::random_floats(generator_, static_cast<size_t>(keys * width));
  const int64_t room = round_up(m, split_amx::kRowBlock);
  Matrix left(room * depth), rows(keys * depth), right(keys * depth);
  const auto fill = [&](const std::vector<float>& from, int64_t count, Matrix& to) {
    for (int64_t r = 0; r < count; ++r) {
      split_amx::split_values(from.data() + r * width, width, r * depth, to.pieces());
      split_amx::clear_pieces(depth - width, r * depth + width, to.pieces());
    }
  };
  fill(a, m, left);
  fill(b, keys, rows);
  split_amx::pack_columns(rows.pieces(), keys, depth, right.pieces());
  std::vector<float> c(static_cast<size_t>(room * keys));
  const split_amx::TileScope tiles;
  split_amx::multiply(m, keys, depth, left.pieces(), right.pieces(), c.data(), keys, false);
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < keys; ++j) {
      double want = 0.0;
      for (int64_t k = 0; k < width; ++k) {
        want += double{a[static_cast<size_t>(i * width + k)]} * double{b[static_cast<size_t>(j * width + k)]};
      }
      // 200 products of unit normals, each wrong by at most 3 * 2^-18 = 1.1e-5 of its size and mostly by a third of
      // that: sqrt(200) * 1.1e-5 = 1.6e-4, times three. Without the low pieces the errors are a hundred times as large.
      ASSERT_NEAR(c[static_cast<size_t>(i * keys + j)], want, 5e-4);
    }
  }
  // Row 40 alone.
  std::vector<float> alone(static_cast<size_t>(split_amx::kRowBlock * keys));
  Matrix one(split_amx::kRowBlock * depth);
  split_amx::split_values(a.data() + 40 * width, width, 0, one.pieces());
  split_amx::clear_pieces(depth - width, width, one.pieces());
  split_amx::multiply(1, keys, depth, one.pieces(), right.pieces(), alone.data(), keys, false);
  EXPECT_EQ(std::memcmp(alone.data(), c.data() + 40 * keys, static_cast<size_t>(keys) * 4), 0);
}

TEST_F(SplitProduct, RowsAsRightOperandAccumulate) {
  const int64_t m = 32, depth = 64, count = 50, n = 40, stride = round_up(n, 32);
  const std::vector<float> p = test::random_floats(generator_, static_cast<size_t>(m * depth));
  const std::vector<float> v = test::random_floats(generator_, static_cast<size_t>(count * n));
  Matrix left(m * depth), right(depth * stride);
  split_amx::split_values(p.data(), m * depth, 0, left.pieces());
  split_amx::pack_rows(v.data(), n, count, depth, n, stride, right.pieces());
  std::vector<float> c(static_cast<size_t>(m * stride), 2.0f);
  const split_amx::TileScope tiles;
  split_amx::multiply(m, stride, depth, left.pieces(), right.pieces(), c.data(), stride, true);
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < stride; ++j) {
      double want = 2.0;
      for (int64_t k = 0; k < count && j < n; ++k) {
        want += double{p[static_cast<size_t>(i * depth + k)]} * double{v[static_cast<size_t>(k * n + j)]};
      }
      ASSERT_NEAR(c[static_cast<size_t>(i * stride + j)], want, 2.5e-4);  // as above, of 50 products
    }
  }
}

}  // namespace
}  // namespace lantern
