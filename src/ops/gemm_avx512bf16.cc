// bf16 and FP8 weights by VDPBF16PS, for machines that have it and no AMX.
// Order of K: lane l of a running vector sums the column pairs l, l + 16, l + 32, ... of a scale block; each block's
// vector times its scale is added to a total vector in column order; lanes are summed at the end.
#include <immintrin.h>

#include <algorithm>

#include "base/amx.h"
#include "ops/gemm_kernel.h"

// GCC 12 takes the deliberately undefined pass-through operands in its own intrinsics for mistakes (GCC bug 105593).
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

namespace lantern {
namespace {

constexpr int64_t kStep = 32;  // columns of one instruction

int64_t padded_cols(int64_t cols) { return (cols + kStep - 1) / kStep * kStep; }

int64_t panel_bytes(int64_t rows, int64_t cols) { return rows * padded_cols(cols) * 2; }

const char* refuses(const QuantizedMatrix& w, LinearInput input) {
  if (input == LinearInput::kExact) return "x must stay float";
  if (w.dtype != DType::kBF16 && w.dtype != DType::kF8E4M3) return "neither bf16 nor FP8 weights";
  if (w.block_rows != 0 && w.block_cols % kStep != 0) return "scale blocks whose columns are no multiple of 32";
  return nullptr;
}

__mmask32 first_lanes(int64_t count) {
  return count >= 32 ? ~__mmask32{0} : count <= 0 ? 0 : static_cast<__mmask32>((1u << count) - 1u);
}

void pack(const LinearParams& params, const GemmPanel& panel, int64_t group_begin, int64_t group_end) {
  const int64_t cols = params.weight.cols;
  const int64_t end = group_end * kGemmGroupRows < panel.rows ? group_end * kGemmGroupRows : panel.rows;
  for (int64_t row = group_begin * kGemmGroupRows; row < end; ++row) {
    const float* x = x_row(params, panel.row_begin + row);
    std::byte* target = panel.data + row * padded_cols(cols) * 2;
    for (int64_t col = 0; col < cols; col += kStep) {
      const __mmask32 mask = first_lanes(cols - col);
      const __m512 low = _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask & 0xffffu), x + col);
      const __m512 high = _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask >> 16), x + col + 16);
      _mm512_storeu_si512(target + col * 2, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low)));
    }
  }
}

// e4m3 codes to bf16, exactly, by tables of both bytes of the 128 values without their sign.
class E4m3Table {
 public:
  E4m3Table() {
    alignas(64) uint8_t low[128], high[128], order[64];
    for (unsigned code = 0; code < 128; ++code) {
      const uint16_t bits = to_bf16(to_float(e4m3_t{static_cast<uint8_t>(code)})).bits;
      low[code] = static_cast<uint8_t>(bits & 0xff);
      high[code] = static_cast<uint8_t>(bits >> 8);
    }
    // Bytes are interleaved within 16 of them: those of the first 32 codes come from lower halves, the others from
    // upper.
    for (unsigned i = 0; i < 64; ++i) order[i] = static_cast<uint8_t>(i / 16 * 8 + i % 8 + i % 16 / 8 * 32);
    for (int half = 0; half < 2; ++half) {
      low_[half] = _mm512_load_si512(low + 64 * half);
      high_[half] = _mm512_load_si512(high + 64 * half);
    }
    order_ = _mm512_load_si512(order);
  }

  // 64 codes as two vectors of 32 values.
  void widen(__m512i codes, __m512bh& first, __m512bh& second) const {
    const __m512i c = _mm512_permutexvar_epi8(order_, codes);
    const __m512i low = _mm512_permutex2var_epi8(low_[0], c, low_[1]);
    const __m512i magnitude = _mm512_permutex2var_epi8(high_[0], c, high_[1]);
    const __m512i high = _mm512_ternarylogic_epi32(magnitude, c, _mm512_set1_epi8(-128), 0xf8);  // with c's sign
    first = reinterpret_cast<__m512bh>(_mm512_unpacklo_epi8(low, high));
    second = reinterpret_cast<__m512bh>(_mm512_unpackhi_epi8(low, high));
  }

 private:
  __m512i low_[2], high_[2], order_;
};

// What a tile reads of a row at a time: kWidth columns, as vectors of kStep; those behind `count` are zeros.
template <bool kFp8>
struct Weights {
  static constexpr int kVectors = kFp8 ? 2 : 1;
  static constexpr int64_t kWidth = kVectors * kStep;  // a cache line of either dtype
  static constexpr int64_t byte_of(int64_t col) { return kFp8 ? col : col * 2; }
  __m512bh values[kVectors];

  void load(const std::byte* line, const E4m3Table& table) {
    if constexpr (kFp8) {
      table.widen(_mm512_loadu_si512(line), values[0], values[1]);
    } else {
      values[0] = reinterpret_cast<__m512bh>(_mm512_loadu_si512(line));
    }
  }
  void load_first(const std::byte* line, int64_t count, const E4m3Table& table) {
    if constexpr (kFp8) {
      table.widen(_mm512_maskz_loadu_epi8((__mmask64{1} << count) - 1, line), values[0], values[1]);
    } else {
      values[0] = reinterpret_cast<__m512bh>(_mm512_maskz_loadu_epi16(first_lanes(count), line));
    }
  }
};

// From byte `byte` of a row to what a tile of `rows` rows needs kAhead bytes of each row later.
int64_t fetch_distance(int64_t byte, int64_t row_bytes, int64_t rows) {
  constexpr int64_t kAhead = 4096;  // bytes
  return byte + kAhead < row_bytes ? kAhead : kAhead + (rows - 1) * row_bytes;
}

// kR outputs from `out` by kC rows of x from panel row `row`. kFetch: the lines of the outputs behind them are fetched.
// A core waits for memory otherwise: it looks ahead over some hundred instructions, which are few lines of FP8, and the
// hardware's prefetchers do not follow rows this short.
template <bool kFp8, int kR, int kC, bool kFetch>
void tile(const LinearParams& params, const GemmPanel& panel, int64_t out, int64_t row, const E4m3Table& table) {
  using W = Weights<kFp8>;
  const QuantizedMatrix& w = params.weight;
  const int64_t x_stride = padded_cols(w.cols) * 2, row_bytes = w.row_bytes;
  const std::byte* x = panel.data + row * x_stride;
  const std::byte* weight = w.data.get() + out * row_bytes;
  const int64_t block = w.block_rows == 0 ? w.cols : w.block_cols;
  __m512 total[kR][kC];
  for (auto& r : total) {
    for (__m512& v : r) v = _mm512_setzero_ps();
  }
  RowScales scales[kR];
  for (int r = 0; r < kR; ++r) scales[r] = RowScales(w, out + r);
  for (int64_t begin = 0, index = 0; begin < w.cols; begin += block, ++index) {
    const int64_t end = begin + block < w.cols ? begin + block : w.cols;
    __m512 sum[kR][kC];
    for (auto& r : sum) {
      for (__m512& v : r) v = _mm512_setzero_ps();
    }
    const auto add = [&](const W(&a)[kR], int64_t col, int vectors) {
      for (int v = 0; v < vectors; ++v) {
        for (int c = 0; c < kC; ++c) {
          const __m512bh b = reinterpret_cast<__m512bh>(_mm512_loadu_si512(x + c * x_stride + (col + v * kStep) * 2));
          for (int r = 0; r < kR; ++r) sum[r][c] = _mm512_dpbf16_ps(sum[r][c], a[r].values[v], b);
        }
      }
    };
    int64_t col = begin;
    for (; col + W::kWidth <= end; col += W::kWidth) {
      W a[kR];
      for (int r = 0; r < kR; ++r) {
        const std::byte* line = weight + r * row_bytes + W::byte_of(col);
        if constexpr (kFetch) _mm_prefetch(line + fetch_distance(W::byte_of(col), row_bytes, kR), _MM_HINT_T0);
        a[r].load(line, table);
      }
      add(a, col, W::kVectors);
    }
    if (col < end) {
      W a[kR];
      for (int r = 0; r < kR; ++r) a[r].load_first(weight + r * row_bytes + W::byte_of(col), end - col, table);
      add(a, col, end - col > kStep ? 2 : 1);
    }
    for (int r = 0; r < kR; ++r) {
      const __m512 scale = _mm512_set1_ps(scales[r][index]);
      for (int c = 0; c < kC; ++c) total[r][c] = _mm512_fmadd_ps(sum[r][c], scale, total[r][c]);
    }
  }
  for (int c = 0; c < kC; ++c) {
    float* y = params.y.get() + (panel.row_begin + row + c) * params.y_stride + out;
    for (int r = 0; r < kR; ++r) {
      const float value = _mm512_reduce_add_ps(total[r][c]);
      y[r] = params.accumulate ? y[r] + value : value;
    }
  }
}

template <bool kFp8, int kR, int kC>
void rows_of_outputs(const LinearParams& params, const GemmPanel& panel, int64_t out, int64_t row,
                     const E4m3Table& table) {
  (row == 0 ? tile<kFp8, kR, kC, true> : tile<kFp8, kR, kC, false>)(params, panel, out, row, table);
}

template <bool kFp8, int kR>
void outputs(const LinearParams& params, const GemmPanel& panel, int64_t out, const E4m3Table& table) {
  int64_t row = 0;
  for (; row + 4 <= panel.rows; row += 4) rows_of_outputs<kFp8, kR, 4>(params, panel, out, row, table);
  switch (panel.rows - row) {  // drafts make few rows: those left over share one pass over the weights, too
    case 3: return rows_of_outputs<kFp8, kR, 3>(params, panel, out, row, table);
    case 2: return rows_of_outputs<kFp8, kR, 2>(params, panel, out, row, table);
    case 1: return rows_of_outputs<kFp8, kR, 1>(params, panel, out, row, table);
    default: return;
  }
}

// Many rows: the weights of some outputs and columns are laid out as bf16 once, where all rows of a block find them
// in the first level cache; what the lanes of those outputs and rows have summed waits meanwhile.
constexpr int64_t kManyRows = 16;  // from so many on
constexpr int64_t kBlockOutputs = 16, kBlockRows = 128, kBlockCols = 1024;
static_assert(kBlockCols % 64 == 0);

constexpr int64_t kBlockRowBytes = kBlockCols * 2 + 64;  // rows do not meet in one set of a cache

struct alignas(64) Block {
  std::byte weights[kBlockOutputs][kBlockRowBytes];
  float scales[kBlockOutputs][kBlockCols / kStep];
  __m512 sums[kBlockRows][kBlockOutputs];
};

// Columns [begin, end) of outputs from `out`, zeros behind them up to a multiple of kStep.
template <bool kFp8>
void lay(const QuantizedMatrix& w, int64_t out, int64_t outputs, int64_t begin, int64_t end, const E4m3Table& table,
         Block& block) {
  using W = Weights<kFp8>;
  for (int64_t r = 0; r < outputs; ++r) {
    const std::byte* row = w.data.get() + (out + r) * w.row_bytes;
    std::byte* target = block.weights[r];
    for (int64_t col = begin; col < end; col += W::kWidth) {
      const std::byte* line = row + W::byte_of(col);
      _mm_prefetch(line + w.row_bytes, _MM_HINT_T0);
      W a;
      if (end - col >= W::kWidth) {
        a.load(line, table);
      } else {
        a.load_first(line, end - col, table);
      }
      for (int v = 0; v < W::kVectors; ++v, target += 64) {
        _mm512_store_si512(target, reinterpret_cast<__m512i>(a.values[v]));
      }
    }
    if (w.block_rows == 0) continue;
    const RowScales scales(w, out + r);
    for (int64_t i = 0; begin + i * w.block_cols < end; ++i) block.scales[r][i] = scales[begin / w.block_cols + i];
  }
}

// Adds the block's `cols` columns of kR outputs from `r0` by kC rows from `c0`; x is row c0.
template <bool kScaled, int kR, int kC>
void block_tile(int64_t cols, int64_t scale_cols, const std::byte* x, int64_t x_stride, int64_t r0, int64_t c0,
                Block& block) {
  const int64_t width = kScaled ? scale_cols : cols;
  const std::byte* weights = block.weights[r0];
  const float* scales = block.scales[r0];
  __m512* totals = &block.sums[c0][r0];
  for (int64_t begin = 0; begin < cols; begin += width, ++scales) {
    const int64_t end = begin + width < cols ? begin + width : cols;
    __m512 sum[kR][kC];

#pragma GCC unroll 8
    for (int r = 0; r < kR; ++r) {
#pragma GCC unroll 8
      for (int c = 0; c < kC; ++c) sum[r][c] = kScaled ? _mm512_setzero_ps() : totals[c * kBlockOutputs + r];
    }
    for (int64_t col = begin; col < end; col += kStep) {
      __m512bh a[kR];

#pragma GCC unroll 8
      for (int r = 0; r < kR; ++r) {
        a[r] = reinterpret_cast<__m512bh>(_mm512_load_si512(weights + r * kBlockRowBytes + col * 2));
      }

#pragma GCC unroll 8
      for (int c = 0; c < kC; ++c) {
        const __m512bh b = reinterpret_cast<__m512bh>(_mm512_loadu_si512(x + c * x_stride + col * 2));

#pragma GCC unroll 8
        for (int r = 0; r < kR; ++r) sum[r][c] = _mm512_dpbf16_ps(sum[r][c], a[r], b);
      }
    }

#pragma GCC unroll 8
    for (int r = 0; r < kR; ++r) {
      const __m512 scale = _mm512_set1_ps(kScaled ? scales[r * (kBlockCols / kStep)] : 1.0f);

#pragma GCC unroll 8
      for (int c = 0; c < kC; ++c) {
        __m512& total = totals[c * kBlockOutputs + r];
        total = kScaled ? _mm512_fmadd_ps(sum[r][c], scale, total) : sum[r][c];
      }
    }
  }
}

template <bool kScaled, int kC>
void block_outputs(int64_t cols, int64_t scale_cols, const std::byte* x, int64_t x_stride, int64_t outputs, int64_t c,
                   Block& block) {
  int64_t r = 0;
  for (; r + 4 <= outputs; r += 4) block_tile<kScaled, 4, kC>(cols, scale_cols, x, x_stride, r, c, block);
  for (; r < outputs; ++r) block_tile<kScaled, 1, kC>(cols, scale_cols, x, x_stride, r, c, block);
}

// The sums of the lanes of the vectors v(0) to v(15), in the order of _mm512_reduce_add_ps(): halves, and halves of
// those.
template <class Vectors>
__m512 sums_of_lanes(const Vectors& v) {
  __m512 halves[8], quarters[4], pairs[2];
  for (int i = 0; i < 8; ++i) {  // v(i) in lanes 0 to 7, v(i + 8) in the others
    const __m512 a = v(i), b = v(i + 8);
    halves[i] = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
  }
  for (int i = 0; i < 4; ++i) {  // four lanes of each of v(i), v(i + 8), v(i + 4), v(i + 12)
    quarters[i] = _mm512_add_ps(_mm512_shuffle_f32x4(halves[i], halves[i + 4], 0x88),
                                _mm512_shuffle_f32x4(halves[i], halves[i + 4], 0xdd));
  }
  for (int i = 0; i < 2; ++i) {  // two lanes of each of v(i), v(i + 2), and so on
    pairs[i] = _mm512_add_ps(_mm512_shuffle_ps(quarters[i], quarters[i + 2], 0x44),
                             _mm512_shuffle_ps(quarters[i], quarters[i + 2], 0xee));
  }
  const __m512 sums =
      _mm512_add_ps(_mm512_shuffle_ps(pairs[0], pairs[1], 0x88), _mm512_shuffle_ps(pairs[0], pairs[1], 0xdd));
  const __m512i lane_of = _mm512_setr_epi32(0, 2, 1, 3, 8, 10, 9, 11, 4, 6, 5, 7, 12, 14, 13, 15);
  return _mm512_permutexvar_ps(lane_of, sums);
}

template <bool kFp8, bool kScaled>
void many_rows(const LinearParams& params, const GemmPanel& panel, int64_t out_begin, int64_t out_end,
               const E4m3Table& table) {
  const QuantizedMatrix& w = params.weight;
  const int64_t x_stride = padded_cols(w.cols) * 2;
  const int64_t chunk = kScaled ? kBlockCols / w.block_cols * w.block_cols : kBlockCols;
  Block block;
  for (int64_t row = 0; row < panel.rows; row += kBlockRows) {
    const int64_t rows = panel.rows - row < kBlockRows ? panel.rows - row : kBlockRows;
    for (int64_t out = out_begin; out < out_end; out += kBlockOutputs) {
      const int64_t outputs = out_end - out < kBlockOutputs ? out_end - out : kBlockOutputs;
      std::fill_n(&block.sums[0][0], rows * kBlockOutputs, _mm512_setzero_ps());
      for (int64_t begin = 0; begin < w.cols; begin += chunk) {
        const int64_t end = begin + chunk < w.cols ? begin + chunk : w.cols;
        lay<kFp8>(w, out, outputs, begin, end, table, block);
        const std::byte* x = panel.data + row * x_stride + begin * 2;
        const auto add = [&](auto outputs_by, int64_t c) {
          outputs_by(end - begin, w.block_cols, x + c * x_stride, x_stride, outputs, c, block);
        };
        int64_t c = 0;
        for (; c + 6 <= rows; c += 6) add(block_outputs<kScaled, 6>, c);
        for (; c + 2 <= rows; c += 2) add(block_outputs<kScaled, 2>, c);
        if (c < rows) add(block_outputs<kScaled, 1>, c);
      }
      [[maybe_unused]] const __m512 scale = _mm512_set1_ps(w.global_scale);
      const __mmask16 mask = static_cast<__mmask16>(first_lanes(outputs));
      for (int64_t c = 0; c < rows; ++c) {
        float* y = params.y.get() + (panel.row_begin + row + c) * params.y_stride + out;
        __m512 values = sums_of_lanes([&](int r) {
          const __m512 sum = block.sums[c][r];
          return kScaled ? sum : _mm512_fmadd_ps(sum, scale, _mm512_setzero_ps());
        });
        if (params.accumulate) values = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, y), values);
        if (outputs == kBlockOutputs) {  // stores with a mask are slow where there are many
          _mm512_storeu_ps(y, values);
        } else {
          _mm512_mask_storeu_ps(y, mask, values);
        }
      }
    }
  }
}

template <bool kFp8>
void multiply_as(const LinearParams& params, const GemmPanel& panel, int64_t out_begin, int64_t out_end) {
  static const E4m3Table table;
  const bool scaled = params.weight.block_rows != 0;
  if (panel.rows >= kManyRows && (!scaled || params.weight.block_cols <= kBlockCols)) {
    return (scaled ? many_rows<kFp8, true> : many_rows<kFp8, false>)(params, panel, out_begin, out_end, table);
  }
  int64_t out = out_begin;
  for (; out + 4 <= out_end; out += 4) outputs<kFp8, 4>(params, panel, out, table);
  for (; out < out_end; ++out) outputs<kFp8, 1>(params, panel, out, table);
}

void multiply(const LinearParams& params, const GemmPanel& panel, int64_t out_begin, int64_t out_end) {
  if (params.weight.dtype == DType::kF8E4M3) {
    multiply_as<true>(params, panel, out_begin, out_end);
  } else {
    multiply_as<false>(params, panel, out_begin, out_end);
  }
}

}  // namespace

const GemmKernel& gemm_avx512bf16_kernel() {
  static constexpr GemmKernel kKernel = {
      .name = "linear.cpu.avx512_bf16",
      .missing_on_machine = &missing_avx512_bf16,
      .refuses = &refuses,
      .out_block = 4,
      .panel_bytes = &panel_bytes,
      .pack = &pack,
      .multiply = &multiply,
  };
  return kKernel;
}

}  // namespace lantern
