#include "model/quantize_block.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/e4m3_encode.h"

namespace lantern {
namespace {

float load(const std::byte* source, DType dtype, int64_t i) {
  if (dtype == DType::kF32) {
    float value = 0;
    std::memcpy(&value, source + 4 * i, 4);
    return value;
  }
  uint16_t bits = 0;
  std::memcpy(&bits, source + 2 * i, 2);
  return dtype == DType::kBF16 ? to_float(bf16_t{bits}) : to_float(f16_t{bits});
}

}  // namespace

float fp8_block_scale(float amax) {
  if (amax == 0) return 1.0f;
  return std::max(round_up_to_power_of_two(amax / 448.0f), 0x1p-126f);
}

int64_t quantize_strip(const std::byte* source, DType dtype, int64_t rows, int64_t cols, std::byte* codes,
                       float* scales) {
  CHECK(dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16, "{} cannot be quantised",
        to_string(dtype));
  CHECK(rows <= kQuantizeBlock, "a strip has at most {} rows, not {}", kQuantizeBlock, rows);
  float block[kQuantizeBlock * kQuantizeBlock];
  for (int64_t begin = 0; begin < cols; begin += kQuantizeBlock) {
    const int64_t width = std::min<int64_t>(kQuantizeBlock, cols - begin);
    uint32_t largest = 0;  // magnitudes compare as integers, and NaN and infinity above all finite ones
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < width; ++j) {
        const float value = load(source, dtype, i * cols + begin + j);
        block[i * kQuantizeBlock + j] = value;
        largest = std::max(largest, std::bit_cast<uint32_t>(value) & 0x7fffffffu);
      }
    }
    const auto amax = std::bit_cast<float>(largest);
    if (!std::isfinite(amax)) {
      for (int64_t i = 0; i < rows * cols; ++i) {
        if (!std::isfinite(load(source, dtype, i))) return i;
      }
    }
    const float scale = fp8_block_scale(amax);
    scales[begin / kQuantizeBlock] = scale;
    // Dividing by a power of two down to 2^-126 is multiplying by its reciprocal, which is a normal float as well.
    const float reciprocal = 1.0f / scale;
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < width; ++j) {
        codes[i * cols + begin + j] =
            static_cast<std::byte>(encode_e4m3(block[i * kQuantizeBlock + j] * reciprocal).bits);
      }
    }
  }
  return -1;
}

}  // namespace lantern
