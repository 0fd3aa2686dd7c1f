// The median of measured values.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "base/check.h"

namespace lantern {

// The middle one in order, of an even number the mean of the two middle ones. At least one value.
inline double median(std::vector<double> values) {
  CHECK(!values.empty(), "the median of no values");
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

}  // namespace lantern
