#include "engine/stop_strings.h"

#include <gtest/gtest.h>

namespace lantern {
namespace {

struct Outcome {
  std::string text;
  std::string matched;
};

// Feeds `text` in pieces that end at the given places.
Outcome run(const std::vector<std::string>& stops, std::string_view text, const std::vector<size_t>& cuts) {
  StopStrings stream(stops);
  std::string out;
  size_t begin = 0;
  for (size_t cut : cuts) {
    out += stream.feed(text.substr(begin, cut - begin));
    begin = cut;
  }
  out += stream.feed(text.substr(begin));
  out += stream.flush();
  return {out, std::string(stream.matched())};
}

// What any split must give: found by looking at every prefix of the whole text.
Outcome expected(const std::vector<std::string>& stops, std::string_view text) {
  for (size_t end = 1; end <= text.size(); ++end) {
    std::string_view best;
    for (const std::string& stop : stops) {
      if (!stop.empty() && text.substr(0, end).ends_with(stop) && stop.size() > best.size()) best = stop;
    }
    if (!best.empty()) return {std::string(text.substr(0, end - best.size())), std::string(best)};
  }
  return {std::string(text), ""};
}

TEST(StopStringsTest, EverySplitGivesTheSameText) {
  const std::vector<std::vector<std::string>> stop_lists = {
      {},       {""},          {"b"},        {"\n\n"},      {"aab"},         {"ab", "b"},
      {"abab"}, {"aba", "ba"}, {"END", "E"}, {"xyz", "yq"}, {"\nQuestion:"}, {"é", "日本"},
  };
  const std::vector<std::string> texts = {
      "",
      "b",
      "aaab",
      "aaaab tail",
      "ababab",
      "abacaba",
      "the END of it",
      "xyxyq",
      "xyxyxyz!",
      "line\n\nrest",
      "a\nQuestion",
      "a\nQuestion: b",
      "caf\xc3\xa9 \xe6\x97\xa5\xe6\x9c\xac!",
  };
  for (const auto& stops : stop_lists) {
    for (const std::string& text : texts) {
      const Outcome want = expected(stops, text);
      for (size_t first = 0; first <= text.size(); ++first) {
        for (size_t second = first; second <= text.size(); ++second) {
          const Outcome got = run(stops, text, {first, second});
          ASSERT_EQ(got.text, want.text) << "text '" << text << "' cut at " << first << ", " << second;
          if (want.matched.empty() || stops.size() == 1) {
            ASSERT_EQ(got.matched, want.matched);
          }
        }
      }
    }
  }
}

TEST(StopStringsTest, TextIsLetThroughAsSoonAsItIsCertain) {
  StopStrings stream({"\nQuestion:"});
  EXPECT_EQ(stream.feed("four"), "four");
  EXPECT_EQ(stream.feed("\nQues"), "");
  EXPECT_EQ(stream.feed("t"), "");
  EXPECT_EQ(stream.feed("!\n"), "\nQuest!");
  EXPECT_EQ(stream.feed("Question: no"), "");
  EXPECT_TRUE(stream.stopped());
  EXPECT_EQ(stream.matched(), "\nQuestion:");
  EXPECT_EQ(stream.feed("more"), "");
  EXPECT_EQ(stream.flush(), "");
}

}  // namespace
}  // namespace lantern
