#include "text/split_pattern.h"

#include <gtest/gtest.h>

#include "text/golden_corpus_test.h"
#include "text/utf8.h"

namespace lantern {
namespace {

std::vector<std::string> matches(const SplitPattern& pattern, std::string_view text) {
  std::vector<std::string> out;
  for (size_t from = 0; from <= text.size();) {
    const auto match = pattern.next(text, from);
    EXPECT_TRUE(match.ok());
    if (!match.ok() || !*match) break;
    out.emplace_back(text.substr((*match)->begin, (*match)->end - (*match)->begin));
    from = (*match)->end > from ? (*match)->end : from + 1;
  }
  return out;
}

constexpr const char* kDeepSeekV3 =
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| "
    "?[\\p{P}\\p{S}]+[\r\n]*"
    "|\\s*[\r\n]+|\\s+(?!\\S)|\\s+";
constexpr const char* kGlm4 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kGpt2 = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// Two implementations of the same patterns: by hand, and PCRE2.
TEST(SplitPattern, HandWrittenMatchersEqualPcre) {
  const auto fragments = load_fragments();
  for (const char* text :
       {kDeepSeekV3, kGlm4, kGpt2, R"(\p{N}{1,3})", "[一-龥぀-ゟ゠-ヿ]+", "\\s?[!-/:-~！-／：-～‘-‟　-。]+",
        "[\r\n]", R"(\s+$)", R"(\s?\p{L}+)", R"([^\s\-a-c\]]+)"}) {
    const auto by_hand = make_known_pattern(text) ? make_known_pattern(text) : make_class_pattern(text);
    ASSERT_NE(by_hand, nullptr) << text;
    const auto pcre = make_pcre_pattern(text);
    ASSERT_TRUE(pcre.ok()) << pcre.error().message();
    int compared = 0;
    for (size_t i = 0; i < kNumCorpusStrings; i += i < fragments.size() ? 1 : 4) {
      const std::string subject = replace_invalid_utf8(make_corpus_string(i, fragments));
      ++compared;
      ASSERT_EQ(matches(*by_hand, subject), matches(**pcre, subject)) << text << " on string " << i;
    }
    EXPECT_GT(compared, 1500);
  }
}

TEST(SplitPattern, KnownPatternsAreRecognised) {
  for (const char* text : {kDeepSeekV3, kGlm4, kGpt2}) EXPECT_NE(make_known_pattern(text), nullptr) << text;
  EXPECT_EQ(make_known_pattern(R"(\p{L}+)"), nullptr);
  for (const char* text : {R"(\p{N}{1,3})", "[一-龥぀-ゟ゠-ヿ]+", "[\r\n]", R"([\r\n])", R"(\s?\p{P}+)",
                           R"(\p{N})", "[一-龥ࠀ-一가-퟿]+"}) {
    EXPECT_NE(make_class_pattern(text), nullptr) << text;
  }
  // Not of the small grammar, though they look like it.
  for (const char* text : {"[a&&b]+", "[[:alpha:]]", R"([\d]+)", "[z-a]", "[]", "[a", "a+", "[a]{2,3}", "[a]{1,}",
                           "[a]+b", "", "[a]*", R"(\s??)", "[a-b-c]", R"([\)"}) {
    EXPECT_EQ(make_class_pattern(text), nullptr) << text;
  }
}

TEST(SplitPattern, PcreFollowsOniguruma) {
  const auto with = [](const char* pattern, std::string_view text) {
    const auto compiled = make_pcre_pattern(pattern);
    EXPECT_TRUE(compiled.ok()) << compiled.error().message();
    return compiled.ok() ? matches(**compiled, text) : std::vector<std::string>();
  };
  using Strings = std::vector<std::string>;
  EXPECT_EQ(with(R"(\s)", "a\u0085b\u180Ec\u3000"), (Strings{"\u0085", "\u3000"}));  // U+180E is no space
  EXPECT_EQ(with(R"([\s]+)", " \u0085x"), (Strings{" \u0085"}));
  EXPECT_EQ(with(R"(\S+)", "ab\u0085c"), (Strings{"ab", "c"}));
  EXPECT_EQ(with(R"(\w+)", "a_\u0301é-"), (Strings{"a_\u0301é"}));
  EXPECT_EQ(with(R"(\h)", "g\tf"), (Strings{"f"}));
  EXPECT_EQ(with(R"(a$)", "a\nba"), (Strings{"a", "a"}));
  EXPECT_EQ(with(R"(\p{Han}+)", "漢\u3001字"), (Strings{"漢", "字"}));  // not by Script_Extensions
  EXPECT_EQ(with(R"(\p{L}+)", "a1b"), (Strings{"a", "b"}));
  EXPECT_EQ(with(R"((?i:s))", "Sſ"), (Strings{"S", "ſ"}));
}

TEST(SplitPattern, WhatPcreCannotDoIsRefusedByName) {
  const auto error = [](const char* pattern) {
    const auto compiled = make_pcre_pattern(pattern);
    return compiled.ok() ? std::string("accepted") : compiled.error().message();
  };
  EXPECT_NE(error(R"([\p{L}&&[^\p{Han}]]+)").find("class intersection"), std::string::npos);
  EXPECT_NE(error(R"([\S])").find("\\S inside"), std::string::npos);
  EXPECT_NE(error(R"(\bfoo)").find("\\b"), std::string::npos);
  EXPECT_NE(error(R"(a{1,2}+)").find("counted repeat"), std::string::npos);
  EXPECT_NE(error(R"((?m:.))").find("(?m:"), std::string::npos);
  EXPECT_NE(error(R"((a)").find("does not compile"), std::string::npos);
  EXPECT_NE(error(R"(\p{NoSuchThing})").find("does not compile"), std::string::npos);
  EXPECT_NE(error("a\\").find("backslash"), std::string::npos);
}

// A pattern that backtracks without end is stopped, not waited for.
TEST(SplitPattern, RunawayPatternIsAnError) {
  const auto pattern = make_pcre_pattern(R"((?:(?:a+)+)+\d)");
  ASSERT_TRUE(pattern.ok());
  const auto match = (*pattern)->next(std::string(60, 'a'), 0);
  ASSERT_FALSE(match.ok());
  EXPECT_NE(match.error().message().find("cannot be matched"), std::string::npos);
}

}  // namespace
}  // namespace lantern
