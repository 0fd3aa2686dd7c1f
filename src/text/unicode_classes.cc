#include "text/unicode_classes.h"

#include <algorithm>
#include <array>
#include <vector>

namespace lantern {
namespace {

// Two-stage table: blocks of 256 code points, equal blocks stored once.
struct MaskTable {
  static constexpr size_t kBlock = 256;
  std::array<uint16_t, 0x110000 / kBlock> block_of{};
  std::vector<std::array<CharMask, kBlock>> blocks;

  MaskTable() {
    size_t range = 0;
    for (size_t b = 0; b < block_of.size(); ++b) {
      std::array<CharMask, kBlock> masks{};
      for (size_t i = 0; i < kBlock; ++i) {
        const auto c = static_cast<uint32_t>(b * kBlock + i);
        while (range < kNumUnicodeRanges && kUnicodeRanges[range].last < c) ++range;
        if (range < kNumUnicodeRanges && kUnicodeRanges[range].first <= c) masks[i] = kUnicodeRanges[range].mask;
      }
      const auto known = std::find(blocks.begin(), blocks.end(), masks);
      block_of[b] = static_cast<uint16_t>(known - blocks.begin());
      if (known == blocks.end()) blocks.push_back(masks);
    }
  }
};

const MaskTable& mask_table() {
  static const MaskTable table;
  return table;
}

}  // namespace

CharMask char_mask(char32_t code_point) {
  if (code_point >= 0x110000) return 0;
  const MaskTable& table = mask_table();
  return table.blocks[table.block_of[code_point / MaskTable::kBlock]][code_point % MaskTable::kBlock];
}

Char char_at(std::string_view text, size_t offset) {
  const Utf8Step step = decode_utf8(text, offset);
  return {step.value, step.size == 0 ? CharMask{0} : char_mask(step.value), step.size};
}

size_t skip_while(std::string_view text, size_t offset, CharMask wanted) {
  for (Char c = char_at(text, offset); c.any(wanted); c = char_at(text, offset)) offset += c.size;
  return offset;
}

size_t skip_unless(std::string_view text, size_t offset, CharMask unwanted) {
  for (Char c = char_at(text, offset); c.size != 0 && !c.any(unwanted); c = char_at(text, offset)) offset += c.size;
  return offset;
}

}  // namespace lantern
