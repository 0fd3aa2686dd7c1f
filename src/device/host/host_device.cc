#include "device/host/host_device.h"

#include <fmt/core.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>

#include "device/host/host_stream.h"

namespace lantern {

std::string HostDevice::description() const { return fmt::format("cpu ({} threads)", threads_.thread_count()); }

size_t available_host_memory() {
  std::ifstream meminfo("/proc/meminfo");
  std::string key;
  size_t kib = 0;
  std::string unit;
  while (meminfo >> key >> kib >> unit) {
    if (key == "MemAvailable:") return kib * 1024;
  }
  return std::numeric_limits<size_t>::max();  // no such account on this system: the allocator decides
}

size_t HostDevice::available_bytes() const { return available_host_memory(); }

void* HostDevice::allocate_zeroed(size_t bytes) {
  if (bytes > std::numeric_limits<size_t>::max() - 4095) return nullptr;
  const size_t rounded = (std::max<size_t>(bytes, 1) + 4095) / 4096 * 4096;
  void* address = std::aligned_alloc(4096, rounded);
  if (address != nullptr) std::memset(address, 0, rounded);
  return address;
}

void HostDevice::release_memory(void* address) { std::free(address); }

std::unique_ptr<StreamBackend> HostDevice::make_stream_backend() { return std::make_unique<HostStream>(threads_); }

std::unique_ptr<Device> make_host_device(int threads) { return std::make_unique<HostDevice>(threads); }

}  // namespace lantern
