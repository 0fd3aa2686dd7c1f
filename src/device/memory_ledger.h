// Who asked for how many bytes of device memory. Printed at start-up; the answer to "what fills my memory?", and to
// "may a recorded launch read here?". Threads may use it at the same time.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lantern {

enum class MemoryClass { kWeights, kPersistent, kWorkspace, kPool };

std::string_view to_string(MemoryClass memory_class);

class MemoryLedger {
 public:
  struct Entry {
    MemoryClass memory_class;
    std::string owner;  // what it is for, e.g. "block_table"
    const std::byte* begin;
    size_t bytes;
    uint64_t id;  // never given twice
  };

  void add(MemoryClass memory_class, std::string_view owner, const void* begin, size_t bytes);
  void remove(const void* begin);

  std::vector<Entry> entries() const;
  size_t total_bytes() const;
  size_t total_bytes(MemoryClass memory_class) const;
  // The entry that [begin, begin + bytes) lies inside of, whole: the rule for every pointer of a recorded launch.
  std::optional<Entry> find(const void* begin, size_t bytes) const;
  bool contains(const void* begin, size_t bytes) const { return find(begin, bytes).has_value(); }
  // The entry that begins at this address.
  std::optional<Entry> entry_at(const void* begin) const;
  bool has(uint64_t id) const;
  // Grows whenever an entry goes: what was valid at a count is valid while the count stays.
  uint64_t removals() const { return removals_.load(std::memory_order_acquire); }
  // One line per class and per owner of 1 MiB and more.
  std::string table() const;

 private:
  mutable std::mutex mutex_;
  std::vector<Entry> entries_;
  uint64_t next_id_ = 1;
  std::atomic<uint64_t> removals_ = 0;
};

}  // namespace lantern
