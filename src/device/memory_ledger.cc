#include "device/memory_ledger.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/check.h"
#include "base/units.h"

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
  const std::lock_guard lock(mutex_);
  entries_.push_back({memory_class, std::string(owner), static_cast<const std::byte*>(begin), bytes, next_id_++});
}

void MemoryLedger::remove(const void* begin) {
  const std::lock_guard lock(mutex_);
  const auto it = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.begin == begin; });
  CHECK(it != entries_.end(), "memory was released that the ledger does not know");
  entries_.erase(it);
  removals_.fetch_add(1, std::memory_order_release);
}

std::vector<MemoryLedger::Entry> MemoryLedger::entries() const {
  const std::lock_guard lock(mutex_);
  return entries_;
}

size_t MemoryLedger::total_bytes() const {
  const std::lock_guard lock(mutex_);
  size_t total = 0;
  for (const Entry& entry : entries_) total += entry.bytes;
  return total;
}

size_t MemoryLedger::total_bytes(MemoryClass memory_class) const {
  const std::lock_guard lock(mutex_);
  size_t total = 0;
  for (const Entry& entry : entries_) total += entry.memory_class == memory_class ? entry.bytes : 0;
  return total;
}

std::optional<MemoryLedger::Entry> MemoryLedger::find(const void* begin, size_t bytes) const {
  // Numbers, since pointers into different objects have no order.
  const auto address = reinterpret_cast<uintptr_t>(begin);
  const std::lock_guard lock(mutex_);
  for (const Entry& entry : entries_) {
    const auto first = reinterpret_cast<uintptr_t>(entry.begin);
    if (address >= first && bytes <= entry.bytes && address - first <= entry.bytes - bytes) return entry;
  }
  return std::nullopt;
}

std::optional<MemoryLedger::Entry> MemoryLedger::entry_at(const void* begin) const {
  const std::lock_guard lock(mutex_);
  for (const Entry& entry : entries_) {
    if (entry.begin == begin) return entry;
  }
  return std::nullopt;
}

bool MemoryLedger::has(uint64_t id) const {
  const std::lock_guard lock(mutex_);
  return std::any_of(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.id == id; });
}

std::string MemoryLedger::table() const {
  std::string text;
  for (MemoryClass memory_class :
       {MemoryClass::kWeights, MemoryClass::kPersistent, MemoryClass::kWorkspace, MemoryClass::kPool}) {
    text += fmt::format("{:<12}{:>12.1f} MiB\n", to_string(memory_class),
                        static_cast<double>(total_bytes(memory_class)) / kMiB);
    for (const Entry& entry : entries()) {
      if (entry.memory_class != memory_class || entry.bytes < (1u << 20)) continue;
      text += fmt::format("  {:<24}{:>12.1f} MiB\n", entry.owner, static_cast<double>(entry.bytes) / kMiB);
    }
  }
  return text;
}

}  // namespace lantern
