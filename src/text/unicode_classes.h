// The Unicode classes that tokenizer patterns ask for, as bits of one table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "text/utf8.h"

namespace lantern {

using CharMask = uint16_t;

inline constexpr CharMask kLetterUpper = 1 << 0;  // Lu, Lt
inline constexpr CharMask kLetterLower = 1 << 1;  // Ll
inline constexpr CharMask kLetterOther = 1 << 2;  // Lm, Lo
inline constexpr CharMask kLetter = kLetterUpper | kLetterLower | kLetterOther;
inline constexpr CharMask kMark = 1 << 3;
inline constexpr CharMask kNumber = 1 << 4;
inline constexpr CharMask kPunctuation = 1 << 5;
inline constexpr CharMask kSymbol = 1 << 6;
inline constexpr CharMask kWhiteSpace = 1 << 7;  // \s: the property White_Space
inline constexpr CharMask kHan = 1 << 8;         // script Han
inline constexpr CharMask kWord = 1 << 9;        // \w of the Rust regex crate
inline constexpr CharMask kNumeric = 1 << 10;    // the Digits pre-tokenizer's own (newer) table of numbers
// Parts of the classes above.
inline constexpr CharMask kModifierLetter = 1 << 11;  // Lm
inline constexpr CharMask kTitlecase = 1 << 12;       // Lt
inline constexpr CharMask kDecimalDigit = 1 << 13;    // Nd

struct UnicodeRange {
  uint32_t first;
  uint32_t last;
  uint16_t mask;
};
extern const UnicodeRange kUnicodeRanges[];
extern const size_t kNumUnicodeRanges;

// The classes of a code point; 0 for an unassigned, control, format or private-use one.
CharMask char_mask(char32_t code_point);

// One character of a text that is known to be valid UTF-8. size is 0 at the end of the text.
struct Char {
  char32_t value = 0;
  CharMask mask = 0;
  size_t size = 0;

  bool any(CharMask wanted) const { return (mask & wanted) != 0; }
  bool newline() const { return size != 0 && (value == '\n' || value == '\r'); }
};
Char char_at(std::string_view text, size_t offset);

// End of the run of characters from `offset` that have (or, for skip_unless, lack) a bit of the mask.
size_t skip_while(std::string_view text, size_t offset, CharMask wanted);
size_t skip_unless(std::string_view text, size_t offset, CharMask unwanted);

}  // namespace lantern
