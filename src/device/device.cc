#include "device/device.h"

#include <fmt/core.h>

#include "base/check.h"

namespace lantern {

Result<void*> Device::allocate(MemoryClass memory_class, std::string_view owner, size_t bytes) {
  CHECK(!sealed_, "'{}' asked for {} bytes of device memory after start-up", owner, bytes);
  constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;
  const size_t available = available_bytes();
  void* address = bytes <= available ? allocate_zeroed(bytes) : nullptr;
  if (address == nullptr) {
    return Error(ErrorCode::kOutOfMemory,
                 fmt::format("{} needs {:.2f} GiB ({} '{}'), but only {:.2f} GiB are free; free memory, or lower "
                             "--max-model-len or the number of layers",
                             description(), static_cast<double>(bytes) / kGiB, to_string(memory_class), owner,
                             static_cast<double>(available) / kGiB));
  }
  ledger_.add(memory_class, owner, address, bytes);
  return address;
}

void Device::release(void* address) {
  ledger_.remove(address);
  release_memory(address);
}

}  // namespace lantern
