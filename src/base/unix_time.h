// The time of day, for what leaves the process: answers, logs. Durations are measured by steady clocks.
#pragma once

#include <chrono>
#include <cstdint>

namespace lantern {

// Since 1970.
inline int64_t unix_nanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}
inline int64_t unix_milliseconds() { return unix_nanoseconds() / 1'000'000; }
inline int64_t unix_seconds() { return unix_milliseconds() / 1000; }

}  // namespace lantern
