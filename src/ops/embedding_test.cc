#include "ops/embedding.h"

#include <gtest/gtest.h>

#include "ops/host_op_test.h"

namespace lantern {
namespace {

constexpr int64_t kVocab = 11;
constexpr int64_t kCols = 37;

// A table of `Stored` whose rows are `padding` elements longer than their columns.
template <class Stored, class Convert>
void expect_lookup(DType dtype, const Convert& convert) {
  constexpr int64_t kPadding = 3;
  const auto values = random_normal(1, kVocab * kCols);
  std::vector<Stored> stored(static_cast<size_t>(kVocab * (kCols + kPadding)));
  for (int64_t r = 0; r < kVocab; ++r) {
    for (int64_t c = 0; c < kCols; ++c) {
      stored[static_cast<size_t>(r * (kCols + kPadding) + c)] = convert(values[static_cast<size_t>(r * kCols + c)]);
    }
  }
  const auto bytes = static_cast<int64_t>(stored.size() * sizeof(Stored));
  QuantizedMatrix table;
  table.data = borrow_fixed(reinterpret_cast<const std::byte*>(stored.data()), bytes);
  table.dtype = dtype;
  table.rows = kVocab;
  table.cols = kCols;
  table.row_bytes = (kCols + kPadding) * static_cast<int64_t>(sizeof(Stored));

  HostOps ops(2);
  const std::vector<int32_t> ids{3, -1, 0, 10, 11, 3, 2147483647, -2147483647};
  constexpr int64_t kStride = kCols + 5;
  std::vector<float> y(ids.size() * kStride, -7.0f);
  embedding(ops.stream, {.token_ids = fixed(ids),
                         .table = table,
                         .y = fixed(y),
                         .y_stride = kStride,
                         .tokens = static_cast<int64_t>(ids.size())});
  for (size_t t = 0; t < ids.size(); ++t) {
    for (size_t c = 0; c < kStride; ++c) {
      float expected = 0.0f;
      if (c >= kCols) {
        expected = -7.0f;  // the gap between rows is not written
      } else if (ids[t] >= 0 && ids[t] < kVocab) {
        const Stored element = convert(values[static_cast<size_t>(ids[t]) * kCols + c]);
        if constexpr (std::is_same_v<Stored, float>) {
          expected = element;
        } else {
          expected = to_float(element);
        }
      }
      ASSERT_EQ(y[t * kStride + c], expected) << "token " << t << " column " << c;
    }
  }
}

TEST(Embedding, ReadsF32Bf16AndF16AndZerosOutside) {
  expect_lookup<float>(DType::kF32, [](float x) { return x; });
  expect_lookup<bf16_t>(DType::kBF16, [](float x) { return to_bf16(x); });
  expect_lookup<f16_t>(DType::kF16, [](float x) { return to_f16(x); });
}

TEST(EmbeddingDeathTest, OtherDtypesAreABrokenInvariant) {
  HostOps ops;
  EmbeddingParams params;
  params.table.dtype = DType::kF8E4M3;
  EXPECT_DEATH(embedding(ops.stream, params), "F8_E4M3");
}

TEST(GatherRows, CopiesRowsAndZerosForNegative) {
  HostOps ops(2);
  const auto x = random_normal(2, 9 * 20);
  const std::vector<int32_t> rows{8, 0, -1, 8, 4};
  std::vector<float> y(rows.size() * 17, -7.0f);
  gather_rows(ops.stream, {.x = fixed(x), .x_stride = 20, .rows = fixed(rows), .y = fixed(y), .count = 5, .cols = 17});
  for (size_t r = 0; r < rows.size(); ++r) {
    for (size_t c = 0; c < 17; ++c) {
      EXPECT_EQ(y[r * 17 + c], rows[r] < 0 ? 0.0f : x[static_cast<size_t>(rows[r]) * 20 + c]);
    }
  }
}

}  // namespace
}  // namespace lantern
