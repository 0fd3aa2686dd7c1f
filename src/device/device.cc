#include "device/device.h"

#include <fmt/core.h>

#include <cstdlib>
#include <cstring>

#include "base/check.h"
#include "base/units.h"
#include "device/capture_guard.h"
#include "device/stream_backend.h"

namespace lantern {

Result<void*> Device::allocate(MemoryClass memory_class, std::string_view owner, size_t bytes) {
  CHECK(!sealed_, "'{}' asked for {} bytes of device memory after start-up", owner, bytes);
  if (CaptureGuard::active() != nullptr) {
    RETURN_IF_ERROR(CaptureGuard::refuse(fmt::format("'{}' asked for {} bytes of device memory", owner, bytes)));
  }
  const size_t available = available_bytes();
  void* address = bytes <= available ? allocate_zeroed(bytes) : nullptr;
  if (address == nullptr) {
    return Error(ErrorCode::kOutOfMemory,
                 fmt::format("{} needs {:.2f} GiB ({} '{}'), but only {:.2f} GiB are free; free memory, or take "
                             "a shorter context or fewer layers",
                             description(), static_cast<double>(bytes) / kGiB, to_string(memory_class), owner,
                             static_cast<double>(available) / kGiB));
  }
  ledger_.add(memory_class, owner, address, bytes);
  return address;
}

void* Device::allocate_pinned(size_t bytes) {
  void* address = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
  if (address != nullptr) std::memset(address, 0, bytes);
  return address;
}

void Device::release_pinned(void* address) { std::free(address); }

void Device::release(void* address) {
  if (CaptureGuard::active() != nullptr) {
    const auto entry = ledger_.entry_at(address);
    CaptureGuard::forbid(fmt::format("'{}' released its device memory", entry ? entry->owner : "nobody known"));
  }
  ledger_.remove(address);
  release_memory(address);
}

void Device::unregister_memory(const void* begin) {
  if (CaptureGuard::active() != nullptr) {
    const auto entry = ledger_.entry_at(begin);
    CaptureGuard::forbid(fmt::format("'{}' unregistered its memory", entry ? entry->owner : "nobody known"));
  }
  ledger_.remove(begin);
}

std::unique_ptr<StreamBackend> Device::make_stream_backend() {
  CHECK(false, "{} holds memory but runs no launches", description());
}

}  // namespace lantern
