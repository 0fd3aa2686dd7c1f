// One or two groups of rows by AMX tiles: every weight is used once, from memory, for all of x.
#include "ops/gemm_amx_product.h"

namespace lantern::amx {
namespace {

constexpr int64_t kRunCols = 128;   // columns of a step of multiply_run()
constexpr int64_t kPage = 4096;     // of hardware's prefetchers, whatever the system's are
constexpr int64_t kLongestRun = 8;  // A tiles whose outputs interleave in the narrow FP8 path

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

}  // namespace

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

}  // namespace lantern::amx
