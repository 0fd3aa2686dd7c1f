// bf16 and FP8 weights by AMX tiles. Weights are the A operand, loaded in place (16 outputs x 32 columns a tile; FP8 by
// way of a bf16 copy of one scale block in L1); x is the B operand, packed; a C tile is 16 outputs x 16 rows of x.
// Order of K: TDPBF16PS over tiles of 32 columns from the first to the last, within a scale block. Both paths below do
// just that for every element, however many rows there are; tile registers keep float, so that a C tile that goes to
// memory and back stays the same.
#include <immintrin.h>

#include <cstring>

#include "ops/gemm_amx_e4m3.h"
#include "ops/gemm_amx_tiles.h"
#include "ops/gemm_kernel.h"

// GCC 12 takes the deliberately undefined pass-through operands in its own intrinsics for mistakes (GCC bug 105593).
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

namespace lantern {
namespace {

using namespace amx;

constexpr int64_t kChunk = 64;           // columns of the panel are padded to a multiple of this
constexpr int64_t kRunCols = 128;        // columns of a step of multiply_run()
constexpr int64_t kUnscaledBlock = 128;  // columns between sums of FP8 weights without block scales
constexpr int64_t kMostBlockCols = 256;  // bounds the bf16 copy of a scale block
constexpr int64_t kFetchAhead = 256;     // bytes of each row of FP8; more only waits for the same few fill buffers
constexpr int64_t kPage = 4096;          // of hardware's prefetchers, whatever the system's are
constexpr int64_t kLongestRun = 8;       // A tiles whose outputs interleave in the narrow FP8 path
constexpr int64_t kWideOutputs = 128;    // outputs whose sums the wide path keeps, all rows of a panel
constexpr int64_t kWideCols = 512;       // columns of W that stay in L1 while the rows of x pass

int64_t padded_cols(int64_t cols) { return (cols + kChunk - 1) / kChunk * kChunk; }
// A panel of fewer than 16 rows is as narrow as it can be; others are padded to whole groups.
int64_t group_width(int64_t rows) { return rows < kGemmGroupRows ? rows : kGemmGroupRows; }
int64_t group_bytes(int64_t rows, int64_t cols) { return group_width(rows) * padded_cols(cols) * 2; }

int64_t panel_bytes(int64_t rows, int64_t cols) {
  const int64_t groups = (rows + kGemmGroupRows - 1) / kGemmGroupRows;
  return groups * group_bytes(rows, cols);
}

const char* refuses(const QuantizedMatrix& w, LinearInput input) {
  if (input == LinearInput::kExact) return "x must stay float";
  if (w.dtype == DType::kBF16) return w.block_rows == 0 ? nullptr : "bf16 weights with block scales";
  if (w.dtype != DType::kF8E4M3) return "neither bf16 nor FP8 weights";
  if (w.block_rows == 0) return nullptr;
  if (w.block_rows % 16 != 0) return "FP8 scale blocks whose rows are no multiple of 16";
  if (w.block_cols % kChunk != 0 || w.block_cols > kMostBlockCols)
    return "FP8 scale blocks not of 64, 128, 192 or 256 columns";
  return nullptr;
}

// ---- x -> B tiles: [column pair][row of the group], two bf16 each.

// The columns of tile `half` (0, 1) of a chunk of 64 of FP8 weights, as widen_e4m3() yields them; bf16 weights take
// columns in order. The order within a tile is free, so that x is put into the weights' order.
__m512i fp8_order(int half) {
  alignas(64) uint16_t index[32];
  for (int i = 0; i < 32; ++i) index[i] = static_cast<uint16_t>(i / 8 * 16 + half * 8 + i % 8);
  return _mm512_load_si512(index);
}

void transpose_16x16(__m512i r[16]) {
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

__mmask16 first_lanes(int64_t count) {
  const unsigned lanes = count >= 16 ? 0xffffu : count <= 0 ? 0u : (1u << count) - 1u;
  return static_cast<__mmask16>(lanes);
}

// Columns [col, col + 32) of a row as bf16, zeros from `cols` on.
__m512i load_x(const float* x, int64_t col, int64_t cols) {
  const __m512 low = _mm512_maskz_loadu_ps(first_lanes(cols - col), x + col);
  const __m512 high = _mm512_maskz_loadu_ps(first_lanes(cols - col - 16), x + col + 16);
  return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low));
}

void pack(const LinearParams& params, const GemmPanel& panel, int64_t group_begin, int64_t group_end) {
  const int64_t cols = params.weight.cols;
  const int64_t width = group_width(panel.rows);
  const bool fp8 = params.weight.dtype == DType::kF8E4M3;
  const __m512i order[2] = {fp8_order(0), fp8_order(1)};
  for (int64_t group = group_begin; group < group_end; ++group) {
    const float* x[16];
    const int64_t first = group * kGemmGroupRows;
    const int64_t count = panel.rows - first < kGemmGroupRows ? panel.rows - first : kGemmGroupRows;
    for (int64_t i = 0; i < count; ++i) x[i] = x_row(params, panel.row_begin + first + i);
    std::byte* target = panel.data + group * group_bytes(panel.rows, cols);
    for (int64_t col = 0; col < padded_cols(cols); col += kChunk) {
      __m512i tiles[2][16];
      for (int64_t i = 0; i < count; ++i) {
        tiles[0][i] = load_x(x[i], col, cols);
        tiles[1][i] = load_x(x[i], col + 32, cols);
        if (fp8) {
          const __m512i low = tiles[0][i];
          tiles[0][i] = _mm512_permutex2var_epi16(low, order[0], tiles[1][i]);
          tiles[1][i] = _mm512_permutex2var_epi16(low, order[1], tiles[1][i]);
        }
      }
      if (width == 1) {
        _mm512_storeu_si512(target, tiles[0][0]);
        _mm512_storeu_si512(target + 64, tiles[1][0]);
        target += 128;
        continue;
      }
      for (auto& tile : tiles) {
        for (int64_t i = count; i < 16; ++i) tile[i] = _mm512_setzero_si512();
        transpose_16x16(tile);
        for (int64_t pair = 0; pair < 16; ++pair) {
          _mm512_mask_storeu_epi32(target + pair * width * 4, first_lanes(width), tile[pair]);
        }
        target += 16 * width * 4;
      }
    }
  }
}

// ---- C tiles -> y.

// `sums` holds [outputs][width] floats; adds or stores scale * sums to y for `rows` rows and `outputs` outputs.
void store_outputs(const LinearParams& params, const float* sums, int64_t width, float scale, int64_t row, int64_t rows,
                   int64_t out, int64_t outputs) {
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

// ---- FP8 -> A tiles.

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

// ---- The product.

// Up to 32 outputs: two A tiles, the second perhaps empty, the last perhaps of fewer rows.
struct OutputPair {
  int64_t out;
  int64_t rows[2];
};

OutputPair output_pair(int64_t out, int64_t out_end) {
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
void copy_tail(const Product& p, int64_t out, int64_t rows, std::byte* tile) {
  const int64_t begin = p.cols / 32 * 32;
  const __mmask32 mask = (1u << (p.cols - begin)) - 1u;
  for (int64_t i = 0; i < rows; ++i) {
    _mm512_store_si512(tile + i * 64, _mm512_maskz_loadu_epi16(mask, p.row(out + i) + begin * 2));
  }
}

// One or two groups of rows: every weight is used once, from memory, for all of x.
void multiply_narrow_bf16(const Product& p, int64_t out_begin, int64_t out_end) {
  alignas(64) std::byte tail[2][kTileBytes];
  alignas(64) float sums[4][256];
  const int64_t groups = p.panel.groups();
  const int64_t steps = p.cols / 32;
  TileConfig config;
  for (int64_t out = out_begin; out < out_end; out += 32) {
    const OutputPair pair = output_pair(out, out_end);
    config.set(pair.rows[0], pair.rows[1], p.width);
    const bool two_a = pair.rows[1] != 0;
    Operands o{.a0 = p.row(out),
               .a1 = p.row(out + 16),
               .a_stride = p.row_bytes,
               .a_step = 64,
               .b0 = p.panel.data,
               .b1 = p.panel.data + p.group_stride,
               .b_stride = p.width * 4,
               .b_step = p.tile_b};
    zero(two_a, groups == 2);
    accumulate(o, steps, two_a, groups == 2);
    if (steps * 32 < p.cols) {
      copy_tail(p, out, pair.rows[0], tail[0]);
      copy_tail(p, out + 16, pair.rows[1], tail[1]);
      o.a0 = tail[0];
      o.a1 = tail[1];
      o.a_stride = 64;
      o.b0 += steps * p.tile_b;
      o.b1 += steps * p.tile_b;
      accumulate(o, 1, two_a, groups == 2);
    }
    store(sums[0], p.width * 4, two_a, groups == 2);
    for (int64_t a = 0; a < (two_a ? 2 : 1); ++a) {
      for (int64_t group = 0; group < groups; ++group) {
        store_outputs(p.params, sums[a * 2 + group], p.width, p.params.weight.global_scale,
                      p.panel.row_begin + group * kGemmGroupRows, p.rows_of_group(group), out + a * 16, pair.rows[a]);
      }
    }
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

// The sums of the outputs a, a + run, ... of a run to their places in it.
inline void put_in_order(const Product& p, const float (&sums)[256], int64_t run, int64_t a,
                         float (&ordered)[kLongestRun][256]) {
  if (p.width == 1) {  // no loop over one float: it becomes a call of memcpy
    for (int64_t row = 0, at = a; row < 16; ++row, at += run) ordered[at / 16][at % 16] = sums[row];
    return;
  }
  for (int64_t row = 0; row < 16; ++row) {
    const int64_t at = row * run + a;
    for (int64_t i = 0; i < p.width; ++i) ordered[at / 16][at % 16 * p.width + i] = sums[row * p.width + i];
  }
}

int64_t block_cols(const QuantizedMatrix& w) { return w.block_rows == 0 ? kUnscaledBlock : w.block_cols; }

// The first kRunCols columns of the pages that 16 rows of codes are about to enter.
inline void fetch_pages(const std::byte* codes, int64_t stride) {
  for (int64_t row = 0; row < 16; ++row) {
    for (int64_t byte = kFetchAhead; byte < kFetchAhead + kRunCols; byte += 64) {
      __builtin_prefetch(codes + row * stride + byte, 0, 3);
    }
  }
}

// 16 outputs by kRunCols columns after the other, of all columns, for each tile of a run: tile j of a run of 16 * r
// outputs takes the outputs j, j + r, j + 2 r, ... All tiles of the run together read 16 streams that are r rows long,
// each going on where the tile before left it. The hardware's prefetchers follow those; they keep one stream per 4 KiB
// page, and rows of FP8 are short. Prefetches of our own only take fill buffers from them, but for the first lines of
// each page: most strides are whole pages, so that all streams come to an end together.
// A few rows of the next tile are widened between any two operations on the tile before: products that follow each
// other wait 52 cycles for the sum, and loads of tiles wait for the stores. A scale block's sums are taken up after the
// next block's for the same reason. `ordered` receives [group][tile][16 outputs][width].
template <bool kTwoB>
void multiply_run(const Product& p, int64_t out, int64_t run, float (&ordered)[2][kLongestRun][256]) {
  const QuantizedMatrix& w = p.params.weight;
  const E4m3Maps maps = e4m3_maps();
  alignas(64) std::byte chunks[2][kRunCols / 32 * kTileBytes];
  alignas(64) float partial[2][2][256];  // [block % 2][group]
  alignas(64) float sums[2][256];
  constexpr int64_t kGroups = kTwoB ? 2 : 1;
  const int64_t step = block_cols(w);
  const int64_t floats = 16 * p.width;
  const int64_t stride = run * p.row_bytes;
  const int64_t b_stride = p.width * 4;
  const RowScales scales(w, out);  // all outputs of a run have the same
  const auto take_up = [&](int64_t block) {
    const float scale = scales[block];
    for (int64_t group = 0; group < kGroups; ++group) {
      block == 0 ? set_scaled(sums[group], partial[0][group], scale, floats)
                 : add_scaled(sums[group], partial[block % 2][group], scale, floats);
    }
  };
  widen_rows<16>(p.row(out), stride, maps, chunks[0]);
  int turn = 0;
  for (int64_t a = 0; a < run; ++a) {
    const std::byte* const row = p.row(out + a);
    const std::byte* const after = a + 1 < run ? row + p.row_bytes : row;
    const std::byte* b = p.panel.data;
    int64_t block = 0;
    for (int64_t col = 0; col < p.cols; ++block) {
      const int64_t end = p.cols - col < step ? p.cols : col + step;
      tile_zero<0>();
      if constexpr (kTwoB) tile_zero<1>();
      while (col < end) {
        col += kRunCols;
        const std::byte* next = col < p.cols ? row + col : after;
        const std::byte* tile = chunks[turn];
        turn ^= 1;
        std::byte* target = chunks[turn];
        if (((reinterpret_cast<uintptr_t>(next) + kFetchAhead) & (kPage - 1)) < kRunCols) fetch_pages(next, stride);
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
          tile_load<6>(b, b_stride);
          tile_load<4>(tile, 64);
          if constexpr (kTwoB) tile_load<7>(b + p.group_stride, b_stride);
          widen_rows<4>(next, stride, maps, target);
          tile_multiply<0, 4, 6>();
          if constexpr (kTwoB) tile_multiply<1, 4, 7>();
          next += 4 * stride;
          target += 4 * 64;
          tile += kTileBytes;
          b += p.tile_b;
        }
      }
      tile_store<0>(partial[block % 2][0], b_stride);
      if constexpr (kTwoB) tile_store<1>(partial[block % 2][1], b_stride);
      if (block > 0) take_up(block - 1);
    }
    take_up(block - 1);
    for (int64_t group = 0; group < kGroups; ++group) put_in_order(p, sums[group], run, a, ordered[group]);
  }
}

// Tile `a` of a run as above, for fewer than 16 outputs, or columns or scale blocks that are no multiple of kRunCols.
void multiply_partial(const Product& p, int64_t out, int64_t rows, int64_t run, int64_t a,
                      float (&ordered)[2][kLongestRun][256]) {
  const QuantizedMatrix& w = p.params.weight;
  const E4m3Maps maps = e4m3_maps();
  alignas(64) std::byte chunk[2 * kTileBytes];
  alignas(64) float partial[4][256];
  alignas(64) float sums[2][256];
  const int64_t groups = p.panel.groups();
  const int64_t step = block_cols(w);
  Operands o{.a0 = chunk,
             .a_stride = 64,
             .a_step = kTileBytes,
             .b0 = p.panel.data,
             .b1 = p.panel.data + p.group_stride,
             .b_stride = p.width * 4,
             .b_step = p.tile_b};
  for (int64_t block = 0; block < p.cols; block += step) {
    const int64_t end = p.cols - block < step ? p.cols : block + step;
    zero(false, groups == 2);
    for (int64_t col = block; col < end; col += kChunk) {
      widen_chunk(p.row(out + a), run * p.row_bytes, rows, col, p.cols, maps, chunk);
      accumulate(o, 2, false, groups == 2);
      o.b0 += 2 * p.tile_b;
      o.b1 += 2 * p.tile_b;
    }
    store(partial[0], p.width * 4, false, groups == 2);
    const float scale = block_scale(w, out + a, block);
    for (int64_t group = 0; group < groups; ++group) {
      block == 0 ? set_scaled(sums[group], partial[group], scale, 16 * p.width)
                 : add_scaled(sums[group], partial[group], scale, 16 * p.width);
    }
  }
  for (int64_t group = 0; group < groups; ++group) put_in_order(p, sums[group], run, a, ordered[group]);
}

// One or two groups of rows by FP8 weights.
void multiply_narrow_fp8(const Product& p, int64_t out_begin, int64_t out_end) {
  const QuantizedMatrix& w = p.params.weight;
  alignas(64) float ordered[2][kLongestRun][256];
  const int64_t groups = p.panel.groups();
  TileConfig config;
  int64_t run = 1;
  for (int64_t out = out_begin; out < out_end; out += 16 * run) {
    // All outputs of a run have the same scales.
    const auto fits = [&](int64_t r) {
      return out + 16 * r <= out_end && out % (16 * r) == 0 && w.block_rows % (16 * r) == 0;
    };
    run = fits(kLongestRun) ? kLongestRun : fits(2) ? 2 : 1;
    const int64_t rows = out_end - out < 16 ? out_end - out : 16;
    config.set(rows, 0, p.width);
    if (rows == 16 && p.cols % kRunCols == 0 && block_cols(w) % kRunCols == 0) {
      groups == 2 ? multiply_run<true>(p, out, run, ordered) : multiply_run<false>(p, out, run, ordered);
    } else {
      for (int64_t a = 0; a < run; ++a) multiply_partial(p, out, rows, run, a, ordered);
    }
    for (int64_t a = 0; a < run; ++a) {
      for (int64_t group = 0; group < groups; ++group) {
        store_outputs(p.params, ordered[group][a], p.width, 1.0f, p.panel.row_begin + group * kGemmGroupRows,
                      p.rows_of_group(group), out + a * 16, rows);
      }
    }
  }
}

// Sums of up to kWideOutputs outputs by all rows of a panel: [pair of outputs][pair of groups][4 C tiles].
struct WideSums {
  static constexpr int64_t kGroupPairs = kGemmPanelRows / 32;
  alignas(64) float tiles[kWideOutputs / 32][kGroupPairs][4][256];
};

// The weights that the wide path needs next, fetched bit by bit while the rows of x pass.
class NextWeights {
 public:
  // After columns [col, end) of `out`: the same of the next outputs, or the next `most` columns of the first.
  NextWeights(const Product& p, int64_t out_begin, int64_t out, int64_t out_end, int64_t col, int64_t end, int64_t most)
      : row_bytes_(p.row_bytes) {
    const int64_t next = out + 32 < out_end ? out + 32 : out_begin;
    const int64_t begin = next == out_begin ? end : col;
    const int64_t width = p.cols - begin < most ? p.cols - begin : most;
    if (width <= 0) return;
    const int64_t element = p.params.weight.dtype == DType::kBF16 ? 2 : 1;
    bytes_ = width * element;
    rows_ = out_end - next < 32 ? out_end - next : 32;
    at_ = p.row(next) + begin * element;
  }
  void part(int64_t index, int64_t parts) const {
    for (int64_t row = index * rows_ / parts; row < (index + 1) * rows_ / parts; ++row) {
      for (int64_t byte = 0; byte < bytes_; byte += 64) __builtin_prefetch(at_ + row * row_bytes_ + byte, 0, 2);
    }
  }

 private:
  const std::byte* at_ = nullptr;
  int64_t row_bytes_, bytes_ = 0, rows_ = 0;
};

// C tile `tile` (0-3, [A][B]) of a pair of groups from `group` to y; nothing where the pairs have no such tile.
void store_wide_tile(const Product& p, const float (&tiles)[4][256], int64_t tile, int64_t group, int64_t out,
                     const OutputPair& pair, float scale) {
  const int64_t a = tile / 2, g = group + tile % 2;
  if (pair.rows[a] == 0 || g >= p.panel.groups()) return;
  store_outputs(p.params, tiles[tile], 16, scale, p.panel.row_begin + g * kGemmGroupRows, p.rows_of_group(g),
                out + a * 16, pair.rows[a]);
}

void store_wide(const Product& p, const float (&tiles)[4][256], int64_t group, int64_t out, const OutputPair& pair,
                float scale) {
  for (int64_t tile = 0; tile < 4; ++tile) store_wide_tile(p, tiles, tile, group, out, pair, scale);
}

// Many rows: kWideCols columns of 32 outputs stay in L1 while the panel's slice of those columns passes from L2, where
// it stays for the next 32 outputs.
void multiply_wide_bf16(const Product& p, int64_t out_begin, int64_t out_end) {
  alignas(64) std::byte tail[2][kTileBytes];
  WideSums sums;
  TileConfig config;
  const int64_t groups = p.panel.groups();
  const float scale = p.params.weight.global_scale;
  for (int64_t col = 0; col < p.cols; col += kWideCols) {
    const int64_t cols = p.cols - col < kWideCols ? p.cols - col : kWideCols;
    const bool last = col + cols == p.cols;
    const int64_t steps = cols / 32;
    for (int64_t out = out_begin; out < out_end; out += 32) {
      const OutputPair pair = output_pair(out, out_end);
      config.set(pair.rows[0], pair.rows[1], 16);
      const bool two_a = pair.rows[1] != 0;
      if (steps * 32 < cols) {
        copy_tail(p, out, pair.rows[0], tail[0]);
        copy_tail(p, out + 16, pair.rows[1], tail[1]);
      }
      const NextWeights next(p, out_begin, out, out_end, col, col + cols, kWideCols);
      auto& tiles = sums.tiles[(out - out_begin) / 32];
      for (int64_t group = 0; group < groups; group += 2) {
        const bool two_b = group + 1 < groups;
        const std::byte* b = p.panel.data + group * p.group_stride + col / 32 * p.tile_b;
        float* c = tiles[group / 2][0];
        next.part(group / 2, (groups + 1) / 2);
        Operands o{.a0 = p.row(out) + col * 2,
                   .a1 = p.row(out + 16) + col * 2,
                   .a_stride = p.row_bytes,
                   .a_step = 64,
                   .b0 = b,
                   .b1 = b + p.group_stride,
                   .b_stride = 64,
                   .b_step = p.tile_b};
        if (col == 0) {
          zero(two_a, two_b);
        } else {
          load(c, 64, two_a, two_b);
        }
        // The sums of the groups before go to y between products: alone they would take a fifth as long again.
        for (int64_t quarter = 0; quarter < 4; ++quarter) {
          const int64_t count = steps * (quarter + 1) / 4 - steps * quarter / 4;
          accumulate(o, count, two_a, two_b);
          o.a0 += count * o.a_step;
          o.a1 += count * o.a_step;
          o.b0 += count * o.b_step;
          o.b1 += count * o.b_step;
          if (last && group > 0) store_wide_tile(p, tiles[group / 2 - 1], quarter, group - 2, out, pair, scale);
        }
        if (steps * 32 < cols) {
          o.a0 = tail[0];
          o.a1 = tail[1];
          o.a_stride = 64;
          accumulate(o, 1, two_a, two_b);
        }
        store(c, 64, two_a, two_b);
      }
      if (last) store_wide(p, tiles[(groups - 1) / 2], (groups - 1) / 2 * 2, out, pair, scale);
    }
  }
}

// The same, one scale block of 32 outputs at a time, widened into L1. Its products with two groups of rows are taken up
// while those of the next two begin.
void multiply_wide_fp8(const Product& p, int64_t out_begin, int64_t out_end) {
  const QuantizedMatrix& w = p.params.weight;
  const E4m3Maps maps = e4m3_maps();
  alignas(64) std::byte block[2][kMostBlockCols / 32 * kTileBytes];
  alignas(64) float partial[2][4][256];
  WideSums sums;
  TileConfig config;
  const int64_t groups = p.panel.groups();
  const int64_t step = block_cols(w);
  for (int64_t col = 0; col < p.cols; col += step) {
    const int64_t end = p.cols - col < step ? p.cols : col + step;
    const int64_t steps = (end - col + kChunk - 1) / kChunk * 2;
    for (int64_t out = out_begin; out < out_end; out += 32) {
      const OutputPair pair = output_pair(out, out_end);
      config.set(pair.rows[0], pair.rows[1], 16);
      const bool two_a = pair.rows[1] != 0;
      const float scale[2] = {block_scale(w, out, col), two_a ? block_scale(w, out + 16, col) : 0.0f};
      for (int64_t c = col; c < end; c += kChunk) {
        std::byte* target = block[0] + (c - col) / 32 * kTileBytes;
        widen_chunk(p.row(out), p.row_bytes, pair.rows[0], c, p.cols, maps, target);
        target += sizeof(block[0]);
        if (two_a) widen_chunk(p.row(out + 16), p.row_bytes, pair.rows[1], c, p.cols, maps, target);
      }
      const auto take_up = [&](int64_t group) {
        float(&tiles)[4][256] = sums.tiles[(out - out_begin) / 32][group / 2];
        for (int64_t a = 0; a < (two_a ? 2 : 1); ++a) {
          for (int64_t b = 0; b < 2 && group + b < groups; ++b) {
            const float* from = partial[group / 2 % 2][a * 2 + b];
            col == 0 ? set_scaled(tiles[a * 2 + b], from, scale[a], 256)
                     : add_scaled(tiles[a * 2 + b], from, scale[a], 256);
          }
        }
        if (end == p.cols) store_wide(p, tiles, group, out, pair, 1.0f);
      };
      const NextWeights next(p, out_begin, out, out_end, col, end, step);
      for (int64_t group = 0; group < groups; group += 2) {
        const bool two_b = group + 1 < groups;
        next.part(group / 2, (groups + 1) / 2);
        const std::byte* b = p.panel.data + group * p.group_stride + col / 32 * p.tile_b;
        const Operands o{.a0 = block[0],
                         .a1 = block[1],
                         .a_stride = 64,
                         .a_step = kTileBytes,
                         .b0 = b,
                         .b1 = b + p.group_stride,
                         .b_stride = 64,
                         .b_step = p.tile_b};
        zero(two_a, two_b);
        accumulate(o, steps, two_a, two_b);
        store(partial[group / 2 % 2][0], 64, two_a, two_b);
        if (group > 0) take_up(group - 2);
      }
      take_up((groups - 1) / 2 * 2);
    }
  }
}

void multiply(const LinearParams& params, const GemmPanel& panel, int64_t out_begin, int64_t out_end) {
  const Product product{params, panel};
  const bool fp8 = params.weight.dtype == DType::kF8E4M3;
  if (panel.groups() <= 2) {
    fp8 ? multiply_narrow_fp8(product, out_begin, out_end) : multiply_narrow_bf16(product, out_begin, out_end);
    return;
  }
  for (int64_t out = out_begin; out < out_end; out += kWideOutputs) {
    const int64_t end = out_end - out < kWideOutputs ? out_end : out + kWideOutputs;
    fp8 ? multiply_wide_fp8(product, out, end) : multiply_wide_bf16(product, out, end);
  }
}

}  // namespace

const GemmKernel& gemm_amx_kernel() {
  static constexpr GemmKernel kKernel = {
      .name = "linear.cpu.amx_bf16",
      .missing_on_machine = &missing_amx_bf16,
      .refuses = &refuses,
      .out_block = 32,
      .panel_bytes = &panel_bytes,
      .pack = &pack,
      .multiply = &multiply,
  };
  return kKernel;
}

}  // namespace lantern
