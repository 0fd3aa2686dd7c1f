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

// 32 codes to bf16, exactly.
inline __m512i widen_e4m3(__m256i codes, __m512i subnormals) {
  const __m512i x = _mm512_cvtepu8_epi16(codes);
  const __m512i magnitude = _mm512_and_si512(x, _mm512_set1_epi16(0x7f));
  // The exponent field moves from bias 7 to 127; codes 0..7 and 0x7f are looked up and set.
  __m512i value = _mm512_add_epi16(_mm512_slli_epi16(magnitude, 4), _mm512_set1_epi16(120 << 7));
  const __mmask32 subnormal = _mm512_cmplt_epu16_mask(magnitude, _mm512_set1_epi16(8));
  value = _mm512_mask_permutexvar_epi16(value, subnormal, magnitude, subnormals);
  const __mmask32 nan = _mm512_cmpeq_epi16_mask(magnitude, _mm512_set1_epi16(0x7f));
  value = _mm512_mask_mov_epi16(value, nan, _mm512_set1_epi16(0x7fc0));
  const __m512i sign = _mm512_slli_epi16(_mm512_and_si512(x, _mm512_set1_epi16(0x80)), 8);
  return _mm512_or_si512(value, sign);
}

__m512i e4m3_subnormals() {
  alignas(64) uint16_t table[32] = {};
  for (unsigned code = 0; code < 8; ++code) {
    table[code] = to_bf16(to_float(e4m3_t{static_cast<uint8_t>(code)})).bits;  // exact
  }
  return _mm512_load_si512(table);
}

template <bool kFp8>
inline __m512bh load_weights(const std::byte* row, int64_t col, __mmask32 mask, __m512i subnormals) {
  if constexpr (kFp8) {
    return reinterpret_cast<__m512bh>(widen_e4m3(_mm256_maskz_loadu_epi8(mask, row + col), subnormals));
  } else {
    return reinterpret_cast<__m512bh>(_mm512_maskz_loadu_epi16(mask, row + col * 2));
  }
}

// kR outputs from `out` by kC rows of x from panel row `row`.
template <bool kFp8, int kR, int kC>
void tile(const LinearParams& params, const GemmPanel& panel, int64_t out, int64_t row, __m512i subnormals) {
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
    for (int64_t col = begin; col < end; col += kStep) {
      const __mmask32 mask = first_lanes(end - col);
      __m512bh a[kR];
      for (int r = 0; r < kR; ++r) a[r] = load_weights<kFp8>(weight + r * w.row_bytes, col, mask, subnormals);
      for (int c = 0; c < kC; ++c) {
        const __m512bh b = reinterpret_cast<__m512bh>(_mm512_loadu_si512(x + c * x_stride + col * 2));
        for (int r = 0; r < kR; ++r) sum[r][c] = _mm512_dpbf16_ps(sum[r][c], a[r], b);
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
void outputs(const LinearParams& params, const GemmPanel& panel, int64_t out, __m512i subnormals) {
  int64_t row = 0;
  for (; row + 4 <= panel.rows; row += 4) tile<kFp8, kR, 4>(params, panel, out, row, subnormals);
  for (; row < panel.rows; ++row) tile<kFp8, kR, 1>(params, panel, out, row, subnormals);
}

template <bool kFp8>
void multiply_as(const LinearParams& params, const GemmPanel& panel, int64_t out_begin, int64_t out_end) {
  const __m512i subnormals = e4m3_subnormals();
  int64_t out = out_begin;
  for (; out + 4 <= out_end; out += 4) outputs<kFp8, 4>(params, panel, out, subnormals);
  for (; out < out_end; ++out) outputs<kFp8, 1>(params, panel, out, subnormals);
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
