#include "base/view.h"

#include <gtest/gtest.h>

#include <numeric>
#include <type_traits>
#include <vector>

namespace lantern {
namespace {

// Contiguity is part of the type: the way from Strided to Dense is as_dense() only.
static_assert(std::is_convertible_v<Dense<int, 2>, Strided<int, 2>>);
static_assert(!std::is_convertible_v<Strided<int, 2>, Dense<int, 2>>);
static_assert(!std::is_constructible_v<Dense<int, 2>, Strided<int, 2>>);
static_assert(!std::is_assignable_v<Dense<int, 2>&, Strided<int, 2>>);
static_assert(!std::is_convertible_v<Dense<int, 2>, Dense<int, 3>>);
static_assert(!std::is_convertible_v<Dense<const int, 2>, Dense<int, 2>>);
// The number of indices is the rank.
static_assert(std::is_invocable_v<Dense<int, 2>, int, int>);
static_assert(!std::is_invocable_v<Dense<int, 2>, int>);
static_assert(!std::is_invocable_v<Dense<int, 2>, int, int, int>);
static_assert(!std::is_invocable_v<Strided<int, 3>, int, int>);
static_assert(std::is_trivially_copyable_v<Dense<float, 4>>);
// No struct that holds one is bytes, so no launch can.
static_assert(std::is_copy_constructible_v<Strided<float, 4>> && !std::is_trivially_copyable_v<Strided<float, 4>>);

TEST(Dense, IsRowMajor) {
  std::vector<int> memory(24);
  std::iota(memory.begin(), memory.end(), 0);
  const Dense<int, 3> view{memory.data(), {2, 3, 4}};
  EXPECT_EQ(view.size(), 24);
  EXPECT_EQ(view(0, 0, 0), 0);
  EXPECT_EQ(view(1, 0, 0), 12);
  EXPECT_EQ(view(1, 2, 3), 23);
  view(0, 1, 2) = -1;
  EXPECT_EQ(memory[6], -1);
  EXPECT_EQ((Dense<int, 2>{nullptr, {0, 5}}.size()), 0);
}

TEST(Strided, OfADenseIsTheSameMemory) {
  std::vector<int> memory(24);
  std::iota(memory.begin(), memory.end(), 0);
  const Dense<int, 3> dense{memory.data(), {2, 3, 4}};
  const Strided<int, 3> view = dense;
  EXPECT_EQ(view.stride, (Extents<3>{12, 4, 1}));
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 3; ++j) {
      for (int k = 0; k < 4; ++k) EXPECT_EQ(&view(i, j, k), &dense(i, j, k));
    }
  }
  const auto back = view.as_dense();
  ASSERT_TRUE(back.has_value());
  EXPECT_EQ(back->data, dense.data);
  EXPECT_EQ(back->shape, dense.shape);
}

TEST(Strided, IsDenseOnlyWhenContiguous) {
  std::vector<int> memory(24);
  std::iota(memory.begin(), memory.end(), 0);
  const Strided<int, 2> columns(memory.data(), {4, 3}, {6, 1});  // three of six columns
  EXPECT_EQ(columns(2, 1), 13);
  EXPECT_FALSE(columns.as_dense().has_value());
  const Strided<int, 2> transposed(memory.data(), {6, 4}, {1, 6});
  EXPECT_EQ(transposed(5, 3), 23);
  EXPECT_FALSE(transposed.as_dense().has_value());
  // The stride of a dimension of one element says nothing.
  EXPECT_TRUE((Strided<int, 2>(memory.data(), {1, 3}, {999, 1}).as_dense().has_value()));
  EXPECT_TRUE((Strided<int, 3>(memory.data(), {2, 1, 3}, {3, -7, 1}).as_dense().has_value()));
  EXPECT_FALSE((Strided<int, 2>(memory.data(), {2, 3}, {0, 1}).as_dense().has_value())) << "a broadcast";
}

}  // namespace
}  // namespace lantern
