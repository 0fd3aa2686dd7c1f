// Who asked for how many bytes of device memory. Printed at start-up; the answer to "what fills my memory?".
#pragma once

#include <cstddef>
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
  };

  void add(MemoryClass memory_class, std::string_view owner, const void* begin, size_t bytes);
  void remove(const void* begin);

  const std::vector<Entry>& entries() const { return entries_; }
  size_t total_bytes() const;
  size_t total_bytes(MemoryClass memory_class) const;
  // True when [begin, begin + bytes) lies inside one entry: the rule for every pointer of a recorded launch.
  bool contains(const void* begin, size_t bytes) const;
  // One line per class and per owner of 1 MiB and more.
  std::string table() const;

 private:
  std::vector<Entry> entries_;
};

}  // namespace lantern
