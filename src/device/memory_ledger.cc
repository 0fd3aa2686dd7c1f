#include "device/memory_ledger.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/check.h"

namespace lantern {

std::string_view to_string(MemoryClass memory_class) {
  switch (memory_class) {
    case MemoryClass::kWeights: return "weights";
    case MemoryClass::kPersistent: return "persistent";
    case MemoryClass::kWorkspace: return "workspace";
    case MemoryClass::kPool: return "pool";
  }
  return "unknown";
}

void MemoryLedger::add(MemoryClass memory_class, std::string_view owner, const void* begin, size_t bytes) {
  entries_.push_back({memory_class, std::string(owner), static_cast<const std::byte*>(begin), bytes});
}

void MemoryLedger::remove(const void* begin) {
  const auto it = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.begin == begin; });
  CHECK(it != entries_.end(), "memory was released that the ledger does not know");
  entries_.erase(it);
}

size_t MemoryLedger::total_bytes() const {
  size_t total = 0;
  for (const Entry& entry : entries_) total += entry.bytes;
  return total;
}

size_t MemoryLedger::total_bytes(MemoryClass memory_class) const {
  size_t total = 0;
  for (const Entry& entry : entries_) total += entry.memory_class == memory_class ? entry.bytes : 0;
  return total;
}

bool MemoryLedger::contains(const void* begin, size_t bytes) const {
  const auto* address = static_cast<const std::byte*>(begin);
  return std::any_of(entries_.begin(), entries_.end(), [&](const Entry& e) {
    return address >= e.begin && bytes <= e.bytes && static_cast<size_t>(address - e.begin) <= e.bytes - bytes;
  });
}

std::string MemoryLedger::table() const {
  constexpr double kMiB = 1024.0 * 1024.0;
  std::string text;
  for (MemoryClass memory_class :
       {MemoryClass::kWeights, MemoryClass::kPersistent, MemoryClass::kWorkspace, MemoryClass::kPool}) {
    text += fmt::format("{:<12}{:>12.1f} MiB\n", to_string(memory_class),
                        static_cast<double>(total_bytes(memory_class)) / kMiB);
    for (const Entry& entry : entries_) {
      if (entry.memory_class != memory_class || entry.bytes < (1u << 20)) continue;
      text += fmt::format("  {:<24}{:>12.1f} MiB\n", entry.owner, static_cast<double>(entry.bytes) / kMiB);
    }
  }
  return text;
}

}  // namespace lantern
