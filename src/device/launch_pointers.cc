#include "device/launch_pointers.h"

#include <cstring>

namespace lantern {

namespace {

// Below it Linux maps nothing. A count of rows in front of a size and of padding, in which anything may lie, passes the
// checksum once in 32768 times, and there are many launches.
constexpr uint64_t kLeastAddress = 65536;

}  // namespace

std::optional<LaunchPointer> next_pointer(std::span<const std::byte> params, size_t offset) {
  for (; offset + sizeof(DevPtr<std::byte>) <= params.size(); offset += alignof(DevPtr<std::byte>)) {
    uint64_t words[2];  // address and extent
    std::memcpy(words, params.data() + offset, sizeof(words));
    const uint64_t bytes = words[1] & kDeviceExtentMask;
    if (words[0] < kLeastAddress || words[1] != device_extent(words[0], bytes)) continue;
    const void* address;
    std::memcpy(static_cast<void*>(&address), words, sizeof(address));
    return LaunchPointer{offset, address, static_cast<size_t>(bytes)};
  }
  return std::nullopt;
}

}  // namespace lantern
