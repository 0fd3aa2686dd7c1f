#include "cli/config_file.h"

#include <gtest/gtest.h>

namespace lantern::cli {
namespace {

using Lists = std::vector<std::pair<std::string, std::vector<std::string>>>;

Lists read(std::string_view text) {
  const Result<std::vector<ConfigEntry>> entries = parse_config(text);
  EXPECT_TRUE(entries.ok()) << text << ": " << (entries.ok() ? "" : entries.error().message());
  Lists lists;
  if (!entries.ok()) return lists;
  for (const ConfigEntry& entry : *entries) lists.emplace_back(entry.name, entry.values);
  return lists;
}

TEST(ConfigFileTest, ValuesAreReadAsYamlReadsThem) {
  EXPECT_EQ(read(""), Lists{});
  EXPECT_EQ(read("---\n# nothing\n\n   \n  # here\n"), Lists{});
  EXPECT_EQ(read("a: 1\nb:  two words \r\nc: x#y # z"), (Lists{{"a", {"1"}}, {"b", {"two words"}}, {"c", {"x#y"}}}));
  EXPECT_EQ(read("a: http://x:80/\n"), (Lists{{"a", {"http://x:80/"}}}));
  EXPECT_EQ(read("a: \"q # \\\"x\\\" \\n\\t\\\\\" # b\n"), (Lists{{"a", {"q # \"x\" \n\t\\"}}}));
  EXPECT_EQ(read("a: 'it''s: so'\nb: ''\n"), (Lists{{"a", {"it's: so"}}, {"b", {""}}}));
  EXPECT_EQ(read("a: [x, 'y, z' , \"]\"] # c\nb: []\n"), (Lists{{"a", {"x", "y, z", "]"}}, {"b", {}}}));
  EXPECT_EQ(read("a: # below\n- x\n\n  - 'y' # z\nb: 1\n"), (Lists{{"a", {"x", "y"}}, {"b", {"1"}}}));
  EXPECT_EQ(read("a: -1\n"), (Lists{{"a", {"-1"}}}));
}

TEST(ConfigFileTest, WhatElseYamlHasIsRefusedWithItsLine) {
  const std::pair<const char*, const char*> cases[] = {
      {"a\n", "line 1: a line is \"name: value\""},
      {"a:1\n", "line 1: a line is"},
      {"a: 1\n  b: 2\n", "line 2: settings do not nest"},
      {"a:\n  b: 2\n", "line 2: settings do not nest"},
      {"a: b: 2\n", "line 1: settings do not nest"},
      {"a:\n", "line 1: a has no value"},
      {"\na: 1\na: 2\n", "line 3: a is there twice"},
      {"- x\n", "line 1: an item of a list without a name"},
      {"a: 1\n- x\n", "line 2: an item of a list without a name"},
      {"a:\n- \n", "line 2: a value is missing"},
      {"a: |\n", "line 1: a value does not begin with |"},
      {"a: &b 1\n", "line 1: a value does not begin with &"},
      {"a: {b: 1}\n", "line 1: a value does not begin with {"},
      {"a: \"x\n", "line 1: a quote is not closed"},
      {"a: 'x\n", "line 1: a quote is not closed"},
      {"a: 'x' y\n", "line 1: something follows the value"},
      {"a: 'x'#y\n", "line 1: something follows the value"},
      {"a: \"\\u0041\"\n", "line 1: \\u is not known"},
      {"a: [x\n", "line 1: a list ends with ]"},
      {"a: [x, [y]]\n", "line 1: a value does not begin with ["},
      {"a: [x] y\n", "line 1: something follows the list"},
      {"a: [,]\n", "line 1: a value is missing"},
  };
  for (const auto& [text, message] : cases) {
    const Result<std::vector<ConfigEntry>> entries = parse_config(text);
    ASSERT_FALSE(entries.ok()) << text;
    EXPECT_NE(entries.error().message().find(message), std::string::npos) << text << ": " << entries.error().message();
  }
}

}  // namespace
}  // namespace lantern::cli
