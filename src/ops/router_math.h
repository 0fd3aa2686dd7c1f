// The router's arithmetic that host and CUDA kernels share.
#pragma once

#include <cmath>
#include <cstdint>

#include "base/host_device.h"
#include "ops/moe.h"

namespace lantern {

// Of a group of `count` biased scores.
LANTERN_HOST_DEVICE inline float group_score(const float* choice, int32_t count, RouterGroupScore kind) {
  float first = -INFINITY;
  float second = -INFINITY;
  for (int32_t i = 0; i < count; ++i) {
    if (choice[i] > first) {
      second = first;
      first = choice[i];
    } else if (choice[i] > second) {
      second = choice[i];
    }
  }
  return kind == RouterGroupScore::kMax ? first : first + second;
}

}  // namespace lantern
