#include "attention/host_math.h"

#include <cmath>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attention/host_math.cc"
#include "hwy/foreach_target.h"

#include "attention/host_math_vectors.h"

HWY_BEFORE_NAMESPACE();
namespace lantern::host_math::HWY_NAMESPACE {

// exp(x) for x <= 0, relative error below 2 units in the last place; 0 below -87.3, 1 at 0.
HWY_INLINE VF exp_vector(VF x) {
  const DF df;
  const DI di;
  const auto in_range = hn::Ge(x, hn::Set(df, -87.3f));
  const auto clamped = hn::Max(x, hn::Set(df, -87.3f));
  const auto n = hn::Round(hn::Mul(clamped, hn::Set(df, 1.44269504088896341f)));
  // ln 2 in two parts; the first has few bits, so that n * part is exact.
  auto r = hn::NegMulAdd(n, hn::Set(df, 0.693359375f), clamped);
  r = hn::NegMulAdd(n, hn::Set(df, -2.12194440e-4f), r);
  // Taylor series; |r| <= ln(2) / 2 makes the rest after r^7 / 5040 smaller than 6e-9.
  auto p = hn::Set(df, 1.0f / 5040.0f);
  p = hn::MulAdd(p, r, hn::Set(df, 1.0f / 720.0f));
  p = hn::MulAdd(p, r, hn::Set(df, 1.0f / 120.0f));
  p = hn::MulAdd(p, r, hn::Set(df, 1.0f / 24.0f));
  p = hn::MulAdd(p, r, hn::Set(df, 1.0f / 6.0f));
  p = hn::MulAdd(p, r, hn::Set(df, 0.5f));
  p = hn::MulAdd(p, r, hn::Set(df, 1.0f));
  p = hn::MulAdd(p, r, hn::Set(df, 1.0f));
  const auto power = hn::ShiftLeft<23>(hn::Add(hn::ConvertTo(di, n), hn::Set(di, 127)));
  // A NaN fails the comparison, so it is passed on by itself.
  const auto value = hn::Mul(p, hn::BitCast(df, power));
  return hn::IfThenElse(in_range, value, hn::IfThenElseZero(hn::IsNaN(x), x));
}

float exponential_impl(float x) { return hn::GetLane(exp_vector(hn::Set(DF(), x))); }

void softmax_tile_impl(int64_t rows, float* scores, const uint64_t* visible, float scale, float* max, float* sum,
                       float* factor) {
  const DF df;
  const DI di;
  const float kMinusInfinity = -__builtin_inff();
  const auto minus_infinity = hn::Set(df, kMinusInfinity);
  const auto scale_vector = hn::Set(df, scale);
  const auto bit_of_lane = hn::Shl(hn::Set(di, 1), hn::Iota(di, 0));
  for (int64_t r = 0; r < rows; ++r) {
    float* row = scores + r * kTile;
    const uint64_t bits = visible[r];
    if (bits == 0) {
      std::memset(row, 0, kTile * sizeof(float));
      factor[r] = 1.0f;
      continue;
    }
    auto row_max = minus_infinity;
    for (int64_t j = 0; j < kTile; j += kLanes) {
      auto s = hn::Mul(hn::LoadU(df, row + j), scale_vector);
      if (bits != ~uint64_t{0}) {
        const auto lane_bits = hn::Set(di, static_cast<int32_t>((bits >> j) & 0xffffu));
        s = hn::IfThenElse(hn::RebindMask(df, hn::TestBit(lane_bits, bit_of_lane)), s, minus_infinity);
      }
      hn::StoreU(s, df, row + j);
      row_max = hn::Max(row_max, s);
    }
    const float tile_max = hn::GetLane(hn::MaxOfLanes(df, row_max));
    // A NaN in `max` stays: a row that is not a number must not look like one without keys.
    float new_max = tile_max <= max[r] ? max[r] : tile_max;
    // Maxima may pass over NaN. Beside a number that is no loss, as its weight is NaN all the same.
    if (new_max == kMinusInfinity) {
      for (int64_t j = 0; j < kTile; ++j) new_max = std::isnan(row[j]) ? row[j] : new_max;
    }
    if (new_max == kMinusInfinity) {  // every visible score is -inf: no key has weight
      std::memset(row, 0, kTile * sizeof(float));
      factor[r] = 1.0f;
      continue;
    }
    const auto shift = hn::Set(df, new_max);
    auto total = hn::Zero(df);
    for (int64_t j = 0; j < kTile; j += kLanes) {
      const auto p = exp_vector(hn::Sub(hn::LoadU(df, row + j), shift));
      hn::StoreU(p, df, row + j);
      total = hn::Add(total, p);
    }
    const float old_factor = exponential_impl(max[r] - new_max);
    max[r] = new_max;
    sum[r] = sum[r] * old_factor + hn::GetLane(hn::SumOfLanes(df, total));
    factor[r] = old_factor;
  }
}

void relu_weighted_sum_impl(int64_t heads, const float* scores, const float* weights, float* out) {
  const DF df;
  for (int64_t j = 0; j < kTile; j += kLanes) {
    auto sum = hn::Zero(df);
    for (int64_t h = 0; h < heads; ++h) {
      const auto score = hn::LoadU(df, scores + h * kTile + j);
      const auto positive = hn::IfThenZeroElse(hn::Lt(score, hn::Zero(df)), score);  // a NaN stays
      sum = hn::MulAdd(hn::Set(df, weights[h]), positive, sum);
    }
    hn::StoreU(sum, df, out + j);
  }
}

void combine_impl(int64_t count, float* x, float x_factor, const float* y, float y_factor) {
  const DF df;
  const auto fx = hn::Set(df, x_factor);
  const auto fy = hn::Set(df, y_factor);
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    hn::StoreU(hn::MulAdd(hn::LoadU(df, y + i), fy, hn::Mul(hn::LoadU(df, x + i), fx)), df, x + i);
  }
  if (i < count) {
    store_part(hn::MulAdd(load_part(y + i, count - i), fy, hn::Mul(load_part(x + i, count - i), fx)), x + i, count - i);
  }
}

const char* target_name_impl() { return hwy::TargetName(HWY_TARGET); }

}  // namespace lantern::host_math::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE  // Highway compiles the file once per instruction set; this part belongs to the last pass alone.
namespace lantern::host_math {

HWY_EXPORT(softmax_tile_impl);
HWY_EXPORT(relu_weighted_sum_impl);
HWY_EXPORT(combine_impl);
HWY_EXPORT(exponential_impl);
HWY_EXPORT(target_name_impl);

void softmax_tile(int64_t rows, float* scores, const uint64_t* visible, float scale, float* max, float* sum,
                  float* factor) {
  HWY_DYNAMIC_DISPATCH(softmax_tile_impl)(rows, scores, visible, scale, max, sum, factor);
}

void relu_weighted_sum(int64_t heads, const float* scores, const float* weights, float* out) {
  HWY_DYNAMIC_DISPATCH(relu_weighted_sum_impl)(heads, scores, weights, out);
}

void combine(int64_t count, float* x, float x_factor, const float* y, float y_factor) {
  HWY_DYNAMIC_DISPATCH(combine_impl)(count, x, x_factor, y, y_factor);
}

float exponential(float x) { return HWY_DYNAMIC_DISPATCH(exponential_impl)(x); }

const char* target_name() { return HWY_DYNAMIC_DISPATCH(target_name_impl)(); }

}  // namespace lantern::host_math
#endif
