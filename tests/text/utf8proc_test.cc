// Our table of Unicode categories against an independent one.
#include <gtest/gtest.h>
#include <utf8proc.h>

#include "text/unicode_classes.h"

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

// utf8proc knows an older Unicode, so it has no opinion on what it calls unassigned.
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

}  // namespace
}  // namespace lantern
