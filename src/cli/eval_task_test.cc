#include "cli/eval_task.h"

#include <gtest/gtest.h>

#include <cmath>

#include "cli/json_writer.h"

namespace lantern::cli {
namespace {

std::string answer(const std::string& extract, const std::string& completion) {
  EvalItem item;
  item.extract = extract;
  const Result<std::string> got = extract_answer(item, completion);
  return got.ok() ? *got : "error: " + got.error().message();
}

TEST(EvalTaskTest, TheLastMatchOfGroupOneIsTheAnswer) {
  EXPECT_EQ(answer("#### (-?[0-9]+)", "3 + 4 = 7\n#### 7"), "7");
  EXPECT_EQ(answer("#### (-?[0-9]+)", "#### 1\n#### -27 apples"), "-27");
  EXPECT_EQ(answer("#### (-?[0-9]+)", "no answer"), "");
  EXPECT_EQ(answer("v[0-9]+", "v12 v34"), "v34");
  EXPECT_EQ(answer("Output: (.*)", "Output: a b \nnext"), "a b");
  EXPECT_EQ(answer("(x)|y", "x then y"), "");
  EXPECT_EQ(answer("", "  whole text\n"), "whole text");
  EXPECT_EQ(answer("(é*)", "aéé日"), "");
  EXPECT_EQ(answer("a*", "bbb"), "");
}

TEST(EvalTaskTest, AWrongExpressionIsAnError) {
  EXPECT_NE(answer("(", "x").find("is wrong at character 1"), std::string::npos);
  EXPECT_NE(answer("(a+)+$", std::string(40, 'a') + "b").find("could not be searched"), std::string::npos);
}

TEST(EvalTaskTest, ItemsAreReadAndWrongOnesRefused) {
  const Result<EvalItem> item = parse_eval_item(
      R"({"id": 7, "prompt": "Q", "answer": "A", "extract": "", "max_tokens": 9, "stop": ["\n"], "split": "x"})");
  ASSERT_TRUE(item.ok());
  EXPECT_EQ(item->id, "7");
  EXPECT_EQ(item->prompt, "Q");
  EXPECT_EQ(item->max_tokens, 9);
  EXPECT_EQ(item->stop, std::vector<std::string>{"\n"});
  const std::pair<const char*, const char*> cases[] = {
      {"{", "not JSON"},
      {"[]", "not a JSON object"},
      {R"({"answer": "A", "extract": "", "max_tokens": 9})", "\"prompt\" must be a string"},
      {R"({"prompt": "", "answer": "A", "extract": "", "max_tokens": 9})", "\"prompt\" must be at least one character"},
      {R"({"prompt": "Q", "answer": 3, "extract": "", "max_tokens": 9})", "\"answer\" must be a string"},
      {R"({"prompt": "Q", "answer": "A", "extract": "", "max_tokens": 0})", "\"max_tokens\" must be"},
      {R"({"prompt": "Q", "answer": "A", "extract": "", "max_tokens": 1, "stop": "x"})", "\"stop\" must be an array"},
  };
  for (const auto& [line, message] : cases) {
    const Result<EvalItem> wrong = parse_eval_item(line);
    ASSERT_FALSE(wrong.ok()) << line;
    EXPECT_NE(wrong.error().message().find(message), std::string::npos) << wrong.error().message();
  }
}

TEST(JsonWriterTest, TextIsEscapedAndNumbersReadBackEqual) {
  JsonWriter json;
  json.begin_object()
      .field("a\"b", std::string("line\nnul\x01 \\ é \xff"))
      .field("float", 0.1f)
      .field("double", 1.0 / 3)
      .field("none", std::nan(""))
      .field("yes", true)
      .key("list")
      .value(std::span<const int32_t>(std::vector<int32_t>{1, -2}));
  json.key("empty").begin_array().end_array().end_object();
  EXPECT_EQ(json.take(),
            "{\"a\\\"b\": \"line\\nnul\\u0001 \\\\ é \xef\xbf\xbd\", \"float\": 0.1, \"double\": 0.3333333333333333, "
            "\"none\": null, \"yes\": true, \"list\": [1, -2], \"empty\": []}");
}

}  // namespace
}  // namespace lantern::cli
