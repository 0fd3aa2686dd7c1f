// bf16 and FP8 weights by VDPBF16PS, for machines that have it and no AMX.
// Order of K: lane l of a running vector sums the column pairs l, l + 16, l + 32, ... of a scale block; each block's
// vector times its scale is added to a total vector in column order; lanes are summed at the end.
#include <immintrin.h>

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

// The weights of one instruction, or FP8 of two; those behind `count` are zeros.
template <bool kFp8>
struct Weights {
  static constexpr int kVectors = kFp8 ? 2 : 1;
  __m512bh values[kVectors];

  void load(const std::byte* row, int64_t col, int64_t count, const E4m3Table& table) {
    if constexpr (kFp8) {
      const __mmask64 mask = count >= 64 ? ~__mmask64{0} : (__mmask64{1} << count) - 1;
      table.widen(_mm512_maskz_loadu_epi8(mask, row + col), values[0], values[1]);
    } else {
      values[0] = reinterpret_cast<__m512bh>(_mm512_maskz_loadu_epi16(first_lanes(count), row + col * 2));
    }
  }
};

// kR outputs from `out` by kC rows of x from panel row `row`.
template <bool kFp8, int kR, int kC>
void tile(const LinearParams& params, const GemmPanel& panel, int64_t out, int64_t row, const E4m3Table& table) {
  const QuantizedMatrix& w = params.weight;
  const int64_t x_stride = padded_cols(w.cols) * 2;
  const std::byte* x = panel.data + row * x_stride;
  const std::byte* weight = w.data.get() + out * w.row_bytes;
  const int64_t block = w.block_rows == 0 ? w.cols : w.block_cols;
  __m512 total[kR][kC];
  for (auto& r : total) {
    for (__m512& v : r) v = _mm512_setzero_ps();
  }
  for (int64_t begin = 0; begin < w.cols; begin += block) {
    const int64_t end = begin + block < w.cols ? begin + block : w.cols;
    __m512 sum[kR][kC];
    for (auto& r : sum) {
      for (__m512& v : r) v = _mm512_setzero_ps();
    }
    constexpr int kVectors = Weights<kFp8>::kVectors;
    for (int64_t col = begin; col < end; col += kVectors * kStep) {
      Weights<kFp8> a[kR];
      for (int r = 0; r < kR; ++r) a[r].load(weight + r * w.row_bytes, col, end - col, table);
      for (int v = 0; v < kVectors && col + v * kStep < end; ++v) {
        for (int c = 0; c < kC; ++c) {
          const std::byte* at = x + c * x_stride + (col + v * kStep) * 2;
          const __m512bh b = reinterpret_cast<__m512bh>(_mm512_loadu_si512(at));
          for (int r = 0; r < kR; ++r) sum[r][c] = _mm512_dpbf16_ps(sum[r][c], a[r].values[v], b);
        }
      }
    }
    for (int r = 0; r < kR; ++r) {
      const __m512 scale = _mm512_set1_ps(block_scale(w, out + r, begin));
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

template <bool kFp8, int kR>
void outputs(const LinearParams& params, const GemmPanel& panel, int64_t out, const E4m3Table& table) {
  int64_t row = 0;
  for (; row + 4 <= panel.rows; row += 4) tile<kFp8, kR, 4>(params, panel, out, row, table);
  for (; row < panel.rows; ++row) tile<kFp8, kR, 1>(params, panel, out, row, table);
}

template <bool kFp8>
void multiply_as(const LinearParams& params, const GemmPanel& panel, int64_t out_begin, int64_t out_end) {
  static const E4m3Table table;
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
      .name = "avx512_bf16",
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
