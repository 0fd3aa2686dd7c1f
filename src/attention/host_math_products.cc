// Products of float matrices.
#include "attention/host_math.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attention/host_math_products.cc"
#include "hwy/foreach_target.h"

#include "attention/host_math_vectors.h"

HWY_BEFORE_NAMESPACE();
namespace lantern::host_math::HWY_NAMESPACE {

// Register block of multiply_nn: kBlockRows x (kBlockVectors * kLanes) sums.
constexpr int kBlockRows = kLanes >= 16 ? 6 : 4;
constexpr int kBlockVectors = kLanes >= 16 ? 4 : 2;
// Rows of b that stay in the first-level cache while all rows of a pass.
constexpr int64_t kBlockDepth = 128;

// A block of Rows x (Vectors * kLanes) sums; `part` > 0 means that the last vector holds only `part` columns.
template <int Rows, int Vectors>
HWY_INLINE void block_nn(int64_t k, const float* HWY_RESTRICT a, int64_t lda, const float* HWY_RESTRICT b, int64_t ldb,
                         float* HWY_RESTRICT c, int64_t ldc, bool read_c, const float* c_factor) {
  const DF df;
  VF sum[Rows][Vectors];
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v) sum[r][v] = hn::Zero(df);
  }
  if (read_c) {
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
      const VF factor = hn::Set(df, c_factor != nullptr ? c_factor[r] : 1.0f);
#pragma GCC unroll 8
      for (int v = 0; v < Vectors; ++v) sum[r][v] = hn::Mul(hn::LoadU(df, c + r * ldc + v * kLanes), factor);
    }
  }
  for (int64_t i = 0; i < k; ++i) {
    VF b_row[Vectors];
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v) b_row[v] = hn::LoadU(df, b + i * ldb + v * kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
      const VF a_value = hn::Set(df, a[r * lda + i]);
#pragma GCC unroll 8
      for (int v = 0; v < Vectors; ++v) sum[r][v] = hn::MulAdd(a_value, b_row[v], sum[r][v]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v) hn::StoreU(sum[r][v], df, c + r * ldc + v * kLanes);
  }
}

// Fewer columns than a vector: the same arithmetic on a padded copy.
HWY_INLINE void row_nn_part(int64_t k, const float* a, const float* b, int64_t ldb, float* c, int64_t columns,
                            bool read_c, float factor) {
  const DF df;
  VF sum = read_c ? hn::Mul(load_part(c, columns), hn::Set(df, factor)) : hn::Zero(df);
  for (int64_t i = 0; i < k; ++i) sum = hn::MulAdd(hn::Set(df, a[i]), load_part(b + i * ldb, columns), sum);
  store_part(sum, c, columns);
}

template <int Vectors>
HWY_INLINE void panel_nn(int64_t m, int64_t k, const float* a, int64_t lda, const float* b, int64_t ldb, float* c,
                         int64_t ldc, bool read_c, const float* c_factor) {
  // Blocks of nearly equal height: the rows of b pass through the caches once for each.
  for (int64_t blocks = (m + kBlockRows - 1) / kBlockRows; blocks > 0; --blocks) {
    const int64_t rows = (m + blocks - 1) / blocks;
    switch (rows) {
      case 6: block_nn<6, Vectors>(k, a, lda, b, ldb, c, ldc, read_c, c_factor); break;
      case 5: block_nn<5, Vectors>(k, a, lda, b, ldb, c, ldc, read_c, c_factor); break;
      case 4: block_nn<4, Vectors>(k, a, lda, b, ldb, c, ldc, read_c, c_factor); break;
      case 3: block_nn<3, Vectors>(k, a, lda, b, ldb, c, ldc, read_c, c_factor); break;
      case 2: block_nn<2, Vectors>(k, a, lda, b, ldb, c, ldc, read_c, c_factor); break;
      default: block_nn<1, Vectors>(k, a, lda, b, ldb, c, ldc, read_c, c_factor); break;
    }
    m -= rows;
    a += rows * lda;
    c += rows * ldc;
    if (c_factor != nullptr) c_factor += rows;
  }
}

void multiply_nn_impl(int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* b, int64_t ldb,
                      float* c, int64_t ldc, bool accumulate, const float* c_factor) {
  constexpr int64_t kPanel = kBlockVectors * kLanes;
  for (int64_t begin = 0; begin < k || begin == 0; begin += kBlockDepth) {
    const int64_t depth = std::min(kBlockDepth, k - begin);
    const bool read_c = begin > 0 || accumulate || c_factor != nullptr;
    const float* factor = begin == 0 ? c_factor : nullptr;
    const float* a_part = a + begin;
    const float* b_part = b + begin * ldb;
    int64_t j = 0;
    for (; j + kPanel <= n; j += kPanel) {
      panel_nn<kBlockVectors>(m, depth, a_part, lda, b_part + j, ldb, c + j, ldc, read_c, factor);
    }
    for (; j + kLanes <= n; j += kLanes) {
      panel_nn<1>(m, depth, a_part, lda, b_part + j, ldb, c + j, ldc, read_c, factor);
    }
    if (j < n) {
      for (int64_t i = 0; i < m; ++i) {
        row_nn_part(depth, a_part + i * lda, b_part + j, ldb, c + i * ldc + j, n - j, read_c,
                    factor != nullptr ? factor[i] : 1.0f);
      }
    }
  }
}

template <int Rows, int Columns>
HWY_INLINE void block_nt(int64_t k, const float* HWY_RESTRICT a, int64_t lda, const float* HWY_RESTRICT b, int64_t ldb,
                         float* HWY_RESTRICT c, int64_t ldc, bool accumulate) {
  const DF df;
  VF sum[Rows][4];
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 8
    for (int j = 0; j < 4; ++j) sum[r][j] = hn::Zero(df);
  }
  int64_t i = 0;
  for (; i + kLanes <= k; i += kLanes) {
    VF b_part[Columns];
#pragma GCC unroll 8
    for (int j = 0; j < Columns; ++j) b_part[j] = hn::LoadU(df, b + j * ldb + i);
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
      const VF a_part = hn::LoadU(df, a + r * lda + i);
#pragma GCC unroll 8
      for (int j = 0; j < Columns; ++j) sum[r][j] = hn::MulAdd(a_part, b_part[j], sum[r][j]);
    }
  }
  if (i < k) {
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
      const VF a_part = load_part(a + r * lda + i, k - i);
#pragma GCC unroll 8
      for (int j = 0; j < Columns; ++j) {
        sum[r][j] = hn::MulAdd(a_part, load_part(b + j * ldb + i, k - i), sum[r][j]);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r) {
    float sums[4];
    sum_four(sum[r][0], sum[r][1], sum[r][2], sum[r][3], sums);
    for (int j = 0; j < Columns; ++j) {
      float* to = c + r * ldc + j;
      *to = accumulate ? *to + sums[j] : sums[j];
    }
  }
}

// Four columns of b against all rows of a, or the reverse.
template <int Columns>
HWY_INLINE void rows_nt(int64_t m, int64_t k, const float* a, int64_t lda, const float* b, int64_t ldb, float* c,
                        int64_t ldc, bool accumulate) {
  int64_t i = 0;
  for (; i + 4 <= m; i += 4) block_nt<4, Columns>(k, a + i * lda, lda, b, ldb, c + i * ldc, ldc, accumulate);
  for (; i < m; ++i) block_nt<1, Columns>(k, a + i * lda, lda, b, ldb, c + i * ldc, ldc, accumulate);
}

HWY_INLINE void columns_nt(int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* b, int64_t ldb,
                           float* c, int64_t ldc, bool accumulate) {
  int64_t j = 0;
  for (; j + 4 <= n; j += 4) rows_nt<4>(m, k, a, lda, b + j * ldb, ldb, c + j, ldc, accumulate);
  for (; j < n; ++j) rows_nt<1>(m, k, a, lda, b + j * ldb, ldb, c + j, ldc, accumulate);
}

void multiply_nt_impl(int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* b, int64_t ldb,
                      float* c, int64_t ldc, bool accumulate) {
  // The operand with fewer rows stays in the first-level cache.
  if (m <= n) {
    columns_nt(m, n, k, a, lda, b, ldb, c, ldc, accumulate);
    return;
  }
  for (int64_t i = 0; i < m; i += 4) {
    columns_nt(std::min<int64_t>(4, m - i), n, k, a + i * lda, lda, b, ldb, c + i * ldc, ldc, accumulate);
  }
}

#if HWY_TARGET == HWY_SCALAR  // one lane has nothing to interleave

HWY_INLINE void transpose_4x4(const float* src, int64_t src_stride, float* dst, int64_t dst_stride) {
  for (int64_t r = 0; r < 4; ++r) {
    for (int64_t j = 0; j < 4; ++j) dst[j * dst_stride + r] = src[r * src_stride + j];
  }
}

#else

HWY_INLINE void transpose_4x4(const float* src, int64_t src_stride, float* dst, int64_t dst_stride) {
  const hn::Full128<float> d4;
  const hn::Repartition<double, hn::Full128<float> > dd;
  const auto r0 = hn::LoadU(d4, src);
  const auto r1 = hn::LoadU(d4, src + src_stride);
  const auto r2 = hn::LoadU(d4, src + 2 * src_stride);
  const auto r3 = hn::LoadU(d4, src + 3 * src_stride);
  const auto low01 = hn::BitCast(dd, hn::InterleaveLower(d4, r0, r1));
  const auto high01 = hn::BitCast(dd, hn::InterleaveUpper(d4, r0, r1));
  const auto low23 = hn::BitCast(dd, hn::InterleaveLower(d4, r2, r3));
  const auto high23 = hn::BitCast(dd, hn::InterleaveUpper(d4, r2, r3));
  hn::StoreU(hn::BitCast(d4, hn::InterleaveLower(dd, low01, low23)), d4, dst);
  hn::StoreU(hn::BitCast(d4, hn::InterleaveUpper(dd, low01, low23)), d4, dst + dst_stride);
  hn::StoreU(hn::BitCast(d4, hn::InterleaveLower(dd, high01, high23)), d4, dst + 2 * dst_stride);
  hn::StoreU(hn::BitCast(d4, hn::InterleaveUpper(dd, high01, high23)), d4, dst + 3 * dst_stride);
}

#endif

void transpose_impl(int64_t rows, int64_t cols, const float* src, int64_t src_stride, float* dst, int64_t dst_stride) {
  int64_t i = 0;
  for (; i + 4 <= rows; i += 4) {
    int64_t j = 0;
    for (; j + 4 <= cols; j += 4) {
      transpose_4x4(src + i * src_stride + j, src_stride, dst + j * dst_stride + i, dst_stride);
    }
    for (; j < cols; ++j) {
      for (int64_t r = 0; r < 4; ++r) dst[j * dst_stride + i + r] = src[(i + r) * src_stride + j];
    }
  }
  for (; i < rows; ++i) {
    for (int64_t j = 0; j < cols; ++j) dst[j * dst_stride + i] = src[i * src_stride + j];
  }
}

}  // namespace lantern::host_math::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE  // Highway compiles the file once per instruction set; this part belongs to the last pass alone.
namespace lantern::host_math {

HWY_EXPORT(multiply_nn_impl);
HWY_EXPORT(multiply_nt_impl);
HWY_EXPORT(transpose_impl);

void multiply_nn(int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* b, int64_t ldb, float* c,
                 int64_t ldc, bool accumulate, const float* c_factor) {
  HWY_DYNAMIC_DISPATCH(multiply_nn_impl)(m, n, k, a, lda, b, ldb, c, ldc, accumulate, c_factor);
}

void multiply_nt(int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* b, int64_t ldb, float* c,
                 int64_t ldc, bool accumulate) {
  HWY_DYNAMIC_DISPATCH(multiply_nt_impl)(m, n, k, a, lda, b, ldb, c, ldc, accumulate);
}

void transpose(int64_t rows, int64_t cols, const float* src, int64_t src_stride, float* dst, int64_t dst_stride) {
  HWY_DYNAMIC_DISPATCH(transpose_impl)(rows, cols, src, src_stride, dst, dst_stride);
}

}  // namespace lantern::host_math
#endif
