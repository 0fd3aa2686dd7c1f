#include "ops/cuda_ops.h"
#include "ops/norm.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/norm_host.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace lantern {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::ScalableTag<float>;

// Sum of term(vector at i) over the row. Four sums of one vector each, then a fixed tree: the order depends on the row
// length alone. Lanes past the end are zero before `term` sees them and are masked to zero after it.
template <class Term>
HWY_INLINE float sum_of(int64_t cols, const Term& term) {
  const Floats d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  auto s0 = hn::Zero(d);
  auto s1 = hn::Zero(d);
  auto s2 = hn::Zero(d);
  auto s3 = hn::Zero(d);
  const auto all = hn::FirstN(d, static_cast<size_t>(lanes));
  int64_t i = 0;
  for (; i + 4 * lanes <= cols; i += 4 * lanes) {
    s0 = hn::Add(s0, term(i, all));
    s1 = hn::Add(s1, term(i + lanes, all));
    s2 = hn::Add(s2, term(i + 2 * lanes, all));
    s3 = hn::Add(s3, term(i + 3 * lanes, all));
  }
  for (; i < cols; i += lanes) {
    const auto mask = hn::FirstN(d, static_cast<size_t>(std::min(lanes, cols - i)));
    s0 = hn::Add(s0, hn::IfThenElseZero(mask, term(i, mask)));
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))));
}

template <class Body>
HWY_INLINE void for_each_vector(int64_t cols, const Body& body) {
  const Floats d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < cols; i += lanes) body(i, hn::FirstN(d, static_cast<size_t>(std::min(lanes, cols - i))));
}

void rms_norm_row(const float* x, const float* weight, float* y, int64_t cols, float eps) {
  const Floats d;
  const float sum = sum_of(cols, [&](int64_t i, auto mask) HWY_ATTR {
    const auto v = hn::MaskedLoad(mask, d, x + i);
    return hn::Mul(v, v);
  });
  const auto inverse = hn::Set(d, 1.0f / std::sqrt(sum / static_cast<float>(cols) + eps));
  for_each_vector(cols, [&](int64_t i, auto mask) HWY_ATTR {
    const auto v = hn::Mul(hn::MaskedLoad(mask, d, x + i), inverse);
    hn::BlendedStore(hn::Mul(v, hn::MaskedLoad(mask, d, weight + i)), mask, d, y + i);
  });
}

void add_row(const float* delta, float* residual, int64_t cols) {
  const Floats d;
  for_each_vector(cols, [&](int64_t i, auto mask) HWY_ATTR {
    const auto sum = hn::Add(hn::MaskedLoad(mask, d, residual + i), hn::MaskedLoad(mask, d, delta + i));
    hn::BlendedStore(sum, mask, d, residual + i);
  });
}

void layer_norm_row(const float* x, const float* weight, const float* bias, float* y, int64_t cols, float eps) {
  const Floats d;
  const float mean = sum_of(cols, [&](int64_t i, auto mask) HWY_ATTR { return hn::MaskedLoad(mask, d, x + i); }) /
                     static_cast<float>(cols);
  const auto means = hn::Set(d, mean);
  // The second pass over the centred row keeps the variance of a row with a large mean.
  const float sum = sum_of(cols, [&](int64_t i, auto mask) HWY_ATTR {
    const auto v = hn::Sub(hn::MaskedLoad(mask, d, x + i), means);
    return hn::Mul(v, v);
  });
  const auto inverse = hn::Set(d, 1.0f / std::sqrt(sum / static_cast<float>(cols) + eps));
  for_each_vector(cols, [&](int64_t i, auto mask) HWY_ATTR {
    const auto v = hn::Mul(hn::Sub(hn::MaskedLoad(mask, d, x + i), means), inverse);
    const auto scaled = hn::Add(hn::Mul(v, hn::MaskedLoad(mask, d, weight + i)), hn::MaskedLoad(mask, d, bias + i));
    hn::BlendedStore(scaled, mask, d, y + i);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace lantern
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lantern {

HWY_EXPORT(rms_norm_row);
HWY_EXPORT(add_row);
HWY_EXPORT(layer_norm_row);

namespace {

// Rows per piece of work: a piece below this many elements costs less than handing it to another thread.
int64_t row_grain(int64_t cols) { return std::max<int64_t>(1, 16384 / std::max<int64_t>(1, cols)); }

void rms_norm_kernel(const RmsNormParams& p, HostContext& context) {
  context.threads.parallel_for(p.rows, row_grain(p.cols), [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      HWY_DYNAMIC_DISPATCH(rms_norm_row)
      (p.x.get() + r * p.x_stride, p.weight.get(), p.y.get() + r * p.y_stride, p.cols, p.eps);
    }
  });
}

void add_rms_norm_kernel(const AddRmsNormParams& p, HostContext& context) {
  context.threads.parallel_for(p.rows, row_grain(p.cols), [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t offset = r * p.cols;
      HWY_DYNAMIC_DISPATCH(add_row)(p.delta.get() + offset, p.residual.get() + offset, p.cols);
      HWY_DYNAMIC_DISPATCH(rms_norm_row)
      (p.residual.get() + offset, p.weight.get(), p.y.get() + offset, p.cols, p.eps);
    }
  });
}

void layer_norm_kernel(const LayerNormParams& p, HostContext& context) {
  context.threads.parallel_for(p.rows, row_grain(p.cols), [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      HWY_DYNAMIC_DISPATCH(layer_norm_row)
      (p.x.get() + r * p.x_stride, p.weight.get(), p.bias.get(), p.y.get() + r * p.y_stride, p.cols, p.eps);
    }
  });
}

}  // namespace

void rms_norm(Stream& stream, const RmsNormParams& params) {
  launch_op(stream, "rms_norm", &rms_norm_kernel, &CudaOps::rms_norm, params);
}

void add_rms_norm(Stream& stream, const AddRmsNormParams& params) {
  launch_op(stream, "add_rms_norm", &add_rms_norm_kernel, &CudaOps::add_rms_norm, params);
}

void layer_norm(Stream& stream, const LayerNormParams& params) {
  launch_op(stream, "layer_norm", &layer_norm_kernel, &CudaOps::layer_norm, params);
}

}  // namespace lantern
#endif  // HWY_ONCE
