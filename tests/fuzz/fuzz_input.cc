#include "fuzz_input.h"

#include <algorithm>
#include <fstream>
#include <iterator>

#include "base/check.h"

namespace lantern::test {

uint8_t FuzzInput::byte() {
  if (rest_.empty()) return 0;
  const auto first = static_cast<uint8_t>(rest_.front());
  rest_.remove_prefix(1);
  return first;
}

std::string_view FuzzInput::part() {
  const size_t end = std::min(rest_.find('\x1e'), rest_.size());
  const std::string_view before = rest_.substr(0, end);
  rest_.remove_prefix(std::min(end + 1, rest_.size()));
  return before;
}

std::string read_source_file(const std::string& path) {
  std::ifstream in(LANTERN_SOURCE_DIR "/" + path, std::ios::binary);
  CHECK(in.good(), "{} cannot be read", path);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

}  // namespace lantern::test
