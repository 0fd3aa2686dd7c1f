// Vectorised pieces of host kernels that work on one row of floats. The value of each element depends on that element
// (and, for a sum, on the row) alone: tails go through the same instructions as full vectors.
#pragma once

#include <cstdint>

namespace lantern {

// gate[i] = silu(gate[i]) * up[i]. silu(x) = x / (1 + e^-x) is within 4 units in the last place of the exact value for
// |x| <= 80; below, the exact value is under 1e-32 and ours may flush to (minus) zero. NaN stays NaN.
void silu_multiply_row(float* gate, const float* up, int64_t count);

// Largest element; NaN counts as -infinity, and so does an empty row.
float row_maximum(const float* x, int64_t count);

// Whether no element is NaN or infinite.
bool all_finite(const float* x, int64_t count);

// out[i] = exp((x[i] - shift) / divisor), within 2 units in the last place of the exponential of the rounded argument;
// results below 2^-126 may be 0. A NaN or -infinity in x gives 0. shift is finite and >= every x[i], divisor > 0.
void exponential_row(const float* x, int64_t count, float shift, float divisor, float* out);

// Sum in double of exp(x[i] - shift), under the rules of exponential_row.
double exponential_sum(const float* x, int64_t count, float shift);

// The normaliser of log softmax over one row. Never NaN: unusual logits as ops/sampling.h defines them.
struct LogSoftmax {
  float maximum;   // of the row
  double log_sum;  // log of the sum of exp(x - maximum)

  float of(float logit) const;
};
LogSoftmax log_softmax_of(const float* logits, int64_t count);

}  // namespace lantern
