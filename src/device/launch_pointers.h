// Finds the device pointers in a launch's parameters, whatever struct they are in: a DevPtr carries its extent and a
// checksum of both, so that no struct has to list its pointers, and none can be forgotten.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/result.h"
#include "device/fixed.h"
#include "device/memory_ledger.h"

namespace lantern {

struct LaunchPointer {
  size_t offset;  // in the parameters
  const void* address;
  size_t bytes;
};

// The first non-null DevPtr at `offset` or beyond, which is a multiple of 8.
std::optional<LaunchPointer> next_pointer(std::span<const std::byte> params, size_t offset);

}  // namespace lantern
