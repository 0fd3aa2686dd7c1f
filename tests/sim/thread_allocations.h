// Counts what the calling thread takes from the heap, by replacing operator new in the program that links it.
#pragma once

#include <cstdint>

namespace lantern {

int64_t thread_allocations();

}  // namespace lantern
