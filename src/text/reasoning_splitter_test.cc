#include "text/reasoning_splitter.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace lantern {
namespace {

struct Split {
  std::string reasoning, content;
};

// Feeds the text in parts; `parts` holds the ends.
Split run(const std::string& text, bool starts_thinking, const std::vector<size_t>& ends) {
  ReasoningSplitter splitter(starts_thinking);
  Split out;
  size_t begin = 0;
  for (size_t i = 0; i <= ends.size(); ++i) {
    const size_t end = i < ends.size() ? ends[i] : text.size();
    const auto delta = splitter.add(std::string_view(text).substr(begin, end - begin));
    out.reasoning += delta.reasoning;
    out.content += delta.content;
    // Whatever was given out is final: no part of the closing tag may be in it.
    EXPECT_EQ(out.reasoning.find("</think>"), std::string::npos);
    begin = end;
  }
  const auto rest = splitter.flush();
  return {out.reasoning + rest.reasoning, out.content + rest.content};
}

struct Case {
  const char* text;
  bool starts_thinking;
  const char* reasoning;
  const char* content;
};

constexpr Case kCases[] = {
    {"because</think>\n\nanswer", true, "because", "\n\nanswer"},
    {"<think>because</think>answer", false, "because", "answer"},
    {" \n<think>b</think>a", false, "b", "a"},
    {"answer <think>not a block</think>", false, "", "answer <think>not a block</think>"},
    {"a < b and </ think> </thin </think> c </think>", true, "a < b and </ think> </thin ", " c </think>"},
    {"<<</think</think>x", true, "<<</think", "x"},
    {"never closed </thin", true, "never closed </thin", ""},
    {"<thi", false, "", "<thi"},
    {"<thinker>", false, "", "<thinker>"},
    {"  ", false, "", "  "},
    {"", true, "", ""},
    {"</think>", true, "", ""},
};

TEST(ReasoningSplitter, EverySplitOfTheStreamGivesTheSame) {
  for (const Case& c : kCases) {
    const std::string text = c.text;
    for (size_t i = 0; i <= text.size(); ++i) {
      for (size_t j = i; j <= text.size(); ++j) {
        const Split split = run(text, c.starts_thinking, {i, j});
        ASSERT_EQ(split.reasoning, c.reasoning) << text << " at " << i << "," << j;
        ASSERT_EQ(split.content, c.content) << text << " at " << i << "," << j;
      }
    }
    std::vector<size_t> bytes;
    for (size_t i = 1; i < text.size(); ++i) bytes.push_back(i);
    const Split split = run(text, c.starts_thinking, bytes);
    EXPECT_EQ(split.reasoning, c.reasoning) << text;
    EXPECT_EQ(split.content, c.content) << text;
  }
}

TEST(ReasoningSplitter, GivesOutTextAsSoonAsItIsCertain) {
  ReasoningSplitter splitter(true);
  EXPECT_EQ(splitter.add("abc").reasoning, "abc");
  EXPECT_EQ(splitter.add("d</").reasoning, "d");
  EXPECT_EQ(splitter.add("b>").reasoning, "</b>");
  EXPECT_TRUE(splitter.thinking());
  EXPECT_EQ(splitter.add("</think>e").content, "e");
  EXPECT_FALSE(splitter.thinking());
  EXPECT_EQ(splitter.add("</thi").content, "</thi");
}

}  // namespace
}  // namespace lantern
