#include <gtest/gtest.h>

#include "text/unicode_classes.h"
#include "text/utf8.h"

namespace lantern {
namespace {

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
