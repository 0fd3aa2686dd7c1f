// Whether what is about to be allocated fits, as a whole.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "device/device.h"

namespace lantern {

struct MemoryNeed {
  std::string what;  // "the caches"
  int64_t bytes;
};

// Out_of_memory with numbers where these together are more than the device has left: asked before the first of them is
// allocated, since zeroing those that fit alone takes time, and their memory from others. `advice` says what to lower.
Status check_room(const Device& device, std::span<const MemoryNeed> needs, std::string_view advice);

}  // namespace lantern
