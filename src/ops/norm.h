// RMSNorm and LayerNorm over rows, in float inside.
#pragma once

#include <cstdint>

#include "device/fixed.h"
#include "device/stream.h"

namespace lantern {

// y[r, :] = x[r, :] / sqrt(mean(x[r, :]^2) + eps) * weight. x and y may be the same memory.
struct RmsNormParams {
  DevPtr<const float> x{};  // [rows, cols], row stride x_stride
  int64_t x_stride = 0;
  DevPtr<const float> weight{};  // [cols]
  DevPtr<float> y{};             // [rows, cols], row stride y_stride
  int64_t y_stride = 0;
  int64_t rows = 0;
  int64_t cols = 0;
  float eps = 1e-6f;
};
void rms_norm(Stream& stream, const RmsNormParams& params);

// residual[r, :] += delta[r, :]; y[r, :] = RMSNorm(residual[r, :]). The step between two sublayers in one pass.
struct AddRmsNormParams {
  DevPtr<const float> delta{};   // [rows, cols], contiguous
  DevPtr<float> residual{};      // [rows, cols], contiguous; updated
  DevPtr<const float> weight{};  // [cols]
  DevPtr<float> y{};             // [rows, cols], contiguous
  int64_t rows = 0;
  int64_t cols = 0;
  float eps = 1e-6f;
};
void add_rms_norm(Stream& stream, const AddRmsNormParams& params);

// y[r, :] = (x[r, :] - mean) / sqrt(variance + eps) * weight + bias; population variance. In place is allowed.
struct LayerNormParams {
  DevPtr<const float> x{};  // [rows, cols], row stride x_stride
  int64_t x_stride = 0;
  DevPtr<const float> weight{};  // [cols]
  DevPtr<const float> bias{};    // [cols]
  DevPtr<float> y{};             // [rows, cols], row stride y_stride
  int64_t y_stride = 0;
  int64_t rows = 0;
  int64_t cols = 0;
  float eps = 1e-6f;
};
void layer_norm(Stream& stream, const LayerNormParams& params);

}  // namespace lantern
