// Vectors of floats and what more than one of the host_math_*.cc does with them. Read once for every instruction set,
// hence no #pragma once.
#if defined(LANTERN_ATTENTION_HOST_MATH_VECTORS_H) == defined(HWY_TARGET_TOGGLE)
#ifdef LANTERN_ATTENTION_HOST_MATH_VECTORS_H
#undef LANTERN_ATTENTION_HOST_MATH_VECTORS_H
#else
#define LANTERN_ATTENTION_HOST_MATH_VECTORS_H
#endif

#include <cstring>

#include "attention/host_math.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace lantern::host_math::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using DF = hn::ScalableTag<float>;
using DI = hn::RebindToSigned<DF>;
using DU = hn::RebindToUnsigned<DF>;
using VF = hn::Vec<DF>;
constexpr int64_t kLanes = hn::MaxLanes(DF());
static_assert(kLanes <= kPad, "tile rows are padded for at most 16 lanes");

HWY_INLINE VF load_part(const float* from, int64_t count) {
  HWY_ALIGN float lanes[kLanes] = {};
  std::memcpy(lanes, from, static_cast<size_t>(count) * sizeof(float));
  return hn::Load(DF(), lanes);
}

HWY_INLINE void store_part(VF v, float* to, int64_t count) {
  HWY_ALIGN float lanes[kLanes];
  hn::Store(v, DF(), lanes);
  std::memcpy(to, lanes, static_cast<size_t>(count) * sizeof(float));
}

inline void decode_e4m3_plain(const std::byte* src, int64_t count, float factor, float* dst) {
  for (int64_t i = 0; i < count; ++i) dst[i] = to_float(e4m3_t{static_cast<uint8_t>(src[i])}) * factor;
}

#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_SSSE3 || HWY_TARGET == HWY_SSE4  // no instruction widens halves

HWY_INLINE void widen_e4m3(const std::byte* src, VF factor, VF& first, VF& second) {
  HWY_ALIGN float values[2 * kLanes];
  decode_e4m3_plain(src, 2 * kLanes, 0x1p-8f, values);
  first = hn::Mul(hn::Load(DF(), values), factor);
  second = hn::Mul(hn::Load(DF(), values + kLanes), factor);
}

#else

// 2 * kLanes values / 2^8, times `factor`. By way of halves: sign, exponent and mantissa keep their order there, and
// subnormal numbers are widened like others.
HWY_INLINE void widen_e4m3(const std::byte* src, VF factor, VF& first, VF& second) {
  const DF df;
  const hn::Repartition<int16_t, DF> d16;
  const hn::Half<hn::Repartition<hwy::float16_t, DF> > half;
  const hn::Rebind<int8_t, decltype(d16)> d8;
  const auto nan = hn::Set(d16, 0x7f);
  const auto code = hn::PromoteTo(d16, hn::LoadU(d8, reinterpret_cast<const int8_t*>(src)));
  const auto finite = hn::And(hn::ShiftLeft<7>(code), hn::Set(d16, static_cast<int16_t>(0xbf80)));
  const auto bits = hn::IfThenElse(hn::Eq(hn::And(code, nan), nan), hn::Set(d16, 0x7e00), finite);
  const auto halves = hn::BitCast(hn::Twice<decltype(half)>(), bits);
  first = hn::Mul(hn::PromoteTo(df, hn::LowerHalf(half, halves)), factor);
  second = hn::Mul(hn::PromoteTo(df, hn::UpperHalf(half, halves)), factor);
}

#endif

#if HWY_TARGET == HWY_SCALAR  // one lane has nothing to interleave

HWY_INLINE void sum_four(VF a, VF b, VF c, VF d, float* sums) {
  sums[0] = hn::GetLane(a);
  sums[1] = hn::GetLane(b);
  sums[2] = hn::GetLane(c);
  sums[3] = hn::GetLane(d);
}

#else

template <class D>
HWY_INLINE hn::Vec<hn::Full128<float> > sum_blocks([[maybe_unused]] D d, hn::Vec<D> v) {
  if constexpr (hn::MaxLanes(D()) <= 4) {
    return v;
  } else {
    const hn::Half<D> dh;
    return sum_blocks(dh, hn::Add(hn::LowerHalf(dh, v), hn::UpperHalf(dh, v)));
  }
}

// The sums of the lanes of a, b, c and d, by one tree for every place.
HWY_INLINE void sum_four(VF a, VF b, VF c, VF d, float* sums) {
  const DF df;
  const hn::Repartition<double, DF> dd;
  const auto ab = hn::Add(hn::InterleaveLower(df, a, b), hn::InterleaveUpper(df, a, b));
  const auto cd = hn::Add(hn::InterleaveLower(df, c, d), hn::InterleaveUpper(df, c, d));
  const auto low = hn::BitCast(df, hn::InterleaveLower(dd, hn::BitCast(dd, ab), hn::BitCast(dd, cd)));
  const auto high = hn::BitCast(df, hn::InterleaveUpper(dd, hn::BitCast(dd, ab), hn::BitCast(dd, cd)));
  hn::StoreU(sum_blocks(df, hn::Add(low, high)), hn::Full128<float>(), sums);
}

#endif

}  // namespace lantern::host_math::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
