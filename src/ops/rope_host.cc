#include "ops/rope.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numbers>

#include "base/check.h"
#include "ops/cuda_ops.h"

namespace lantern {
namespace {

// The (fractional) dimension index that makes `turns` full turns over `original_max_position` positions.
double correction_index(double turns, int dim, double theta, double original_max_position) {
  return dim * std::log(original_max_position / (2 * std::numbers::pi * turns)) / (2 * std::log(theta));
}

void rope_table_kernel(const RopeTableParams& p, HostContext& context) {
  const int64_t half = p.dim / 2;
  context.threads.parallel_for(p.tokens, 64, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      const auto position = static_cast<float>(std::max(p.context_len[t] - 1, 0));
      float* row = p.cos_sin.get() + t * p.dim;
      for (int64_t i = 0; i < half; ++i) {
        // Rounded to float first, as published; the functions in double cost one rounding instead of a library's error.
        const double angle = static_cast<double>(position * p.inverse_frequencies[i]);
        row[i] = static_cast<float>(std::cos(angle)) * p.attention_factor;
        row[half + i] = static_cast<float>(std::sin(angle)) * p.attention_factor;
      }
    }
  });
}

void rotate_interleaved(float* x, const float* cosines, const float* sines, int64_t half) {
  for (int64_t i = 0; i < half; ++i) {
    const float a = x[2 * i];
    const float b = x[2 * i + 1];
    x[2 * i] = a * cosines[i] - b * sines[i];
    x[2 * i + 1] = b * cosines[i] + a * sines[i];
  }
}

void rotate_halves(float* x, const float* cosines, const float* sines, int64_t half) {
  for (int64_t i = 0; i < half; ++i) {
    const float a = x[i];
    const float b = x[half + i];
    x[i] = a * cosines[i] - b * sines[i];
    x[half + i] = b * cosines[i] + a * sines[i];
  }
}

void rope_kernel(const RopeParams& p, HostContext& context) {
  const int64_t half = p.dim / 2;
  const int64_t grain = std::max<int64_t>(1, 8192 / std::max<int64_t>(1, int64_t{p.heads} * p.dim));
  context.threads.parallel_for(p.tokens, grain, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      const float* cosines = p.cos_sin.get() + t * p.dim;
      const float* sines = cosines + half;
      for (int64_t h = 0; h < p.heads; ++h) {
        float* x = p.x.get() + t * p.token_stride + h * p.head_stride + p.offset;
        if (p.pairing == RopePairing::kInterleaved) {
          rotate_interleaved(x, cosines, sines, half);
        } else {
          rotate_halves(x, cosines, sines, half);
        }
      }
    }
  });
}

}  // namespace

std::vector<float> rope_inverse_frequencies(int dim, double theta, const RopeScaling& scaling) {
  CHECK(dim > 0 && dim % 2 == 0, "rope over {} elements: pairs need an even number", dim);
  const int half = dim / 2;
  double low = 0;
  double high = 1;
  if (scaling.factor > 1) {
    const double limit = dim - 1;
    low = std::max(0.0, std::floor(correction_index(scaling.beta_fast, dim, theta, scaling.original_max_position)));
    high = std::min(limit, std::ceil(correction_index(scaling.beta_slow, dim, theta, scaling.original_max_position)));
    if (low == high) high += 0.001;  // the published guard against 0 / 0
  }
  std::vector<float> frequencies(static_cast<size_t>(half));
  for (int i = 0; i < half; ++i) {
    const double base = std::pow(theta, -2.0 * i / dim);
    if (scaling.factor > 1) {
      // 0: many turns within the original context, kept; 1: less than one turn, positions interpolated.
      const double ramp = std::clamp((i - low) / (high - low), 0.0, 1.0);
      frequencies[static_cast<size_t>(i)] = static_cast<float>(base * (1 - ramp) + base / scaling.factor * ramp);
    } else {
      frequencies[static_cast<size_t>(i)] = static_cast<float>(base);
    }
  }
  return frequencies;
}

double yarn_mscale(double factor, double k) { return factor > 1 ? 0.1 * k * std::log(factor) + 1 : 1; }

double rope_attention_factor(const RopeScaling& scaling) {
  return yarn_mscale(scaling.factor, scaling.mscale) / yarn_mscale(scaling.factor, scaling.mscale_all_dim);
}

double yarn_softmax_factor(const RopeScaling& scaling) {
  const double m = yarn_mscale(scaling.factor, scaling.mscale_all_dim);
  return m * m;
}

void rope_table(Stream& stream, const RopeTableParams& params) {
  launch_op(stream, "rope_table", &rope_table_kernel, &CudaOps::rope_table, params);
}

void rope(Stream& stream, const RopeParams& params) { launch_op(stream, "rope", &rope_kernel, &CudaOps::rope, params); }

}  // namespace lantern
