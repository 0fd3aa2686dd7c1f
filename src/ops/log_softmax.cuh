#pragma once

#include <cmath>

namespace lantern::cuda {

// The normaliser of log softmax; see row_math_host.h.
struct LogSoftmax {
  float maximum = 0;
  double log_sum = 0;

  __device__ float of(float logit) const {
    if (!(logit > -INFINITY)) return -INFINITY;
    if (maximum == INFINITY) return logit == INFINITY ? static_cast<float>(-log_sum) : -INFINITY;
    return static_cast<float>(static_cast<double>(logit) - static_cast<double>(maximum) - log_sum);
  }
};

}  // namespace lantern::cuda
