#include "attention/split_product_amx.h"

#include <immintrin.h>

#include <algorithm>

#include "attention/host_math.h"
#include "base/amx_tiles.h"

namespace lantern::split_amx {
namespace {

using amx::tile_load;
using amx::tile_multiply;
using amx::tile_store;
using amx::tile_zero;

// Sums: tiles 0..3 as [row block][column block]. Left: 4 and 5, right: 6 and 7.
inline void four_products() {
  tile_multiply<0, 4, 6>();
  tile_multiply<1, 4, 7>();
  tile_multiply<2, 5, 6>();
  tile_multiply<3, 5, 7>();
}

inline void load_left(const uint16_t* a, int64_t depth) {
  tile_load<4>(a, depth * 2);
  tile_load<5>(a + 16 * depth, depth * 2);
}
inline void load_right(const uint16_t* b, int64_t n) {
  tile_load<6>(b, n * 4);
  tile_load<7>(b + 32, n * 4);
}

// With a full mask: GCC 12 takes the plain forms' undefined operand for a fault of ours.
constexpr __mmask16 kAll = 0xffff;
inline __m512i widen_bits(__m256i half) { return _mm512_maskz_cvtepu16_epi32(kAll, half); }
inline __m512i shift_up(__m512i x) { return _mm512_maskz_slli_epi32(kAll, x, 16); }

inline __m512 widen(__m256bh half) {
  return _mm512_castsi512_ps(shift_up(widen_bits(reinterpret_cast<__m256i>(half))));
}

struct Split {
  __m256i high;
  __m256i low;
};
inline Split split(__m512 x) {
  const __m256bh high = _mm512_cvtneps_pbh(x);
  const __m256bh low = _mm512_cvtneps_pbh(_mm512_sub_ps(x, widen(high)));
  return {reinterpret_cast<__m256i>(high), reinterpret_cast<__m256i>(low)};
}

inline __mmask16 first_lanes(int64_t count) {
  return static_cast<__mmask16>(count >= 16 ? 0xffff : count <= 0 ? 0 : (1 << count) - 1);
}

// The pairs (a, b) of two rows, side by side.
inline __m512i interleave(__m256i a, __m256i b) { return _mm512_or_si512(widen_bits(a), shift_up(widen_bits(b))); }

}  // namespace

void split_values(const float* src, int64_t count, int64_t at, Pieces out) {
  for (int64_t i = 0; i < count; i += 16) {
    const __mmask16 lanes = first_lanes(count - i);
    const Split s = split(_mm512_maskz_loadu_ps(lanes, src + i));
    _mm256_mask_storeu_epi16(out.high + at + i, lanes, s.high);
    _mm256_mask_storeu_epi16(out.low + at + i, lanes, s.low);
  }
}

void clear_pieces(int64_t count, int64_t at, Pieces out) {
  std::fill_n(out.high + at, count, uint16_t{0});
  std::fill_n(out.low + at, count, uint16_t{0});
}

void pack_columns(Pieces rows, int64_t keys, int64_t stride, Pieces out) {
  // A pair of pieces moves as one 32-bit value.
  const auto turn = [&](const uint16_t* from, uint16_t* to) {
    host_math::transpose(keys, stride / 2, reinterpret_cast<const float*>(from), stride / 2,
                         reinterpret_cast<float*>(to), keys);
  };
  turn(rows.high, out.high);
  turn(rows.low, out.low);
}

void pack_rows(const float* values, int64_t ld, int64_t count, int64_t depth, int64_t n, int64_t stride, Pieces out) {
  for (int64_t k = 0; k < depth; k += 2) {
    for (int64_t i = 0; i < stride; i += 16) {
      const __mmask16 lanes = first_lanes(n - i);
      const Split a = split(_mm512_maskz_loadu_ps(k < count ? lanes : __mmask16{0}, values + k * ld + i));
      const Split b = split(_mm512_maskz_loadu_ps(k + 1 < count ? lanes : __mmask16{0}, values + (k + 1) * ld + i));
      _mm512_storeu_si512(out.high + k * stride + 2 * i, interleave(a.high, b.high));
      _mm512_storeu_si512(out.low + k * stride + 2 * i, interleave(a.low, b.low));
    }
  }
}

void multiply(int64_t m, int64_t n, int64_t depth, Pieces a, Pieces b, float* c, int64_t ldc, bool accumulate) {
  for (int64_t i = 0; i < m; i += kRowBlock) {
    for (int64_t j = 0; j < n; j += 32) {
      float* block = c + i * ldc + j;
      if (accumulate) {
        tile_load<0>(block, ldc * 4);
        tile_load<1>(block + 16, ldc * 4);
        tile_load<2>(block + 16 * ldc, ldc * 4);
        tile_load<3>(block + 16 * ldc + 16, ldc * 4);
      } else {
        tile_zero<0>();
        tile_zero<1>();
        tile_zero<2>();
        tile_zero<3>();
      }
      for (int64_t k = 0; k < depth; k += 32) {
        const int64_t left = i * depth + k;
        const int64_t right = k * n + 2 * j;
        load_left(a.high + left, depth);
        load_right(b.low + right, n);
        four_products();
        load_right(b.high + right, n);
        four_products();
        load_left(a.low + left, depth);
        four_products();
      }
      tile_store<0>(block, ldc * 4);
      tile_store<1>(block + 16, ldc * 4);
      tile_store<2>(block + 16 * ldc, ldc * 4);
      tile_store<3>(block + 16 * ldc + 16, ldc * 4);
    }
  }
}

TileScope::TileScope() {
  amx::TileShapes shapes;
  for (int tile = 0; tile < 8; ++tile) shapes.set(tile, 16, 64);
  amx::load_tile_shapes(shapes);
}

TileScope::~TileScope() { amx::release_tiles(); }

}  // namespace lantern::split_amx
