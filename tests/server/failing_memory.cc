#include "failing_memory.h"

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace {

std::atomic<size_t> refused_from = SIZE_MAX;
std::atomic<int> num_failed = 0;

void* allocate(size_t bytes, size_t alignment) {
  if (bytes >= refused_from) {
    ++num_failed;
    throw std::bad_alloc();
  }
  void* memory = alignment <= alignof(std::max_align_t)
                     ? std::malloc(bytes)
                     : std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(size_t bytes) { return allocate(bytes, 1); }
void* operator new(size_t bytes, std::align_val_t alignment) { return allocate(bytes, static_cast<size_t>(alignment)); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }

namespace lantern::test {

FailingMemory::FailingMemory(size_t bytes) {
  num_failed = 0;
  refused_from = bytes;
}
FailingMemory::~FailingMemory() { refused_from = SIZE_MAX; }
int FailingMemory::failed() const { return num_failed; }

}  // namespace lantern::test
