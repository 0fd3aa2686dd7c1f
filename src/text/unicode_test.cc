#include <gtest/gtest.h>
#include <utf8proc.h>

#include "text/unicode_classes.h"
#include "text/utf8.h"

namespace lantern {
namespace {

CharMask mask_of(utf8proc_category_t category) {
  switch (category) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LT: return kLetterUpper;
    case UTF8PROC_CATEGORY_LL: return kLetterLower;
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO: return kLetterOther;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME: return kMark;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO: return kNumber;
    case UTF8PROC_CATEGORY_PC:
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO: return kPunctuation;
    case UTF8PROC_CATEGORY_SM:
    case UTF8PROC_CATEGORY_SC:
    case UTF8PROC_CATEGORY_SK:
    case UTF8PROC_CATEGORY_SO: return kSymbol;
    default: return 0;
  }
}

// An independent source. utf8proc knows an older Unicode, so it has no opinion on what it calls unassigned.
TEST(UnicodeClasses, AgreeWithUtf8proc) {
  constexpr CharMask kCategories = kLetter | kMark | kNumber | kPunctuation | kSymbol;
  int compared = 0;
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
    if (category == UTF8PROC_CATEGORY_CN) continue;
    ++compared;
    ASSERT_EQ(char_mask(c) & kCategories, mask_of(category)) << std::hex << static_cast<uint32_t>(c);
  }
  EXPECT_GT(compared, 270000);
}

TEST(UnicodeClasses, WhiteSpaceIsTheUnicodeProperty) {
  std::u32string spaces;
  for (char32_t c = 0; c < 0x110000; ++c) {
    if ((char_mask(c) & kWhiteSpace) != 0) spaces += c;
  }
  EXPECT_EQ(spaces,
            U"\x9\xA\xB\xC\xD\x20\x85\xA0\x1680\x2000\x2001\x2002\x2003\x2004\x2005\x2006\x2007\x2008\x2009\x200A"
            U"\x2028\x2029\x202F\x205F\x3000");
  EXPECT_EQ(char_mask(0x110000), 0);
  EXPECT_EQ(char_mask(0xFFFFFFFF), 0);
}

// Expected values as Python's bytes.decode("utf-8", "replace") gives them; R stands for U+FFFD.
TEST(Utf8, MaximalIllFormedPartsBecomeOneReplacement) {
  const auto decoded = [](std::string_view bytes) {
    std::string text = replace_invalid_utf8(bytes), out;
    for (size_t i = 0; i < text.size();) {
      const Utf8Step step = decode_utf8(text, i);
      EXPECT_TRUE(step.valid);
      if (step.value == 0xFFFD) {
        out += 'R';
      } else {
        out.append(text, i, step.size);
      }
      i += step.size;
    }
    return out;
  };
  EXPECT_EQ(decoded("a\xC3\xA9z"), "aéz");
  EXPECT_EQ(decoded("\x80"), "R");
  EXPECT_EQ(decoded("\xC0\x80"), "RR");       // overlong
  EXPECT_EQ(decoded("\xE0\x80\x80"), "RRR");  // overlong
  EXPECT_EQ(decoded("\xE2\x82"), "R");        // cut short
  EXPECT_EQ(decoded("\xE2\x82z"), "Rz");
  EXPECT_EQ(decoded("\xED\xA0\x80"), "RRR");  // surrogate
  EXPECT_EQ(decoded("\xF0\x9F\x98\x80"), "😀");
  EXPECT_EQ(decoded("\xF0\x9F\x98z"), "Rz");
  EXPECT_EQ(decoded("\xF0\x80\x80\x80"), "RRRR");
  EXPECT_EQ(decoded("\xF4\x90\x80\x80"), "RRRR");  // above U+10FFFF
  EXPECT_EQ(decoded("\xF5\xFF"), "RR");
  EXPECT_EQ(decoded("\xF0\x9F\xE2\x82\xAC"), "R€");
}

TEST(Utf8, EveryCodePointSurvivesARoundTrip) {
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text;
    append_utf8(text, c);
    const Utf8Step step = decode_utf8(text, 0);
    ASSERT_TRUE(step.valid);
    ASSERT_EQ(step.value, c);
    ASSERT_EQ(step.size, text.size());
    for (size_t cut = 1; cut < text.size(); ++cut) {
      ASSERT_EQ(incomplete_utf8_tail(std::string_view(text).substr(0, cut)), cut);
    }
    ASSERT_EQ(incomplete_utf8_tail(text), 0u);
  }
  EXPECT_EQ(incomplete_utf8_tail(""), 0u);
  EXPECT_EQ(incomplete_utf8_tail("\x80\x80\x80\x80"), 0u);
  EXPECT_EQ(incomplete_utf8_tail("\xE0\x80"), 0u);  // cannot become a code point any more
}

}  // namespace
}  // namespace lantern
