#include "text/output_parser.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <iterator>
#include <map>
#include <random>

#include "text/json.h"
#include "text/utf8.h"

namespace lantern {
namespace {

namespace json = boost::json;
using std::string_view_literals::operator""sv;

const std::vector<std::string> kTools = {
    R"({"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {
      "text": {"type": "string"}, "count": {"type": "integer"}, "maybe": {"type": ["string", "null"]},
      "which": {"enum": ["1", "2"]}, "either": {"anyOf": [{"type": "boolean"}, {"type": "string"}]}}}}})",
    R"({"name": "g"})"};

ParsedOutput run(ChatFormat format, std::string_view text, const OutputParserOptions& options,
                 const std::vector<size_t>& ends, OutputEnd end_of_output = OutputEnd::kTurn) {
  OutputParser parser(format, options);
  ParsedOutput parsed;
  std::vector<bool> named;
  const auto take = [&](const OutputDelta& delta) {
    EXPECT_TRUE(is_valid_utf8(delta.content) && is_valid_utf8(delta.reasoning));
    for (const ToolCallDelta& call : delta.tool_calls) {
      EXPECT_TRUE(is_valid_utf8(call.arguments));
      if (static_cast<size_t>(call.index) >= named.size()) named.resize(static_cast<size_t>(call.index) + 1);
      // The name comes once, with the first piece.
      EXPECT_EQ(call.name.empty(), static_cast<bool>(named[static_cast<size_t>(call.index)]));
      EXPECT_EQ(call.id.empty(), call.name.empty());
      named[static_cast<size_t>(call.index)] = true;
    }
    parsed.add(delta);
  };
  size_t begin = 0;
  for (const size_t end : ends) {
    take(parser.push(text.substr(begin, end - begin)));
    begin = end;
  }
  take(parser.push(text.substr(begin)));
  take(parser.finish(end_of_output));
  return parsed;
}

std::string shown(const ParsedOutput& parsed) {
  std::string out = "reasoning=[" + parsed.reasoning + "] content=[" + parsed.content + "]";
  for (const ChatToolCall& call : parsed.tool_calls) out += " " + call.name + "(" + call.arguments + ")#" + call.id;
  return out;
}

// All cuts in two, every byte by itself, and random cuts give what the whole text gives.
void expect_no_cut_matters(ChatFormat format, std::string_view text, const OutputParserOptions& options) {
  const std::string whole = shown(run(format, text, options, {}));
  for (size_t i = 0; i <= text.size(); ++i) ASSERT_EQ(shown(run(format, text, options, {i})), whole) << text << i;
  std::vector<size_t> every;
  for (size_t i = 1; i < text.size(); ++i) every.push_back(i);
  ASSERT_EQ(shown(run(format, text, options, every)), whole) << text;
  std::mt19937 random(7);
  for (int i = 0; i < 30; ++i) {
    std::vector<size_t> some;
    for (const size_t end : every) {
      if (random() % 4 == 0) some.push_back(end);
    }
    ASSERT_EQ(shown(run(format, text, options, some)), whole) << text;
  }
}

struct Case {
  ChatFormat format;
  const char* text;
  const char* expected;
  bool starts_thinking = false;
};

void expect_all(const std::vector<Case>& cases, const std::vector<std::string>& tools) {
  for (const Case& c : cases) {
    const OutputParserOptions options{.starts_thinking = c.starts_thinking, .tools = tools, .call_id_prefix = "c"};
    EXPECT_EQ(shown(parse_output(c.format, c.text, options)), c.expected) << c.text;
    expect_no_cut_matters(c.format, c.text, options);
  }
}

constexpr auto kV31 = ChatFormat::kDeepSeekV31;
constexpr auto kV32 = ChatFormat::kDeepSeekV32;
constexpr auto kGlm = ChatFormat::kGlm47;
constexpr auto kKimi = ChatFormat::kKimiK2Thinking;

TEST(OutputParser, TellsThinkingFromTheAnswer) {
  const std::vector<Case> cases = {
      {kV31, "because</think>\n\nanswer", "reasoning=[because] content=[\n\nanswer]", true},
      {kV31, "<think>because</think>answer", "reasoning=[because] content=[answer]"},
      {kV31, " \n<think>b</think>a", "reasoning=[b] content=[a]"},
      {kV31, "answer <think>no block</think>", "reasoning=[] content=[answer <think>no block</think>]"},
      {kV31, "a < b, </ think> </thin </think> c </think>",
       "reasoning=[a < b, </ think> </thin ] content=[ c </think>]", true},
      {kV31, "<<</think</think>x", "reasoning=[<<</think] content=[x]", true},
      {kV31, "never closed </thin", "reasoning=[never closed </thin] content=[]", true},
      {kV31, "<thi", "reasoning=[] content=[<thi]"},
      {kV31, "<thinker>", "reasoning=[] content=[<thinker>]"},
      {kV31, "  ", "reasoning=[] content=[  ]"},
      {kV31, "", "reasoning=[] content=[]", true},
      {kV31, "</think>", "reasoning=[] content=[]", true},
      {kGlm, "é</think>日本 👩‍👧", "reasoning=[é] content=[日本 👩‍👧]", true},
  };
  expect_all(cases, {});
  expect_all(cases, kTools);
}

TEST(OutputParser, GivesOutTextAsSoonAsItIsCertain) {
  OutputParser parser(kV31, {.starts_thinking = true});
  EXPECT_EQ(parser.push("abc").reasoning, "abc");
  EXPECT_EQ(parser.push("d</").reasoning, "d");
  EXPECT_EQ(parser.push("b>").reasoning, "</b>");
  EXPECT_TRUE(parser.thinking());
  EXPECT_EQ(parser.push("</think>e").content, "e");
  EXPECT_FALSE(parser.thinking());
  EXPECT_EQ(parser.push("</thi\n").content, "</thi\n");

  OutputParser calls(kGlm, {.tools = kTools});
  EXPECT_EQ(calls.push("Look: \n").content, "Look:");
  EXPECT_TRUE(calls.push("<tool_call>f").empty());
  EXPECT_EQ(calls.push("<arg_key>").tool_calls.at(0).name, "f");
  EXPECT_EQ(calls.push("text</arg_key><arg_value>one").tool_calls.at(0).arguments, "{\"text\": \"one");
  EXPECT_EQ(calls.push(" \"two").tool_calls.at(0).arguments, " \\\"two");
  EXPECT_FALSE(calls.complete());
  EXPECT_EQ(calls.push("</arg_value></tool_call>").tool_calls.at(0).arguments, "\"}");
  EXPECT_TRUE(calls.complete());
  EXPECT_EQ(calls.num_calls(), 1);
}

TEST(OutputParser, ReadsCallsWithJsonArguments) {
  expect_all(
      {
          {kV31,
           "Wait.\n\n<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"text\": \"<x>\"}<｜tool▁call▁end｜>"
           "<｜tool▁call▁begin｜>g<｜tool▁sep｜><｜tool▁call▁end｜><｜tool▁calls▁end｜>",
           "reasoning=[] content=[Wait.] f({\"text\": \"<x>\"})#c0 g({})#c1"},
          {kV31, "why</think>\n<｜tool▁call▁begin｜>f<｜tool▁sep｜> {}\n<｜tool▁call▁end｜>\n",
           "reasoning=[why] content=[] f({}\n)#c0", true},
          // A call that lacks its end.
          {kV31,
           "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"a\":1}<｜tool▁call▁begin｜>g<｜tool▁sep｜>{}"
           "<｜tool▁calls▁end｜> and so",
           "reasoning=[] content=[ and so] f({\"a\":1})#c0 g({})#c1"},
          {kV31, "<｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"a\": [1,", "reasoning=[] content=[] f({\"a\": [1,)#c0"},
          {ChatFormat::kDeepSeekR1,
           "b</think><｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"a\": \"```\"}\n"
           "```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
           "reasoning=[b] content=[] f({\"a\": \"```\"})#c0", true},
          {kKimi,
           "why<|tool_calls_section_begin|><|tool_call_begin|>functions.f:3<|tool_call_argument_begin|>{\"a\": 1}"
           "<|tool_call_end|><|tool_call_begin|> g <|tool_call_argument_begin|><|tool_call_end|>"
           "<|tool_calls_section_end|>",
           "reasoning=[why] content=[] f({\"a\": 1})#functions.f:3 g({})#functions.g:1", true},
          {kKimi, "<|tool_call_begin|>functions.a:b:0<|tool_call_argument_begin|>x<|tool_call_end|>",
           "reasoning=[] content=[] a:b(x)#functions.a:b:0"},
      },
      kTools);
}

TEST(OutputParser, ReadsCallsWithParameters) {
  expect_all(
      {
          {kV32,
           "Let me.\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"f\">\n"
           "<｜DSML｜parameter name=\"text\" string=\"true\">a \"b\"\n\\</｜DSML｜parameter>\n"
           "<｜DSML｜parameter name=\"count\" string=\"false\"> 1e400 </｜DSML｜parameter>\n</｜DSML｜invoke>\n"
           "<｜DSML｜invoke name=\"g\">\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
           "reasoning=[] content=[Let me.] f({\"text\": \"a \\\"b\\\"\\n\\\\\", \"count\": 1e400})#c0 g({})#c1"},
          // string="true" is taken at its word, string="false" only if it is JSON.
          {kV32,
           "<｜DSML｜invoke name=\"f\"><｜DSML｜parameter name=\"count\" string=\"true\">1</｜DSML｜parameter>"
           "<｜DSML｜parameter name=\"b\" string=\"false\">[1, x]</｜DSML｜parameter>"
           "<｜DSML｜parameter name=\"text\">2</｜DSML｜parameter>"
           "<｜DSML｜parameter name=\"c\">{\"d\": []}</｜DSML｜parameter></｜DSML｜invoke>",
           "reasoning=[] content=[] f({\"count\": \"1\", \"b\": \"[1, x]\", \"text\": \"2\", \"c\": {\"d\": []}})#c0"},
          {kGlm,
           "</think>ok\n<tool_call>f\n<arg_key>text</arg_key>\n<arg_value>1</arg_value>\n<arg_key>count</arg_key>\n"
           "<arg_value>2</arg_value>\n</tool_call>\n<tool_call>g</tool_call>\n",
           "reasoning=[] content=[ok] f({\"text\": \"1\", \"count\": 2})#c0 g({})#c1", true},
          // Types of the schema: a value that is none of them is a string.
          {kGlm,
           "<tool_call>f<arg_key>maybe</arg_key><arg_value>null</arg_value><arg_key>maybe</arg_key><arg_value>12"
           "</arg_value><arg_key>which</arg_key><arg_value>2</arg_value><arg_key>either</arg_key><arg_value>True"
           "</arg_value><arg_key>either</arg_key><arg_value>\"x\"</arg_value><arg_key>count</arg_key><arg_value>many"
           "</arg_value></tool_call>",
           "reasoning=[] content=[] f({\"maybe\": null, \"maybe\": \"12\", \"which\": \"2\", \"either\": true, "
           "\"either\": \"\\\"x\\\"\", \"count\": \"many\"})#c0"},
          // A tool or parameter that nobody declared.
          {kGlm,
           "<tool_call>h<arg_key>x</arg_key><arg_value>[1]</arg_value><arg_key>y</arg_key><arg_value>None</arg_value>"
           "<arg_key>z</arg_key><arg_value>plain  </arg_value></tool_call>",
           "reasoning=[] content=[] h({\"x\": [1], \"y\": null, \"z\": \"plain  \"})#c0"},
          // The text breaks off.
          {kGlm, "<tool_call>f<arg_key>text</arg_key><arg_value>abc</arg_va",
           "reasoning=[] content=[] f({\"text\": \"abc</arg_va)#c0"},
          {kGlm, "<tool_call>f<arg_key>count</arg_key><arg_value>[1, 2",
           "reasoning=[] content=[] f({\"count\": [1, 2)#c0"},
          {kGlm, "<tool_call>h<arg_key>x</arg_key><arg_value>abc", "reasoning=[] content=[] h({\"x\": \"abc)#c0"},
      },
      kTools);
}

TEST(OutputParser, LosesNoTextOfMalformedCalls) {
  expect_all(
      {
          {kGlm, "a <tool_call>{\"name\": \"f\"}</tool_call> b",
           "reasoning=[] content=[a <tool_call>{\"name\": \"f\"}</tool_call> b]"},
          {kGlm, "a\n\n<tool_call>f", "reasoning=[] content=[a\n\n<tool_call>f]"},
          {kGlm, "<tool_call>two words<arg_key>k</arg_key>",
           "reasoning=[] content=[<tool_call>two words<arg_key>k</arg_key>]"},
          {kGlm, "<tool_call>x <tool_call>g</tool_call>", "reasoning=[] content=[<tool_call>x ] g({})#c0"},
          {kGlm, "<tool_call>g<arg_key>k</arg_key></tool_call>",
           "reasoning=[] content=[<arg_key>k</arg_key>] g({})#c0"},
          {kGlm, "<tool_call>g<arg_key>k</arg_key> lost <arg_value>1</arg_value></tool_call>",
           "reasoning=[] content=[<arg_key>k</arg_key>lost <arg_value>1</arg_value>] g({})#c0"},
          {kGlm, "<tool_call>g<arg_key>k", "reasoning=[] content=[<arg_key>k] g()#c0"},
          {kV31, "x <｜tool▁calls▁begin｜> \n<｜tool▁calls▁end｜>",
           "reasoning=[] content=[x <｜tool▁calls▁begin｜> \n<｜tool▁calls▁end｜>]"},
          {kV31, "<｜tool▁calls▁begin｜> oh <｜tool▁call▁begin｜>f<｜tool▁sep｜>1<｜tool▁call▁end｜>!",
           "reasoning=[] content=[<｜tool▁calls▁begin｜> oh!] f(1)#c0"},
          {kV31, "<｜tool▁call▁begin｜>f<｜tool▁call▁end｜>",
           "reasoning=[] content=[<｜tool▁call▁begin｜>f<｜tool▁call▁end｜>]"},
          {kV32, "<｜DSML｜invoke name=\"f\">oops <｜DSML｜parameter name=\"a\" string=\"true\">b</｜DSML｜parameter>",
           "reasoning=[] content=[oops ] f({\"a\": \"b\")#c0"},
          {kKimi, "<|tool_calls_section_begin|><|tool_call_begin|>f",
           "reasoning=[] content=["
           "<|tool_calls_section_begin|><|tool_call_begin|>f]"},
      },
      kTools);
}

// A limit of tokens cuts an answer with two calls after any character. No markup is content or arguments then, and of
// the calls there is what has come.
TEST(OutputParser, CutOffItLeaksNoMarkup) {
  struct Answer {
    ChatFormat format;
    std::string text;
    bool starts_thinking = false;
  };
  const std::vector<Answer> answers = {
      {ChatFormat::kDeepSeekV3,
       "Look.\n<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"text\": \"a b\"}\n```"
       "<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>g\n```json\n{\"n\": [1, 2]}\n```"
       "<｜tool▁call▁end｜><｜tool▁calls▁end｜>"},
      {kV31,
       "Look.\n\n<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"text\": \"a b\"}<｜tool▁call▁end｜>"
       "<｜tool▁call▁begin｜>g<｜tool▁sep｜>{\"n\": [1, 2]}<｜tool▁call▁end｜><｜tool▁calls▁end｜>"},
      {kV32,
       "Why</think>Look.\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"f\">\n"
       "<｜DSML｜parameter name=\"text\" string=\"true\">a b</｜DSML｜parameter>\n"
       "<｜DSML｜parameter name=\"count\" string=\"false\">12</｜DSML｜parameter>\n</｜DSML｜invoke>\n"
       "<｜DSML｜invoke name=\"g\">\n<｜DSML｜parameter name=\"n\" string=\"false\">[1, 2]</｜DSML｜parameter>\n"
       "</｜DSML｜invoke>\n</｜DSML｜function_calls>",
       true},
      {kGlm,
       "Why</think>Look.\n<tool_call>f\n<arg_key>text</arg_key>\n<arg_value>a b</arg_value>\n<arg_key>count</arg_key>\n"
       "<arg_value>12</arg_value>\n</tool_call>\n<tool_call>g<arg_key>n</arg_key><arg_value>[1, 2]</arg_value>"
       "</tool_call>",
       true},
      {kGlm, "<tool_call>f<arg_key>text</arg_key><arg_value>a b</arg_value></tool_call>"},
      {kKimi,
       "Why<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{\"text\": \"a b\"}"
       "<|tool_call_end|><|tool_call_begin|>functions.g:1<|tool_call_argument_begin|>{\"n\": [1, 2]}<|tool_call_end|>"
       "<|tool_calls_section_end|>",
       true},
  };
  for (const Answer& answer : answers) {
    const OutputParserOptions options{
        .starts_thinking = answer.starts_thinking, .tools = kTools, .call_id_prefix = "c"};
    const ParsedOutput whole = parse_output(answer.format, answer.text, options);
    const bool says_look = answer.text.find("Look.") != std::string::npos;
    EXPECT_EQ(whole.content, says_look ? "Look." : "");
    for (size_t size = 0; size <= answer.text.size(); ++size) {
      const std::string_view text = std::string_view(answer.text).substr(0, size);
      if (!is_valid_utf8(text)) continue;
      const ParsedOutput cut = parse_output(answer.format, text, options, OutputEnd::kCut);
      std::vector<size_t> every;
      for (size_t i = 1; i < size; ++i) every.push_back(i);
      ASSERT_EQ(shown(run(answer.format, text, options, every, OutputEnd::kCut)), shown(cut)) << text;
      // White space that calls would have swallowed is an answer's own where none have come.
      EXPECT_TRUE(whole.content.starts_with(cut.content) || cut.content == "Look.\n" || cut.content == "Look.\n\n")
          << text << "\n"
          << shown(cut);
      // "<" alone may as well be that of "</think>".
      EXPECT_TRUE(whole.reasoning.starts_with(cut.reasoning) || cut.reasoning == "Why<" ||
                  "Why</think>"sv.starts_with(cut.reasoning))
          << shown(cut);
      ASSERT_LE(cut.tool_calls.size(), whole.tool_calls.size());
      for (size_t i = 0; i < cut.tool_calls.size(); ++i) {
        const ChatToolCall& call = cut.tool_calls[i];
        EXPECT_EQ(call.name, whole.tool_calls[i].name);
        const bool is_last = i + 1 == cut.tool_calls.size();
        EXPECT_TRUE(is_last ? whole.tool_calls[i].arguments.starts_with(call.arguments)
                            : call.arguments == whole.tool_calls[i].arguments)
            << text << "\n"
            << shown(cut);
      }
    }
  }
  // Without tools, and of thinking's end, there is no markup to leak.
  EXPECT_EQ(parse_output(kGlm, "a <tool", {}, OutputEnd::kCut).content, "a <tool");
  EXPECT_EQ(parse_output(kGlm, "a </thi", {.starts_thinking = true, .tools = kTools}, OutputEnd::kCut).reasoning,
            "a </thi");
  EXPECT_EQ(parse_output(kGlm, "a < b", {.tools = kTools}, OutputEnd::kCut).content, "a < b");
}

TEST(OutputParser, WithoutToolsTagsAreText) {
  for (const char* text : {"<tool_call>f</tool_call>", " \n \n<｜tool▁call▁begin｜>f<｜tool▁sep｜>"}) {
    for (const ChatFormat format : {kGlm, kV31}) EXPECT_EQ(parse_output(format, text).content, text);
  }
  // Formats without calls.
  EXPECT_EQ(parse_output(ChatFormat::kMoonlight, "<tool_call>f</tool_call>", {.tools = kTools}).content,
            "<tool_call>f</tool_call>");
}

TEST(OutputParser, LimitsDoNotDependOnCuts) {
  const std::string name(600, 'n');
  const OutputParserOptions options{.tools = kTools, .call_id_prefix = "c"};
  for (const std::string& text :
       {fmt::format("<tool_call>{}<tool_call>g</tool_call>", name),
        fmt::format("<tool_call>{:n>501}<tool_call>g</tool_call>", ""),
        fmt::format("<tool_call>{:n>502}<tool_call>g</tool_call>", ""),
        fmt::format("<tool_call>{:n>501}</tool_call>", ""), fmt::format("<tool_call>{:n>502}</tool_call>", ""),
        fmt::format("<tool_call>{}<arg_key>", name),
        fmt::format("<tool_call>g<arg_key>{}</arg_key><arg_value>v</arg_value>", name), fmt::format("{:64}<think>", ""),
        fmt::format("{:65}<think>", ""), fmt::format("a{:\n>40}<tool_call>g</tool_call>", "")}) {
    expect_no_cut_matters(kGlm, text, options);
  }
  EXPECT_EQ(shown(parse_output(kGlm, fmt::format("<tool_call>{}<tool_call>g</tool_call>", name), options)),
            fmt::format("reasoning=[] content=[<tool_call>{}] g({{}})#c0", name));

  // 512 bytes with the tag.
  EXPECT_EQ(parse_output(kGlm, fmt::format("<tool_call>{:n>501}</tool_call>", ""), options).tool_calls.size(), 1u);
  EXPECT_EQ(parse_output(kGlm, fmt::format("<tool_call>{:n>502}</tool_call>", ""), options).tool_calls.size(), 0u);

  // A value that is too long to hold back.
  const auto list = [](size_t spaces) { return fmt::format("[{}1]", std::string(spaces, ' ')); };
  const auto call = [](std::string_view value) {
    return fmt::format("<tool_call>g<arg_key>k</arg_key><arg_value>{}</arg_value></tool_call>", value);
  };
  const std::string fits = list(OutputParser::kMaxHeldValue - 3), too_long = list(OutputParser::kMaxHeldValue - 2);
  EXPECT_EQ(parse_output(kGlm, call(fits), options).tool_calls.at(0).arguments, fmt::format("{{\"k\": {}}}", fits));
  const std::string as_text = fmt::format("{{\"k\": \"{}\"}}", too_long);
  EXPECT_EQ(parse_output(kGlm, call(too_long), options).tool_calls.at(0).arguments, as_text);
  EXPECT_EQ(run(kGlm, call(too_long), options, {100, too_long.size()}).tool_calls.at(0).arguments, as_text);
}

TEST(OutputParser, DamagedUtf8BecomesReplacementCharacters) {
  const std::string text = "a\xF0\x9F\x98</think>\xE6\x97<tool_call>g<arg_key>\xFF</arg_key><arg_value>\xC3";
  const OutputParserOptions options{.starts_thinking = true, .tools = kTools, .call_id_prefix = "c"};
  EXPECT_EQ(shown(parse_output(kGlm, text, options)),
            "reasoning=[a\uFFFD] content=[\uFFFD] g({\"\uFFFD\": \"\uFFFD)#c0");
  expect_no_cut_matters(kGlm, text, options);
}

// A quadratic search would take minutes here.
TEST(OutputParser, TakesLinearTime) {
  const std::string parts[] = {"<",
                               "<tool_cal",
                               "<tool_call>",
                               "<arg_key>",
                               " ",
                               "\n",
                               "</arg_value",
                               "<tool_call>g<arg_key>",
                               "<tool_call>f<arg_key>text</arg_key><arg_value>",
                               "<｜tool▁call▁begin",
                               "<｜DSML｜parameter name=\""};
  for (const std::string& part : parts) {
    std::string text;
    while (text.size() < (size_t{1} << 18)) text += part;
    for (const ChatFormat format : {kGlm, kV31, kV32, kKimi}) {
      const auto begin = std::chrono::steady_clock::now();
      OutputParser parser(format, {.tools = kTools});
      for (size_t i = 0; i < text.size() / 2; i += 3) parser.push(std::string_view(text).substr(i, 3));
      parser.push(std::string_view(text).substr(text.size() / 2));
      parser.finish();
      EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5)) << part;
    }
  }
}

// What the published chat templates make of calls is read back: tests/text/chat/expected.json was made by them.
class Turns {
 public:
  explicit Turns(ChatFormat format) {
    const std::string_view name = to_string(format);
    if (name.starts_with("deepseek")) {
      begins_ = {"<｜Assistant｜>", "<｜tool▁outputs▁end｜>", "<｜tool▁output▁end｜>",
                 "</result>\n</function_results>\n\n"};
      ends_ = {"<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>", "<｜tool▁output"};
    } else if (name.starts_with("glm")) {
      begins_ = {"<|assistant|>"};
      ends_ = {"<|observation|>", "<|user|>", "<|assistant|>"};
    } else {
      begins_ = {"<|im_assistant|>assistant<|im_middle|>"};
      ends_ = {"<|im_end|>"};
    }
  }

  std::vector<std::string> of(const std::string& text) const {
    std::vector<std::string> turns;
    for (size_t at = 0; at < text.size(); ++at) {
      for (const std::string& begin : begins_) {
        if (text.compare(at, begin.size(), begin) != 0) continue;
        size_t end = text.size();
        for (const std::string& mark : ends_) end = std::min(end, text.find(mark, at + begin.size()));
        turns.push_back(text.substr(at + begin.size(), end - at - begin.size()));
      }
    }
    return turns;
  }

 private:
  std::vector<std::string> begins_, ends_;
};

json::value read_json(const std::string& name) {
  std::ifstream in(LANTERN_SOURCE_DIR "/tests/text/chat/" + name, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  auto document = parse_json(text);
  EXPECT_TRUE(document.ok()) << name;
  return document.ok() ? *document : json::value();
}

json::value value_of(std::string_view text) {
  auto parsed = parse_json(text);
  EXPECT_TRUE(parsed.ok()) << text;
  return parsed.ok() ? *parsed : json::value();
}

TEST(OutputParser, ReadsBackWhatPublishedTemplatesWrite) {
  const json::value conversations = read_json("conversations.json");
  const json::value expected = read_json("expected.json");
  std::map<std::string, int> calls_by_format;
  for (const json::value& item : expected.at("cases").as_array()) {
    const json::object& made = item.as_object();
    if (!made.contains("text")) continue;
    const std::string name(made.at("conversation").as_string());
    const json::object& conversation = conversations.at(name).as_object();
    std::vector<const json::object*> calls;
    for (const json::value& message : conversation.at("messages").as_array()) {
      if (const json::value* list = message.as_object().if_contains("tool_calls")) {
        for (const json::value& call : list->as_array()) calls.push_back(&call.as_object());
      }
    }
    if (calls.empty()) continue;
    OutputParserOptions options{.tools = {R"({"name": "h"})"}};
    if (const json::value* tools = conversation.if_contains("tools")) {
      for (const json::value& tool : tools->as_array()) options.tools.push_back(json::serialize(tool));
    }
    const auto format = parse_chat_format(std::string_view(made.at("format").as_string()));
    ASSERT_TRUE(format.ok());
    const std::string text(made.at("text").as_string());
    size_t read = 0;
    for (const std::string& turn : Turns(*format).of(text)) {
      options.starts_thinking = !turn.starts_with("<think>") && turn.find("</think>") != std::string::npos;
      const ParsedOutput parsed = parse_output(*format, turn, options);
      expect_no_cut_matters(*format, turn, options);
      EXPECT_EQ(parsed.content.find('<'), std::string::npos) << parsed.content;
      for (const ChatToolCall& call : parsed.tool_calls) {
        ASSERT_LT(read, calls.size()) << text;
        const json::object& of = *calls[read++];
        EXPECT_EQ(call.name, of.at("name").as_string()) << text;
        EXPECT_EQ(value_of(call.arguments), value_of(of.at("arguments").as_string())) << text;
        if (to_string(*format).starts_with("kimi")) {
          EXPECT_EQ(call.id, of.at("id").as_string());
        }
        ++calls_by_format[std::string(to_string(*format))];
      }
    }
    EXPECT_EQ(read, calls.size()) << to_string(*format) << ": " << text;
  }
  for (const char* name : {"deepseek_v3_0324", "deepseek_r1", "deepseek_v31", "deepseek_v32", "glm45", "glm47", "glm52",
                           "kimi_k2", "kimi_k2_thinking"})
    EXPECT_GE(calls_by_format[name], 5) << name;
}

}  // namespace
}  // namespace lantern
