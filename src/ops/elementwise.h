// The few operations on whole buffers that need no op of their own.
#pragma once

#include <cstdint>

#include "device/fixed.h"
#include "device/stream.h"

namespace lantern {

// x[i] = value.
struct FillParams {
  DevPtr<float> x;
  int64_t count = 0;
  float value = 0.0f;
};
void fill(Stream& stream, const FillParams& params);

// x[i] *= factor.
struct ScaleParams {
  DevPtr<float> x;
  int64_t count = 0;
  float factor = 1.0f;
};
void scale(Stream& stream, const ScaleParams& params);

// x[i] += delta[i].
struct AddParams {
  DevPtr<const float> delta;
  DevPtr<float> x;
  int64_t count = 0;
};
void add(Stream& stream, const AddParams& params);

}  // namespace lantern
