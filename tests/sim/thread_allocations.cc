#include "thread_allocations.h"

#include <cstdlib>
#include <new>

namespace {
thread_local int64_t allocations = 0;
}  // namespace

// Every way to the heap leads through these; the others call them.
void* operator new(size_t size) {
  ++allocations;
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t /*size*/) noexcept { std::free(memory); }

namespace lantern {

int64_t thread_allocations() { return allocations; }

}  // namespace lantern
