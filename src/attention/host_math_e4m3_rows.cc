// Products of one row by FP8 matrices. Kept in step with block_nn and block_nt of host_math_products.cc with Rows = 1:
// the same operations in the same order for every sum.
#include "attention/host_math.h"

#include <algorithm>
#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attention/host_math_e4m3_rows.cc"
#include "hwy/foreach_target.h"

#include "attention/host_math_vectors.h"

HWY_BEFORE_NAMESPACE();
namespace lantern::host_math::HWY_NAMESPACE {

// Rows of b that are used together, as many streams of codes; the same lines of kFetchRows further on are fetched
// meanwhile: kv_b_proj comes from memory, and eight rows of it are a page, where hardware's streams end.
constexpr int64_t kRowsTogether = 4;
constexpr int64_t kFetchRows = 8;

// Rows * 64 columns of b and what is fetched for later, `codes` being the first.
template <int Rows>
HWY_INLINE void fetch_rows(const std::byte* codes, int64_t row_bytes) {
#pragma GCC unroll 4
  for (int r = 0; r < Rows; ++r) __builtin_prefetch(codes + (kFetchRows + r) * row_bytes);
}

// Rows rows of b, from `data`, by a[0 ..], added to c.
template <int Rows>
HWY_INLINE void rows_e4m3_nn(int64_t n, const float* a, const E4m3Rows& b, const std::byte* data, float* HWY_RESTRICT c,
                             bool read_c) {
  const DF df;
  VF a_value[Rows];
#pragma GCC unroll 4
  for (int r = 0; r < Rows; ++r) a_value[r] = hn::Set(df, a[r]);
  for (int64_t begin = 0; begin < n; begin += b.block_cols) {
    const VF factor = hn::Set(df, b.scales[begin / b.block_cols] * 0x1p8f);
    const int64_t end = std::min(begin + b.block_cols, n);
    for (int64_t j = begin; j < end; j += 2 * kLanes) {
      const std::byte* codes = data + j;
      if (j % 64 == 0) fetch_rows<Rows>(codes, b.row_bytes);
      VF low = read_c ? hn::LoadU(df, c + j) : hn::Zero(df);
      VF high = read_c ? hn::LoadU(df, c + j + kLanes) : hn::Zero(df);
#pragma GCC unroll 4
      for (int r = 0; r < Rows; ++r) {
        VF first, second;
        widen_e4m3(codes + r * b.row_bytes, factor, first, second);
        low = hn::MulAdd(a_value[r], first, low);
        high = hn::MulAdd(a_value[r], second, high);
      }
      hn::StoreU(low, df, c + j);
      hn::StoreU(high, df, c + j + kLanes);
    }
  }
}

void multiply_row_e4m3_nn_impl(int64_t n, int64_t k, const float* a, const E4m3Rows& b, float* c, bool accumulate) {
  int64_t i = 0;
  for (; i + kRowsTogether <= k; i += kRowsTogether) {
    rows_e4m3_nn<kRowsTogether>(n, a + i, b, b.data + i * b.row_bytes, c, accumulate || i > 0);
  }
  for (; i < k; ++i) rows_e4m3_nn<1>(n, a + i, b, b.data + i * b.row_bytes, c, accumulate || i > 0);
}

// Rows rows of b, from `data`, by a.
template <int Rows>
HWY_INLINE void rows_e4m3_nt(int64_t k, const float* a, const E4m3Rows& b, const std::byte* data, float* c,
                             bool accumulate) {
  const DF df;
  VF sum[4] = {hn::Zero(df), hn::Zero(df), hn::Zero(df), hn::Zero(df)};
  for (int64_t begin = 0; begin < k; begin += b.block_cols) {
    const VF factor = hn::Set(df, b.scales[begin / b.block_cols] * 0x1p8f);
    const int64_t end = std::min(begin + b.block_cols, k);
    for (int64_t i = begin; i < end; i += 2 * kLanes) {
      const std::byte* codes = data + i;
      if (i % 64 == 0) fetch_rows<Rows>(codes, b.row_bytes);
      const VF a_first = hn::LoadU(df, a + i);
      const VF a_second = hn::LoadU(df, a + i + kLanes);
#pragma GCC unroll 4
      for (int r = 0; r < Rows; ++r) {
        VF first, second;
        widen_e4m3(codes + r * b.row_bytes, factor, first, second);
        sum[r] = hn::MulAdd(a_first, first, sum[r]);
        sum[r] = hn::MulAdd(a_second, second, sum[r]);
      }
    }
  }
  float sums[4];
  sum_four(sum[0], sum[1], sum[2], sum[3], sums);
  for (int r = 0; r < Rows; ++r) c[r] = accumulate ? c[r] + sums[r] : sums[r];
}

void multiply_row_e4m3_nt_impl(int64_t n, int64_t k, const float* a, const E4m3Rows& b, float* c, bool accumulate) {
  int64_t j = 0;
  for (; j + kRowsTogether <= n; j += kRowsTogether) {
    rows_e4m3_nt<kRowsTogether>(k, a, b, b.data + j * b.row_bytes, c + j, accumulate);
  }
  for (; j < n; ++j) rows_e4m3_nt<1>(k, a, b, b.data + j * b.row_bytes, c + j, accumulate);
}

}  // namespace lantern::host_math::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE  // Highway compiles the file once per instruction set; this part belongs to the last pass alone.
namespace lantern::host_math {

HWY_EXPORT(multiply_row_e4m3_nn_impl);
HWY_EXPORT(multiply_row_e4m3_nt_impl);

bool multiply_row_takes(const E4m3Rows& b, int64_t cols) {
  if (cols % 32 != 0 || b.block_cols % 32 != 0) return false;
  const int64_t blocks = (cols + b.block_cols - 1) / b.block_cols;
  return std::all_of(b.scales, b.scales + blocks, [](float scale) { return std::isfinite(scale * 0x1p8f); });
}

void multiply_row_e4m3_nn(int64_t n, int64_t k, const float* a, const E4m3Rows& b, float* c, bool accumulate) {
  HWY_DYNAMIC_DISPATCH(multiply_row_e4m3_nn_impl)(n, k, a, b, c, accumulate);
}

void multiply_row_e4m3_nt(int64_t n, int64_t k, const float* a, const E4m3Rows& b, float* c, bool accumulate) {
  HWY_DYNAMIC_DISPATCH(multiply_row_e4m3_nt_impl)(n, k, a, b, c, accumulate);
}

}  // namespace lantern::host_math
#endif
