// Units of memory as people read them.
#pragma once

namespace lantern {

constexpr double kMiB = 1024.0 * 1024.0;
constexpr double kGiB = 1024.0 * kMiB;

}  // namespace lantern
