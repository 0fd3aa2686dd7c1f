// Float FMA after widening, for every instruction set that Highway knows. Any weight, any block shape.
// Order of K: lane l of a running vector sums columns l, l + N, l + 2N, ... of a scale block; each block's vector times
// its scale is added to a total vector in column order; lanes are summed at the end. N is the vector's width.
#include <cstring>

#include "ops/gemm_kernel.h"

// Arrays of vectors need vectors of a size known at compile time.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/gemm_highway.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <hwy/cache_control.h>

HWY_BEFORE_NAMESPACE();
namespace lantern::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<float>;
using D32 = hn::RebindToUnsigned<D>;
using V = hn::Vec<D>;

HWY_INLINE V widen_e4m3(const std::byte* p) {
  const D d;
  const D32 d32;
  const hn::Rebind<uint8_t, D> d8;
  const auto bits = hn::PromoteTo(d32, hn::LoadU(d8, reinterpret_cast<const uint8_t*>(p)));
  const auto magnitude = hn::And(bits, hn::Set(d32, 0x7fu));
  // Exponent field e becomes e + 120: right for e > 0. For e = 0 it reads (1 + m/8) * 2^-7 instead of (m/8) * 2^-6.
  const V normal = hn::BitCast(d, hn::Add(hn::ShiftLeft<20>(magnitude), hn::Set(d32, 120u << 23)));
  const V least = hn::Set(d, 0x1p-7f);
  const V subnormal = hn::Mul(hn::Sub(normal, least), hn::Set(d, 2.0f));
  V value = hn::IfThenElse(hn::Lt(normal, hn::Set(d, 0x1p-6f)), subnormal, normal);
  const auto nan = hn::Eq(magnitude, hn::Set(d32, 0x7fu));
  value = hn::IfThenElse(hn::RebindMask(d, nan), hn::BitCast(d, hn::Set(d32, 0x7fc00000u)), value);
  return hn::Or(value, hn::BitCast(d, hn::ShiftLeft<24>(hn::AndNot(hn::Set(d32, 0x7fu), bits))));
}

template <DType kType>
HWY_INLINE V widen(const std::byte* p) {
  const D d;
  if constexpr (kType == DType::kF32) {
    return hn::LoadU(d, reinterpret_cast<const float*>(p));
  } else if constexpr (kType == DType::kF8E4M3) {
    return widen_e4m3(p);
  } else {
    const hn::Rebind<uint16_t, D> d16;
    const auto bits = hn::LoadU(d16, reinterpret_cast<const uint16_t*>(p));
    if constexpr (kType == DType::kBF16) {
      return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(D32(), bits)));
    } else {
      const hn::Rebind<hwy::float16_t, D> df16;
      return hn::PromoteTo(d, hn::BitCast(df16, bits));
    }
  }
}

// kR outputs from `out` by kC rows of x from panel row `row`.
template <DType kType, int kR, int kC>
HWY_NOINLINE void tile(const LinearParams& params, const GemmPanel& panel, int64_t out, int64_t row) {
  const D d;
  const int64_t n = static_cast<int64_t>(hn::Lanes(d));
  constexpr int64_t kBytes = kType == DType::kF32 ? 4 : kType == DType::kF8E4M3 ? 1 : 2;
  constexpr int64_t kLine = 64 / kBytes;  // columns of a cache line: whole vectors of every target
  const QuantizedMatrix& w = params.weight;
  const int64_t x_stride = float_panel_stride(w.cols);
  const float* x = reinterpret_cast<const float*>(panel.data) + row * x_stride;
  const std::byte* weight = w.data.get() + out * w.row_bytes;
  const int64_t block = w.block_rows == 0 ? w.cols : w.block_cols;

  V total[kR][kC];
  for (auto& r : total) {
    for (V& v : r) v = hn::Zero(d);
  }
  RowScales scales[kR];
  for (int r = 0; r < kR; ++r) scales[r] = RowScales(w, out + r);
  for (int64_t begin = 0, index = 0; begin < w.cols; begin += block, ++index) {
    const int64_t end = HWY_MIN(begin + block, w.cols);
    V sum[kR][kC];
    for (auto& r : sum) {
      for (V& v : r) v = hn::Zero(d);
    }
    int64_t k = begin;
    const auto add = [&](int64_t col) HWY_ATTR {
      V a[kR];
      for (int r = 0; r < kR; ++r) a[r] = widen<kType>(weight + r * w.row_bytes + col * kBytes);
      for (int c = 0; c < kC; ++c) {
        const V b = hn::LoadU(d, x + c * x_stride + col);
        for (int r = 0; r < kR; ++r) sum[r][c] = hn::MulAdd(a[r], b, sum[r][c]);
      }
    };
    // Lines of the outputs behind these are fetched meanwhile: a core looks ahead over too few instructions to do so.
    for (; k + kLine <= end; k += kLine) {
      for (int r = 0; r < kR; ++r) hwy::Prefetch(weight + (kR + r) * w.row_bytes + k * kBytes);
      for (int64_t col = k; col < k + kLine; col += n) add(col);
    }
    for (; k + n <= end; k += n) add(k);
    if (k < end) {
      // The rest of the block beside zeros: nothing behind the row's end is read, nor any other block's column.
      HWY_ALIGN std::byte a_rest[kR][64] = {};
      HWY_ALIGN float b_rest[16] = {};
      for (int r = 0; r < kR; ++r) {
        std::memcpy(a_rest[r], weight + r * w.row_bytes + k * kBytes, static_cast<size_t>((end - k) * kBytes));
      }
      for (int c = 0; c < kC; ++c) {
        std::memcpy(b_rest, x + c * x_stride + k, static_cast<size_t>(end - k) * sizeof(float));
        const V b = hn::LoadU(d, b_rest);
        for (int r = 0; r < kR; ++r) sum[r][c] = hn::MulAdd(widen<kType>(a_rest[r]), b, sum[r][c]);
      }
    }
    for (int r = 0; r < kR; ++r) {
      const V scale = hn::Set(d, scales[r][index]);
      for (int c = 0; c < kC; ++c) total[r][c] = hn::MulAdd(sum[r][c], scale, total[r][c]);
    }
  }
  for (int c = 0; c < kC; ++c) {
    float* y = params.y.get() + (panel.row_begin + row + c) * params.y_stride + out;
    for (int r = 0; r < kR; ++r) {
      const float value = hn::GetLane(hn::SumOfLanes(d, total[r][c]));
      y[r] = params.accumulate ? y[r] + value : value;
    }
  }
}

template <DType kType, int kR>
void outputs(const LinearParams& params, const GemmPanel& panel, int64_t out) {
  int64_t row = 0;
  for (; row + 4 <= panel.rows; row += 4) tile<kType, kR, 4>(params, panel, out, row);
  switch (panel.rows - row) {  // drafts make few rows: those left over share one pass over the weights, too
    case 3: return tile<kType, kR, 3>(params, panel, out, row);
    case 2: return tile<kType, kR, 2>(params, panel, out, row);
    case 1: return tile<kType, kR, 1>(params, panel, out, row);
    default: return;
  }
}

template <DType kType>
void multiply_as(const LinearParams& params, const GemmPanel& panel, int64_t out_begin, int64_t out_end) {
  int64_t out = out_begin;
  for (; out + 2 <= out_end; out += 2) outputs<kType, 2>(params, panel, out);
  if (out < out_end) outputs<kType, 1>(params, panel, out);
}

void multiply(const LinearParams& params, const GemmPanel& panel, int64_t out_begin, int64_t out_end) {
  switch (params.weight.dtype) {
    case DType::kF32: return multiply_as<DType::kF32>(params, panel, out_begin, out_end);
    case DType::kF16: return multiply_as<DType::kF16>(params, panel, out_begin, out_end);
    case DType::kBF16: return multiply_as<DType::kBF16>(params, panel, out_begin, out_end);
    default: return multiply_as<DType::kF8E4M3>(params, panel, out_begin, out_end);
  }
}

}  // namespace lantern::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE  // Highway compiles the file once per instruction set; this part belongs to the last pass alone.
namespace lantern {
namespace {

HWY_EXPORT(multiply);

void multiply_best(const LinearParams& params, const GemmPanel& panel, int64_t out_begin, int64_t out_end) {
  HWY_DYNAMIC_DISPATCH(multiply)(params, panel, out_begin, out_end);
}

}  // namespace

const GemmKernel& gemm_highway_kernel() {
  static constexpr GemmKernel kKernel = {
      .name = "linear.cpu.highway",
      .missing_on_machine = []() -> const char* { return nullptr; },
      .refuses = [](const QuantizedMatrix&, LinearInput) -> const char* { return nullptr; },
      .out_block = 2,
      .panel_bytes = &float_panel_bytes,
      .pack = &pack_float_panel,
      .multiply = &multiply_best,
  };
  return kKernel;
}

}  // namespace lantern
#endif
