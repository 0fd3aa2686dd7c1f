// Exact selection of the k largest scores on the host.
#pragma once

#include <cstdint>

namespace lantern {

// Histogram bins that select_top_k needs.
inline constexpr int32_t kTopKBins = 2048;

// Writes the positions of the k largest of scores[0..count) to `positions`, ascending; 0 < k <= count. Among equal
// scores (+0 and -0 are equal) the lower position is taken first. NaN with a clear sign bit counts as larger, with a
// set one as smaller than everything else, so that the result is defined for any input. `bins` is scratch.
void select_top_k(const float* scores, int32_t count, int32_t k, uint32_t* bins, int32_t* positions);

}  // namespace lantern
