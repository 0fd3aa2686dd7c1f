// What this process holds.
#pragma once

#include <cstdint>

namespace lantern::test {

// A sanitizer keeps what was freed.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kMemoryIsPlain = false;
#else
constexpr bool kMemoryIsPlain = true;
#endif

int64_t resident_bytes();
int64_t open_descriptors();
int64_t running_threads();

}  // namespace lantern::test
