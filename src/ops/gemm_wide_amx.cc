// Many rows by AMX tiles: weights stay in L1 while the rows of x pass.
#include "ops/gemm_amx_product.h"

namespace lantern::amx {
namespace {

constexpr int64_t kWideCols = 512;  // columns of W that stay in L1 while the rows of x pass

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

}  // namespace

// kWideCols columns of 32 outputs stay in L1 while the panel's slice of those columns passes from L2, where
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

}  // namespace lantern::amx
