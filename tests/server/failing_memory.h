// Makes large allocations of this program fail.
#pragma once

#include <cstddef>

namespace lantern::test {

// While it lives `operator new` of `bytes` or more throws std::bad_alloc, on every thread. One at a time.
class FailingMemory {
 public:
  explicit FailingMemory(size_t bytes);
  ~FailingMemory();
  FailingMemory(const FailingMemory&) = delete;
  FailingMemory& operator=(const FailingMemory&) = delete;

  int failed() const;  // allocations
};

}  // namespace lantern::test
