#include "ops/row_math_host.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/row_math_host.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <hwy/contrib/math/math-inl.h>

HWY_BEFORE_NAMESPACE();
namespace lantern {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::ScalableTag<float>;

// Calls body(offset, mask) for full vectors and once more for the rest.
template <class Body>
HWY_INLINE void for_each_vector(int64_t count, const Body& body) {
  const Floats d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) body(i, hn::FirstN(d, static_cast<size_t>(lanes)));
  if (i < count) body(i, hn::FirstN(d, static_cast<size_t>(count - i)));
}

void silu_multiply(float* gate, const float* up, int64_t count) {
  const Floats d;
  const auto one = hn::Set(d, 1.0f);
  for_each_vector(count, [&](int64_t i, auto mask) HWY_ATTR {
    const auto x = hn::MaskedLoad(mask, d, gate + i);
    // e^-|x| cannot overflow: silu(x) = x / (1 + e^-x) for x >= 0, x e^x / (1 + e^x) below.
    const auto e = hn::Exp(d, hn::Neg(hn::Abs(x)));
    const auto numerator = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), hn::Mul(x, e), x);
    const auto silu = hn::Div(numerator, hn::Add(one, e));
    // Exp maps NaN to 0 or to NaN depending on the target; x itself carries the NaN in both cases.
    hn::BlendedStore(hn::Mul(silu, hn::MaskedLoad(mask, d, up + i)), mask, d, gate + i);
  });
}

float maximum(const float* x, int64_t count) {
  const Floats d;
  const auto lowest = hn::Set(d, -HUGE_VALF);
  auto best = lowest;
  for_each_vector(count, [&](int64_t i, auto mask) HWY_ATTR {
    const auto value = hn::MaskedLoad(mask, d, x + i);
    // Gt is false for NaN.
    best = hn::IfThenElse(hn::And(mask, hn::Gt(value, best)), value, best);
  });
  return hn::GetLane(hn::MaxOfLanes(d, best));
}

void exponential(const float* x, int64_t count, float shift, float divisor, float* out) {
  const Floats d;
  const auto shifts = hn::Set(d, shift);
  const auto divisors = hn::Set(d, divisor);
  const auto lowest = hn::Set(d, -HUGE_VALF);
  for_each_vector(count, [&](int64_t i, auto mask) HWY_ATTR {
    const auto value = hn::MaskedLoad(mask, d, x + i);
    const auto possible = hn::Gt(value, lowest);  // false for NaN and -infinity
    const auto argument = hn::IfThenElseZero(possible, hn::Div(hn::Sub(value, shifts), divisors));
    hn::BlendedStore(hn::IfThenElseZero(possible, hn::Exp(d, argument)), mask, d, out + i);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace lantern
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lantern {

HWY_EXPORT(silu_multiply);
HWY_EXPORT(maximum);
HWY_EXPORT(exponential);

void silu_multiply_row(float* gate, const float* up, int64_t count) {
  HWY_DYNAMIC_DISPATCH(silu_multiply)(gate, up, count);
}

float row_maximum(const float* x, int64_t count) { return HWY_DYNAMIC_DISPATCH(maximum)(x, count); }

bool all_finite(const float* x, int64_t count) {
  constexpr uint32_t kExponent = 0x7f800000u;
  uint32_t bad = 0;
  for (int64_t i = 0; i < count; ++i) {
    bad |= static_cast<uint32_t>((std::bit_cast<uint32_t>(x[i]) & kExponent) == kExponent);
  }
  return bad == 0;
}

void exponential_row(const float* x, int64_t count, float shift, float divisor, float* out) {
  HWY_DYNAMIC_DISPATCH(exponential)(x, count, shift, divisor, out);
}

double exponential_sum(const float* x, int64_t count, float shift) {
  constexpr int64_t kChunk = 1024;
  std::array<float, kChunk> values;
  // Four sums, so that additions overlap; element i always goes to sum i % 4.
  std::array<double, 4> sums{};
  for (int64_t begin = 0; begin < count; begin += kChunk) {
    const int64_t chunk = std::min(kChunk, count - begin);
    exponential_row(x + begin, chunk, shift, 1.0f, values.data());
    std::fill(values.begin() + chunk, values.begin() + (chunk + 3) / 4 * 4, 0.0f);
    for (size_t i = 0; i < static_cast<size_t>(chunk); i += 4) {
      for (size_t lane = 0; lane < 4; ++lane) sums[lane] += static_cast<double>(values[i + lane]);
    }
  }
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

float LogSoftmax::of(float logit) const {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  if (!(logit > -kInfinity)) return -kInfinity;
  if (maximum == kInfinity) return logit == kInfinity ? static_cast<float>(-log_sum) : -kInfinity;
  return static_cast<float>(static_cast<double>(logit) - static_cast<double>(maximum) - log_sum);
}

LogSoftmax log_softmax_of(const float* logits, int64_t count) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const float maximum = row_maximum(logits, count);
  if (maximum == -kInfinity) return {maximum, 0};
  if (maximum == kInfinity) {
    return {maximum, std::log(static_cast<double>(std::count(logits, logits + count, kInfinity)))};
  }
  return {maximum, std::log(exponential_sum(logits, count, maximum))};
}

}  // namespace lantern
#endif  // HWY_ONCE
