// The arithmetic of FP8 block quantisation, as the public FP8 checkpoints with ue8m0 scales hold it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"

namespace lantern {

inline constexpr int32_t kQuantizeBlock = 128;

// The scale of a block whose largest magnitude is `amax`: 2^ceil(log2(amax / 448)), so that no value saturates; 1 for a
// block of zeros. Exact powers of two, never below 2^-126 (a normal float, and within E8M0).
float fp8_block_scale(float amax);

// Quantises `rows` (at most one block of) rows of `cols` elements, contiguous, of dtype kF32, kF16 or kBF16: codes
// [rows, cols] and one scale for every 128 columns. Returns the index of the first element that is not finite, or -1;
// the outputs are undefined then.
int64_t quantize_strip(const std::byte* source, DType dtype, int64_t rows, int64_t cols, std::byte* codes,
                       float* scales);

}  // namespace lantern
