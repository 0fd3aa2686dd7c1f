// bf16 and FP8 weights by AMX tiles. Weights are the A operand, loaded in place (16 outputs x 32 columns a tile; FP8 by
// way of a bf16 copy of one scale block in L1); x is the B operand, packed; a C tile is 16 outputs x 16 rows of x.
// Order of K: TDPBF16PS over tiles of 32 columns from the first to the last, within a scale block. Both paths (narrow
// and wide, in files of their own) do just that for every element, however many rows there are; tile registers keep
// float, so that a C tile that goes to memory and back stays the same.
#include <immintrin.h>

#include "ops/gemm_amx_product.h"

namespace lantern {
namespace {

using namespace amx;

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

// The columns of tile `half` (0, 1) of a chunk of 64 of FP8 weights, as widen_e4m3() yields them; bf16 weights take
// columns in order. The order within a tile is free, so that x is put into the weights' order.
__m512i fp8_order(int half) {
  alignas(64) uint16_t index[32];
  for (int i = 0; i < 32; ++i) index[i] = static_cast<uint16_t>(i / 8 * 16 + half * 8 + i % 8);
  return _mm512_load_si512(index);
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
