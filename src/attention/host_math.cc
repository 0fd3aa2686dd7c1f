#include "attention/host_math.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attention/host_math.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace lantern::host_math::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using DF = hn::ScalableTag<float>;
using DI = hn::RebindToSigned<DF>;
using DU = hn::RebindToUnsigned<DF>;
using VF = hn::Vec<DF>;
constexpr int64_t kLanes = hn::MaxLanes(DF());
static_assert(kLanes <= kPad, "tile rows are padded for at most 16 lanes");

// Register block of multiply_nn: kBlockRows x (kBlockVectors * kLanes) sums.
constexpr int kBlockRows = kLanes >= 16 ? 6 : 4;
constexpr int kBlockVectors = kLanes >= 16 ? 4 : 2;
// Rows of b that stay in the first-level cache while all rows of a pass.
constexpr int64_t kBlockDepth = 128;

HWY_INLINE VF load_part(const float* from, int64_t count) {
  HWY_ALIGN float lanes[kLanes] = {};
  std::memcpy(lanes, from, static_cast<size_t>(count) * sizeof(float));
  return hn::Load(DF(), lanes);
}

HWY_INLINE void store_part(VF v, float* to, int64_t count) {
  HWY_ALIGN float lanes[kLanes];
  hn::Store(v, DF(), lanes);
  std::memcpy(to, lanes, static_cast<size_t>(count) * sizeof(float));
}

// ---- decoding ----

void decode_e4m3_plain(const std::byte* src, int64_t count, float factor, float* dst) {
  for (int64_t i = 0; i < count; ++i) dst[i] = to_float(e4m3_t{static_cast<uint8_t>(src[i])}) * factor;
}

#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_SSSE3 || HWY_TARGET == HWY_SSE4  // no instruction widens halves

void decode_e4m3(const std::byte* src, int64_t count, float factor, float* dst) {
  decode_e4m3_plain(src, count, factor, dst);
}

HWY_INLINE void widen_e4m3(const std::byte* src, VF factor, VF& first, VF& second) {
  HWY_ALIGN float values[2 * kLanes];
  decode_e4m3_plain(src, 2 * kLanes, 0x1p-8f, values);
  first = hn::Mul(hn::Load(DF(), values), factor);
  second = hn::Mul(hn::Load(DF(), values + kLanes), factor);
}

#else

// 2 * kLanes values / 2^8, times `factor`. By way of halves: sign, exponent and mantissa keep their order there, and
// subnormal numbers are widened like others.
HWY_INLINE void widen_e4m3(const std::byte* src, VF factor, VF& first, VF& second) {
  const DF df;
  const hn::Repartition<int16_t, DF> d16;
  const hn::Half<hn::Repartition<hwy::float16_t, DF> > half;
  const hn::Rebind<int8_t, decltype(d16)> d8;
  const auto nan = hn::Set(d16, 0x7f);
  const auto code = hn::PromoteTo(d16, hn::LoadU(d8, reinterpret_cast<const int8_t*>(src)));
  const auto finite = hn::And(hn::ShiftLeft<7>(code), hn::Set(d16, static_cast<int16_t>(0xbf80)));
  const auto bits = hn::IfThenElse(hn::Eq(hn::And(code, nan), nan), hn::Set(d16, 0x7e00), finite);
  const auto halves = hn::BitCast(hn::Twice<decltype(half)>(), bits);
  first = hn::Mul(hn::PromoteTo(df, hn::LowerHalf(half, halves)), factor);
  second = hn::Mul(hn::PromoteTo(df, hn::UpperHalf(half, halves)), factor);
}

void decode_e4m3(const std::byte* src, int64_t count, float factor, float* dst) {
  const DF df;
  const float widening = factor * 0x1p8f;  // exact, or infinite
  const auto widening_vector = hn::Set(df, widening);
  int64_t i = 0;
  for (; i + 2 * kLanes <= count && std::isfinite(widening); i += 2 * kLanes) {
    VF first, second;
    widen_e4m3(src + i, widening_vector, first, second);
    hn::StoreU(first, df, dst + i);
    hn::StoreU(second, df, dst + i + kLanes);
  }
  decode_e4m3_plain(src + i, count - i, factor, dst + i);
}

#endif

void decode_bf16(const std::byte* src, int64_t count, float* dst) {
  const DF df;
  const DU du;
  const hn::Rebind<uint16_t, DF> d16;
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const auto half = hn::LoadU(d16, reinterpret_cast<const uint16_t*>(src) + i);
    hn::StoreU(hn::BitCast(df, hn::ShiftLeft<16>(hn::PromoteTo(du, half))), df, dst + i);
  }
  for (; i < count; ++i) {
    bf16_t x;
    std::memcpy(&x, src + 2 * i, sizeof(x));
    dst[i] = to_float(x);
  }
}

void decode_f16(const std::byte* src, int64_t count, float* dst) {
  const DF df;
  const hn::Rebind<hwy::float16_t, DF> d16;
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const auto half = hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(src) + i);
    hn::StoreU(hn::PromoteTo(df, half), df, dst + i);
  }
  for (; i < count; ++i) {
    f16_t x;
    std::memcpy(&x, src + 2 * i, sizeof(x));
    dst[i] = to_float(x);
  }
}

void scale_impl(int64_t count, float* x, float factor) {
  const DF df;
  const auto f = hn::Set(df, factor);
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) hn::StoreU(hn::Mul(hn::LoadU(df, x + i), f), df, x + i);
  for (; i < count; ++i) x[i] *= factor;
}

void decode_values_impl(DType dtype, const std::byte* src, int64_t count, float factor, float* dst) {
  switch (dtype) {
    case DType::kF8E4M3: decode_e4m3(src, count, factor, dst); return;
    case DType::kBF16: decode_bf16(src, count, dst); break;
    case DType::kF16: decode_f16(src, count, dst); break;
    default: std::memcpy(dst, src, static_cast<size_t>(count) * sizeof(float)); break;
  }
  if (factor != 1.0f) scale_impl(count, dst, factor);
}

void decode_latent_rows_impl(LatentLayout layout, const std::byte* const* rows, int32_t count, int32_t kv_lora_rank,
                             int32_t rope_dim, float* latent, int64_t latent_stride, float* rope, int64_t rope_stride) {
  for (int32_t r = 0; r < count; ++r) {
    const std::byte* row = rows[r];
    float* c = latent + r * latent_stride;
    float* k_pe = rope + r * rope_stride;
    switch (layout) {
      case LatentLayout::kF32:
        std::memcpy(c, row, static_cast<size_t>(kv_lora_rank) * sizeof(float));
        std::memcpy(k_pe, row + 4 * int64_t{kv_lora_rank}, static_cast<size_t>(rope_dim) * sizeof(float));
        break;
      case LatentLayout::kBf16:
        decode_bf16(row, kv_lora_rank, c);
        decode_bf16(row + 2 * int64_t{kv_lora_rank}, rope_dim, k_pe);
        break;
      case LatentLayout::kFp8: {
        const std::byte* scales = row + kv_lora_rank;
        for (int32_t begin = 0; begin < kv_lora_rank; begin += kFp8ScaleGroup) {
          float factor;
          std::memcpy(&factor, scales, sizeof(factor));
          scales += sizeof(factor);
          decode_e4m3(row + begin, kFp8ScaleGroup, factor, c + begin);
        }
        decode_bf16(scales, rope_dim, k_pe);
        break;
      }
    }
  }
}

// ---- products ----

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

#if HWY_TARGET == HWY_SCALAR  // one lane has nothing to interleave

HWY_INLINE void sum_four(VF a, VF b, VF c, VF d, float* sums) {
  sums[0] = hn::GetLane(a);
  sums[1] = hn::GetLane(b);
  sums[2] = hn::GetLane(c);
  sums[3] = hn::GetLane(d);
}

HWY_INLINE void transpose_4x4(const float* src, int64_t src_stride, float* dst, int64_t dst_stride) {
  for (int64_t r = 0; r < 4; ++r) {
    for (int64_t j = 0; j < 4; ++j) dst[j * dst_stride + r] = src[r * src_stride + j];
  }
}

#else

template <class D>
HWY_INLINE hn::Vec<hn::Full128<float> > sum_blocks([[maybe_unused]] D d, hn::Vec<D> v) {
  if constexpr (hn::MaxLanes(D()) <= 4) {
    return v;
  } else {
    const hn::Half<D> dh;
    return sum_blocks(dh, hn::Add(hn::LowerHalf(dh, v), hn::UpperHalf(dh, v)));
  }
}

// The sums of the lanes of a, b, c and d, by one tree for every place.
HWY_INLINE void sum_four(VF a, VF b, VF c, VF d, float* sums) {
  const DF df;
  const hn::Repartition<double, DF> dd;
  const auto ab = hn::Add(hn::InterleaveLower(df, a, b), hn::InterleaveUpper(df, a, b));
  const auto cd = hn::Add(hn::InterleaveLower(df, c, d), hn::InterleaveUpper(df, c, d));
  const auto low = hn::BitCast(df, hn::InterleaveLower(dd, hn::BitCast(dd, ab), hn::BitCast(dd, cd)));
  const auto high = hn::BitCast(df, hn::InterleaveUpper(dd, hn::BitCast(dd, ab), hn::BitCast(dd, cd)));
  hn::StoreU(sum_blocks(df, hn::Add(low, high)), hn::Full128<float>(), sums);
}

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

// ---- products of one row by FP8 matrices ----

// Kept in step with block_nn and block_nt with Rows = 1: the same operations in the same order for every sum.

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

// ---- softmax ----

// exp(x) for x <= 0, relative error below 2 units in the last place; 0 below -87.3, 1 at 0.
HWY_INLINE VF exp_vector(VF x) {
  const DF df;
  const DI di;
  const auto in_range = hn::Ge(x, hn::Set(df, -87.3f));
  const auto clamped = hn::Max(x, hn::Set(df, -87.3f));
  const auto n = hn::Round(hn::Mul(clamped, hn::Set(df, 1.44269504088896341f)));
  // ln 2 in two parts; the first has few bits, so that n * part is exact.
  auto r = hn::NegMulAdd(n, hn::Set(df, 0.693359375f), clamped);
  r = hn::NegMulAdd(n, hn::Set(df, -2.12194440e-4f), r);
  // Taylor series; |r| <= ln(2) / 2 makes the rest after r^7 / 5040 smaller than 6e-9.
  auto p = hn::Set(df, 1.0f / 5040.0f);
  p = hn::MulAdd(p, r, hn::Set(df, 1.0f / 720.0f));
  p = hn::MulAdd(p, r, hn::Set(df, 1.0f / 120.0f));
  p = hn::MulAdd(p, r, hn::Set(df, 1.0f / 24.0f));
  p = hn::MulAdd(p, r, hn::Set(df, 1.0f / 6.0f));
  p = hn::MulAdd(p, r, hn::Set(df, 0.5f));
  p = hn::MulAdd(p, r, hn::Set(df, 1.0f));
  p = hn::MulAdd(p, r, hn::Set(df, 1.0f));
  const auto power = hn::ShiftLeft<23>(hn::Add(hn::ConvertTo(di, n), hn::Set(di, 127)));
  // A NaN fails the comparison, so it is passed on by itself.
  const auto value = hn::Mul(p, hn::BitCast(df, power));
  return hn::IfThenElse(in_range, value, hn::IfThenElseZero(hn::IsNaN(x), x));
}

float exponential_impl(float x) { return hn::GetLane(exp_vector(hn::Set(DF(), x))); }

void softmax_tile_impl(int64_t rows, float* scores, const uint64_t* visible, float scale, float* max, float* sum,
                       float* factor) {
  const DF df;
  const DI di;
  const float kMinusInfinity = -__builtin_inff();
  const auto minus_infinity = hn::Set(df, kMinusInfinity);
  const auto scale_vector = hn::Set(df, scale);
  const auto bit_of_lane = hn::Shl(hn::Set(di, 1), hn::Iota(di, 0));
  for (int64_t r = 0; r < rows; ++r) {
    float* row = scores + r * kTile;
    const uint64_t bits = visible[r];
    if (bits == 0) {
      std::memset(row, 0, kTile * sizeof(float));
      factor[r] = 1.0f;
      continue;
    }
    auto row_max = minus_infinity;
    for (int64_t j = 0; j < kTile; j += kLanes) {
      auto s = hn::Mul(hn::LoadU(df, row + j), scale_vector);
      if (bits != ~uint64_t{0}) {
        const auto lane_bits = hn::Set(di, static_cast<int32_t>((bits >> j) & 0xffffu));
        s = hn::IfThenElse(hn::RebindMask(df, hn::TestBit(lane_bits, bit_of_lane)), s, minus_infinity);
      }
      hn::StoreU(s, df, row + j);
      row_max = hn::Max(row_max, s);
    }
    const float tile_max = hn::GetLane(hn::MaxOfLanes(df, row_max));
    // A NaN in `max` stays: a row that is not a number must not look like one without keys.
    float new_max = tile_max <= max[r] ? max[r] : tile_max;
    // Maxima may pass over NaN. Beside a number that is no loss, as its weight is NaN all the same.
    if (new_max == kMinusInfinity) {
      for (int64_t j = 0; j < kTile; ++j) new_max = std::isnan(row[j]) ? row[j] : new_max;
    }
    if (new_max == kMinusInfinity) {  // every visible score is -inf: no key has weight
      std::memset(row, 0, kTile * sizeof(float));
      factor[r] = 1.0f;
      continue;
    }
    const auto shift = hn::Set(df, new_max);
    auto total = hn::Zero(df);
    for (int64_t j = 0; j < kTile; j += kLanes) {
      const auto p = exp_vector(hn::Sub(hn::LoadU(df, row + j), shift));
      hn::StoreU(p, df, row + j);
      total = hn::Add(total, p);
    }
    const float old_factor = exponential_impl(max[r] - new_max);
    max[r] = new_max;
    sum[r] = sum[r] * old_factor + hn::GetLane(hn::SumOfLanes(df, total));
    factor[r] = old_factor;
  }
}

void relu_weighted_sum_impl(int64_t heads, const float* scores, const float* weights, float* out) {
  const DF df;
  for (int64_t j = 0; j < kTile; j += kLanes) {
    auto sum = hn::Zero(df);
    for (int64_t h = 0; h < heads; ++h) {
      const auto score = hn::LoadU(df, scores + h * kTile + j);
      const auto positive = hn::IfThenZeroElse(hn::Lt(score, hn::Zero(df)), score);  // a NaN stays
      sum = hn::MulAdd(hn::Set(df, weights[h]), positive, sum);
    }
    hn::StoreU(sum, df, out + j);
  }
}

void combine_impl(int64_t count, float* x, float x_factor, const float* y, float y_factor) {
  const DF df;
  const auto fx = hn::Set(df, x_factor);
  const auto fy = hn::Set(df, y_factor);
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    hn::StoreU(hn::MulAdd(hn::LoadU(df, y + i), fy, hn::Mul(hn::LoadU(df, x + i), fx)), df, x + i);
  }
  if (i < count) {
    store_part(hn::MulAdd(load_part(y + i, count - i), fy, hn::Mul(load_part(x + i, count - i), fx)), x + i, count - i);
  }
}

const char* target_name_impl() { return hwy::TargetName(HWY_TARGET); }

}  // namespace lantern::host_math::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE  // Highway compiles the file once per instruction set; this part belongs to the last pass alone.
namespace lantern::host_math {

HWY_EXPORT(decode_values_impl);
HWY_EXPORT(decode_latent_rows_impl);
HWY_EXPORT(multiply_nn_impl);
HWY_EXPORT(multiply_nt_impl);
HWY_EXPORT(multiply_row_e4m3_nn_impl);
HWY_EXPORT(multiply_row_e4m3_nt_impl);
HWY_EXPORT(transpose_impl);
HWY_EXPORT(softmax_tile_impl);
HWY_EXPORT(relu_weighted_sum_impl);
HWY_EXPORT(combine_impl);
HWY_EXPORT(scale_impl);
HWY_EXPORT(exponential_impl);
HWY_EXPORT(target_name_impl);

void decode_values(DType dtype, const std::byte* src, int64_t count, float scale, float* dst) {
  HWY_DYNAMIC_DISPATCH(decode_values_impl)(dtype, src, count, scale, dst);
}

void decode_latent_rows(LatentLayout layout, const std::byte* const* rows, int32_t count, int32_t kv_lora_rank,
                        int32_t rope_dim, float* latent, int64_t latent_stride, float* rope, int64_t rope_stride) {
  HWY_DYNAMIC_DISPATCH(decode_latent_rows_impl)
  (layout, rows, count, kv_lora_rank, rope_dim, latent, latent_stride, rope, rope_stride);
}

void multiply_nn(int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* b, int64_t ldb, float* c,
                 int64_t ldc, bool accumulate, const float* c_factor) {
  HWY_DYNAMIC_DISPATCH(multiply_nn_impl)(m, n, k, a, lda, b, ldb, c, ldc, accumulate, c_factor);
}

void multiply_nt(int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* b, int64_t ldb, float* c,
                 int64_t ldc, bool accumulate) {
  HWY_DYNAMIC_DISPATCH(multiply_nt_impl)(m, n, k, a, lda, b, ldb, c, ldc, accumulate);
}

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

void transpose(int64_t rows, int64_t cols, const float* src, int64_t src_stride, float* dst, int64_t dst_stride) {
  HWY_DYNAMIC_DISPATCH(transpose_impl)(rows, cols, src, src_stride, dst, dst_stride);
}

void softmax_tile(int64_t rows, float* scores, const uint64_t* visible, float scale, float* max, float* sum,
                  float* factor) {
  HWY_DYNAMIC_DISPATCH(softmax_tile_impl)(rows, scores, visible, scale, max, sum, factor);
}

void relu_weighted_sum(int64_t heads, const float* scores, const float* weights, float* out) {
  HWY_DYNAMIC_DISPATCH(relu_weighted_sum_impl)(heads, scores, weights, out);
}

void combine(int64_t count, float* x, float x_factor, const float* y, float y_factor) {
  HWY_DYNAMIC_DISPATCH(combine_impl)(count, x, x_factor, y, y_factor);
}

void scale(int64_t count, float* x, float factor) { HWY_DYNAMIC_DISPATCH(scale_impl)(count, x, factor); }

float exponential(float x) { return HWY_DYNAMIC_DISPATCH(exponential_impl)(x); }

const char* target_name() { return HWY_DYNAMIC_DISPATCH(target_name_impl)(); }

}  // namespace lantern::host_math
#endif
