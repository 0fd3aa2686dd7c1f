// What the fuzzers have in common: the entry that libFuzzer calls, and how they take an input apart.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

// https://llvm.org/docs/LibFuzzer.html. Returns 0; what must not be ends in a failed CHECK or a sanitizer's report.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace lantern::test {

// Reads an input from its front. At its end there are zeros and empty parts.
class FuzzInput {
 public:
  FuzzInput(const uint8_t* data, size_t size) : rest_(reinterpret_cast<const char*>(data), size) {}

  uint8_t byte();
  bool flag() { return byte() % 2 == 1; }  // '1' is true, '0' is not
  size_t below(size_t n) { return byte() % n; }
  // Up to the next byte 0x1e, which is passed over.
  std::string_view part();
  std::string_view rest() const { return rest_; }
  bool empty() const { return rest_.empty(); }

 private:
  std::string_view rest_;
};

std::string read_source_file(const std::string& path);  // by its path in the checkout

}  // namespace lantern::test
