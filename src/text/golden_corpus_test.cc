#include "text/golden_corpus_test.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "text/json.h"
#include "text/utf8.h"

namespace lantern {
namespace {

constexpr char32_t kRanges[][2] = {{0x20, 0x7E},       {0xA0, 0xFF},       {0x100, 0x24F},     {0x300, 0x36F},
                                   {0x370, 0x52F},     {0x590, 0x6FF},     {0x900, 0xDFF},     {0xE00, 0xEFF},
                                   {0x1000, 0x10FF},   {0x1E00, 0x1FFF},   {0x2000, 0x206F},   {0x2070, 0x2BFF},
                                   {0x3000, 0x30FF},   {0x4E00, 0x9FFF},   {0xAC00, 0xD7A3},   {0xF900, 0xFFFD},
                                   {0x10000, 0x1BFFF}, {0x1D400, 0x1D7FF}, {0x1F000, 0x1FAFF}, {0x20000, 0x323AF}};
constexpr char32_t kRuns[] = {0x20, 0x0A,   0x0D,   0x09,   0x61,    0x41,  0x3D,   0x2E, 0x30,
                              0x39, 0x4E00, 0x3042, 0xAC00, 0x1F600, 0x301, 0x200D, 0xA0, 0x3000,
                              0x5F, 0x27,   0xE9,   0x430,  0xFFFD,  0x0,   0x85};
constexpr char32_t kDigitZeros[] = {0x30, 0x660, 0x966, 0xFF10, 0x1D7CE};
constexpr char32_t kSpaces[] = {0x20,   0x20,   0x20,   0x0A,   0x0D,   0x09,   0x0B,   0x0C,   0x85,   0xA0,
                                0x1680, 0x180E, 0x2003, 0x200B, 0x2028, 0x2029, 0x202F, 0x205F, 0x3000, 0xFEFF};
constexpr char32_t kMarks[] = {0x300,  0x301,  0x308,  0x327,  0x5B0,  0x64B,  0x93C,   0x94D,   0xE38,  0x1AB0,
                               0x20D0, 0x20E3, 0x3099, 0xFE0F, 0x200C, 0x200D, 0x1F3FB, 0xE0067, 0x16FF0};

// splitmix64
struct Random {
  uint64_t state;

  uint64_t below(uint64_t n) {
    state += 0x9E3779B97F4A7C15ull;
    uint64_t z = state;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return (z ^ (z >> 31)) % n;
  }
};

void put(std::string& out, uint64_t code_point) {
  append_utf8(out, code_point >= 0xD800 && code_point < 0xE000 ? U'\uFFFD' : static_cast<char32_t>(code_point));
}

}  // namespace

std::vector<std::string> load_fragments() {
  std::ifstream in(LANTERN_SOURCE_DIR "/tests/text/fragments.json", std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  std::vector<std::string> fragments;
  const auto document = parse_json(text);
  EXPECT_TRUE(document.ok());
  if (!document.ok()) return fragments;
  for (const auto& value : document->as_array()) fragments.emplace_back(value.as_string());
  return fragments;
}

std::string make_corpus_string(size_t index, const std::vector<std::string>& fragments) {
  if (index < fragments.size()) return fragments[index];
  Random rng{index};
  std::string out;
  const uint64_t parts = 1 + rng.below(6);
  for (uint64_t part = 0; part < parts; ++part) {
    const uint64_t kind = rng.below(16);
    if (kind <= 6) {
      out += fragments[rng.below(fragments.size())];
    } else if (kind == 7) {
      const char32_t c = kRuns[rng.below(std::size(kRuns))];
      const uint64_t count = 1 + rng.below(rng.below(8) == 0 ? 300 : 12);
      for (uint64_t i = 0; i < count; ++i) put(out, c);
    } else if (kind == 8) {
      const auto& range = kRanges[rng.below(std::size(kRanges))];
      const uint64_t count = 1 + rng.below(6);
      for (uint64_t i = 0; i < count; ++i) put(out, range[0] + rng.below(range[1] - range[0] + 1));
    } else if (kind == 9) {
      const uint64_t count = 1 + rng.below(4);
      for (uint64_t i = 0; i < count; ++i) put(out, rng.below(0x110000));
    } else if (kind == 10) {
      const char32_t zero = kDigitZeros[rng.below(2) == 0 ? 0 : rng.below(std::size(kDigitZeros))];
      const uint64_t count = 1 + rng.below(12);
      for (uint64_t i = 0; i < count; ++i) put(out, zero + rng.below(10));
    } else if (kind == 11) {
      const uint64_t count = 1 + rng.below(5);
      for (uint64_t i = 0; i < count; ++i) out.push_back(static_cast<char>(0x80 + rng.below(128)));
    } else if (kind == 12) {
      const uint64_t count = 1 + rng.below(6);
      for (uint64_t i = 0; i < count; ++i) put(out, kSpaces[rng.below(std::size(kSpaces))]);
    } else if (kind == 13) {
      const std::string& fragment = fragments[rng.below(fragments.size())];
      out += fragment.substr(0, rng.below(fragment.size() + 1));
    } else if (kind == 14) {
      const uint64_t count = 1 + rng.below(10);
      for (uint64_t i = 0; i < count; ++i) out.push_back(static_cast<char>(0x20 + rng.below(95)));
    } else {
      const uint64_t count = 1 + rng.below(4);
      for (uint64_t i = 0; i < count; ++i) put(out, kMarks[rng.below(std::size(kMarks))]);
    }
  }
  return out;
}

}  // namespace lantern
