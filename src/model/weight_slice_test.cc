#include "model/weight_slice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace lantern {
namespace {

using ::testing::HasSubstr;

// 10 x 12 of e4m3 in blocks of 4 x 8 with scales 1, 2, 4, ...; element (i, j) has the code 12 i + j.
class SliceTest : public ::testing::Test {
 protected:
  SliceTest() : data_(120), scales_(6) {
    for (size_t i = 0; i < data_.size(); ++i) data_[i] = static_cast<std::byte>(i);
    for (size_t i = 0; i < scales_.size(); ++i) scales_[i] = static_cast<float>(1 << i);
    stored_.dtype = DType::kF8E4M3;
    stored_.rows = 10;
    stored_.cols = 12;
    stored_.block_rows = 4;
    stored_.block_cols = 8;
    stored_.data = borrow_fixed<const std::byte>(data_.data(), 120);
    stored_.scales = borrow_fixed<const std::byte>(reinterpret_cast<const std::byte*>(scales_.data()), 24);
  }
  float expected(int64_t i, int64_t j) const {
    return to_float(e4m3_t{static_cast<uint8_t>(12 * i + j)}) * scales_[static_cast<size_t>(i / 4 * 2 + j / 8)];
  }

  std::vector<std::byte> data_;
  std::vector<float> scales_;
  StoredMatrix stored_;
};

TEST_F(SliceTest, EveryAlignedRectangleKeepsItsValues) {
  int slices = 0;
  for (int64_t row : {0, 4, 8}) {
    for (int64_t col : {0, 8}) {
      for (int64_t rows = 1; row + rows <= 10; ++rows) {
        for (int64_t cols = 1; col + cols <= 12; ++cols) {
          const Result<QuantizedMatrix> view = slice_matrix(stored_, {"t", {row, rows}, {col, cols}});
          ASSERT_TRUE(view.ok()) << view.error().message();
          ASSERT_EQ(view->rows, rows);
          ASSERT_EQ(view->cols, cols);
          for (int64_t i = 0; i < rows; ++i) {
            for (int64_t j = 0; j < cols; ++j) {
              ASSERT_EQ(dequantized(*view, i, j), expected(row + i, col + j)) << row << " " << col;
            }
          }
          ++slices;
        }
      }
    }
  }
  EXPECT_EQ(slices, (10 + 6 + 2) * (12 + 4));
}

TEST_F(SliceTest, RefusesWhatCutsABlockOrLeavesTheTensor) {
  const auto error = [&](SliceRange rows, SliceRange cols) {
    const Result<QuantizedMatrix> view = slice_matrix(stored_, {"t", rows, cols});
    return view.ok() ? std::string("(sliced)") : view.error().message();
  };
  EXPECT_EQ(error({}, {}), "(sliced)");
  EXPECT_EQ(error({8, -1}, {8, -1}), "(sliced)");
  EXPECT_THAT(error({3, 4}, {}), HasSubstr("begins at 3 rows, inside a quantisation block of 4"));
  EXPECT_THAT(error({}, {4, 4}), HasSubstr("begins at 4 columns, inside a quantisation block of 8"));
  EXPECT_THAT(error({4, 7}, {}), HasSubstr("7 rows from 4 of 't' was asked for, which has 10"));
  EXPECT_THAT(error({-4, 4}, {}), HasSubstr("from -4"));
  EXPECT_THAT(error({0, 0}, {}), HasSubstr("0 rows"));
  EXPECT_THAT(error({12, -1}, {}), HasSubstr("from 12"));
  EXPECT_THAT(error({10, -1}, {}), HasSubstr("from 10"));
  stored_.block_rows = stored_.block_cols = 0;
  EXPECT_EQ(error({3, 4}, {5, 2}), "(sliced)");
}

}  // namespace
}  // namespace lantern
