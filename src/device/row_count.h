// How many rows of a launch are real where a step was padded to its bucket. The launch knows the bucket's rows; the
// count lies in device memory.
#pragma once

#include <cstdint>

#include "base/host_device.h"
#include "device/fixed.h"

namespace lantern {

// The first `count[0] - before` rows of the launch are real, the others padding at the end, which an implementation may
// leave out: nobody reads what comes of it. Without a count all rows are real.
struct RowCount {
  DevPtr<const int32_t> count{};  // optional [1]
  int64_t before = 0;             // rows that the count includes, in front of the launch's first

  // Of `rows`. For kernels: dereferences device memory.
  LANTERN_HOST_DEVICE int64_t of(int64_t rows) const {
    if (!count) return rows;
    const int64_t real = int64_t{count[0]} - before;
    return real < 0 ? 0 : real < rows ? real : rows;
  }
  // For a launch that begins `rows` further on.
  RowCount from(int64_t rows) const { return {.count = count, .before = before + rows}; }
};

}  // namespace lantern
