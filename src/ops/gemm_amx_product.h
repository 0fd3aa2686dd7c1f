// What the two products by AMX tiles (narrow, wide) and the packing of x share. Included by files built for AMX only.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "ops/gemm_amx_e4m3.h"
#include "ops/gemm_amx_tiles.h"
#include "ops/gemm_kernel.h"

// GCC 12 takes the deliberately undefined pass-through operands in its own intrinsics for mistakes (GCC bug 105593).
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

namespace lantern::amx {

constexpr int64_t kChunk = 64;           // columns of the panel are padded to a multiple of this
constexpr int64_t kUnscaledBlock = 128;  // columns between sums of FP8 weights without block scales
constexpr int64_t kMostBlockCols = 256;  // bounds the bf16 copy of a scale block
constexpr int64_t kFetchAhead = 256;     // bytes of each row of FP8; more only waits for the same few fill buffers
constexpr int64_t kWideOutputs = 128;    // outputs whose sums the wide path keeps, all rows of a panel

inline int64_t padded_cols(int64_t cols) { return (cols + kChunk - 1) / kChunk * kChunk; }
// A panel of fewer than 16 rows is as narrow as it can be; others are padded to whole groups.
inline int64_t group_width(int64_t rows) { return rows < kGemmGroupRows ? rows : kGemmGroupRows; }
inline int64_t group_bytes(int64_t rows, int64_t cols) { return group_width(rows) * padded_cols(cols) * 2; }

inline void transpose_16x16(__m512i r[16]) {
  __m512i t[16];
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {
    r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  for (int i = 0; i < 4; ++i) {
    t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
    t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
    t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
    t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
  }
  for (int i = 0; i < 8; ++i) {
    r[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
    r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
  }
}

inline __mmask16 first_lanes(int64_t count) {
  const unsigned lanes = count >= 16 ? 0xffffu : count <= 0 ? 0u : (1u << count) - 1u;
  return static_cast<__mmask16>(lanes);
}

// `sums` holds [outputs][width] floats; adds or stores scale * sums to y for `rows` rows and `outputs` outputs.
inline void store_outputs(const LinearParams& params, const float* sums, int64_t width, float scale, int64_t row,
                          int64_t rows, int64_t out, int64_t outputs) {
  const __mmask16 mask = first_lanes(outputs);
  const __m512 factor = _mm512_set1_ps(scale);
  __m512i r[16];
  if (width == 1) {
    r[0] = _mm512_loadu_si512(sums);
  } else {
    for (int64_t i = 0; i < 16; ++i) r[i] = _mm512_maskz_loadu_epi32(first_lanes(width), sums + i * width);
    transpose_16x16(r);
  }
  for (int64_t i = 0; i < rows; ++i) {
    float* y = params.y.get() + (row + i) * params.y_stride + out;
    __m512 value = _mm512_mul_ps(_mm512_castsi512_ps(r[i]), factor);
    if (params.accumulate) value = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, y), value);
    _mm512_mask_storeu_ps(y, mask, value);
  }
}

// Columns [col, col + 64) of `rows` rows of codes as two A tiles; zeros from `cols` on.
inline void widen_chunk(const std::byte* weight, int64_t row_stride, int64_t rows, int64_t col, int64_t cols,
                        const E4m3Maps& maps, std::byte* target) {
  const std::byte* source = weight + col;
  const __mmask64 mask = cols - col >= kChunk ? ~0ull : (1ull << (cols - col)) - 1u;
#pragma GCC unroll 4
  for (int64_t row = 0; row < rows; ++row) {
    __builtin_prefetch(source + row * row_stride + kFetchAhead, 0, 3);
    widen_e4m3(_mm512_maskz_loadu_epi8(mask, source + row * row_stride), maps, target + row * 64,
               target + kTileBytes + row * 64);
  }
}

// Up to 32 outputs: two A tiles, the second perhaps empty, the last perhaps of fewer rows.
struct OutputPair {
  int64_t out;
  int64_t rows[2];
};

inline OutputPair output_pair(int64_t out, int64_t out_end) {
  const int64_t left = out_end - out;
  return {out, {left < 16 ? left : 16, left <= 16 ? 0 : left < 32 ? left - 16 : 16}};
}

// What stays the same during one call of multiply().
struct Product {
  const LinearParams& params;
  const GemmPanel& panel;
  const std::byte* weight = params.weight.data.get();
  const int64_t row_bytes = params.weight.row_bytes;
  const int64_t cols = params.weight.cols;
  const int64_t width = group_width(panel.rows);
  const int64_t group_stride = group_bytes(panel.rows, params.weight.cols);
  const int64_t tile_b = 16 * width * 4;  // bytes of a B tile

  const std::byte* row(int64_t out) const { return weight + out * row_bytes; }
  int64_t rows_of_group(int64_t group) const {
    const int64_t left = panel.rows - group * kGemmGroupRows;
    return left < kGemmGroupRows ? left : kGemmGroupRows;
  }
};

// The last columns of a bf16 row block, fewer than 32, as an A tile with zeros.
inline void copy_tail(const Product& p, int64_t out, int64_t rows, std::byte* tile) {
  const int64_t begin = p.cols / 32 * 32;
  const __mmask32 mask = (1u << (p.cols - begin)) - 1u;
  for (int64_t i = 0; i < rows; ++i) {
    _mm512_store_si512(tile + i * 64, _mm512_maskz_loadu_epi16(mask, p.row(out + i) + begin * 2));
  }
}

// sums += scale * partial, `count` floats, a multiple of 16.
inline void add_scaled(float* sums, const float* partial, float scale, int64_t count) {
  const __m512 factor = _mm512_set1_ps(scale);
  for (int64_t i = 0; i < count; i += 16) {
    _mm512_store_ps(sums + i, _mm512_fmadd_ps(_mm512_load_ps(partial + i), factor, _mm512_load_ps(sums + i)));
  }
}

// sums = 0 + scale * partial, by the same operation.
inline void set_scaled(float* sums, const float* partial, float scale, int64_t count) {
  const __m512 factor = _mm512_set1_ps(scale);
  for (int64_t i = 0; i < count; i += 16) {
    _mm512_store_ps(sums + i, _mm512_fmadd_ps(_mm512_load_ps(partial + i), factor, _mm512_setzero_ps()));
  }
}

inline int64_t block_cols(const QuantizedMatrix& w) { return w.block_rows == 0 ? kUnscaledBlock : w.block_cols; }

// Outputs [out_begin, out_end) of one or two groups of rows (gemm_narrow_amx.cc).
void multiply_narrow_bf16(const Product& p, int64_t out_begin, int64_t out_end);
void multiply_narrow_fp8(const Product& p, int64_t out_begin, int64_t out_end);
// Of more, at most kWideOutputs outputs (gemm_wide_amx.cc).
void multiply_wide_bf16(const Product& p, int64_t out_begin, int64_t out_end);
void multiply_wide_fp8(const Product& p, int64_t out_begin, int64_t out_end);

}  // namespace lantern::amx
