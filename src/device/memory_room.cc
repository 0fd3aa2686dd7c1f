#include "device/memory_room.h"

#include <fmt/format.h>

#include "base/units.h"

namespace lantern {

Status check_room(const Device& device, std::span<const MemoryNeed> needs, std::string_view advice) {
  double all = 0;  // what absurd settings need may be more than an int64_t holds
  std::string parts;
  for (const MemoryNeed& need : needs) {
    const auto bytes = static_cast<double>(need.bytes);
    all += bytes;
    parts += fmt::format("{}{:.2f} GiB for {}", parts.empty() ? "" : ", ", bytes / kGiB, need.what);
  }
  const auto available = static_cast<double>(device.available_bytes());
  if (all <= available) return {};
  return Error(ErrorCode::kOutOfMemory, fmt::format("{} needs {:.2f} GiB ({}), but only {:.2f} GiB are free; {}",
                                                    device.description(), all / kGiB, parts, available / kGiB, advice));
}

}  // namespace lantern
