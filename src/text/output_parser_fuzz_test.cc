// Damaged and random output of every format: no cut of the text may matter, and no text may be lost. The seeds are in
// tests/text/parser_corpus; an input that broke the parser belongs there.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "text/json.h"
#include "text/output_parser.h"
#include "text/tool_syntax.h"
#include "text/utf8.h"

namespace lantern {
namespace {

const std::vector<std::string> kTools = {
    R"({"name": "get_weather", "parameters": {"properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}})",
    R"({"name": "f"})"};

constexpr ChatFormat kFormats[] = {ChatFormat::kDeepSeekV2,     ChatFormat::kDeepSeekV3,  ChatFormat::kDeepSeekR1,
                                   ChatFormat::kDeepSeekV31,    ChatFormat::kDeepSeekV32, ChatFormat::kGlm45,
                                   ChatFormat::kGlm47,          ChatFormat::kGlm52,       ChatFormat::kKimiK2,
                                   ChatFormat::kKimiK2Thinking, ChatFormat::kMoonlight};

class Random {
 public:
  explicit Random(uint32_t seed) : engine_(seed) {}
  size_t below(size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(engine_); }

 private:
  std::mt19937 engine_;
};

std::vector<std::string> seeds() {
  std::vector<std::string> all;
  for (const auto& entry : std::filesystem::directory_iterator(LANTERN_SOURCE_DIR "/tests/text/parser_corpus")) {
    std::ifstream in(entry.path(), std::ios::binary);
    all.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  }
  return all;
}

std::vector<std::string> tags_of(ChatFormat format) {
  std::vector<std::string> tags = {"<think>", "</think>"};
  const ToolSyntax* s = tool_syntax(format);
  if (s == nullptr) return tags;
  for (const std::string_view tag :
       {s->section_begin, s->section_end, s->call_begin, s->call_end, s->other_call_end, s->name_end, s->name_after,
        s->key_begin, s->key_end, s->value_begin, s->key_end_text, s->key_end_json, s->key_end_untyped, s->value_end}) {
    if (!tag.empty()) tags.emplace_back(tag);
  }
  return tags;
}

std::string all_of(const ParsedOutput& parsed) {
  std::string out = parsed.reasoning + "\x01" + parsed.content;
  for (const ChatToolCall& call : parsed.tool_calls)
    out += "\x01" + call.id + "\x02" + call.name + "\x02" + call.arguments;
  return out;
}

// In parts of random sizes, those of one byte among them.
ParsedOutput in_parts(ChatFormat format, std::string_view text, const OutputParserOptions& options, size_t most,
                      Random& random, bool& complete) {
  OutputParser parser(format, options);
  ParsedOutput parsed;
  const auto take = [&](const OutputDelta& delta) {
    ASSERT_TRUE(is_valid_utf8(delta.content) && is_valid_utf8(delta.reasoning));
    for (const ToolCallDelta& call : delta.tool_calls) ASSERT_TRUE(is_valid_utf8(call.arguments));
    parsed.add(delta);
  };
  while (!text.empty()) {
    const size_t size = std::min(text.size(), 1 + random.below(most));
    take(parser.push(text.substr(0, size)));
    text.remove_prefix(size);
  }
  take(parser.finish());
  complete = parser.complete();
  return parsed;
}

void check(ChatFormat format, std::string_view text, Random& random) {
  const OutputParserOptions options{.starts_thinking = random.below(2) == 0,
                                    .tools = random.below(8) == 0 ? std::vector<std::string>() : kTools};
  const ParsedOutput whole = parse_output(format, text, options);
  bool complete = false;
  for (const size_t most : {size_t{1}, size_t{3}, size_t{20}}) {
    ASSERT_EQ(all_of(in_parts(format, text, options, most, random, complete)), all_of(whole))
        << to_string(format) << ": " << text;
  }
  // From parameters JSON is made; all calls but one that broke off are whole.
  const ToolSyntax* syntax = tool_syntax(format);
  if (syntax == nullptr || syntax->key_begin.empty()) return;
  for (size_t i = 0; i < whole.tool_calls.size(); ++i) {
    if (i + 1 == whole.tool_calls.size() && !complete) continue;
    ASSERT_TRUE(parse_json(whole.tool_calls[i].arguments, 80).ok()) << whole.tool_calls[i].arguments << "\n" << text;
  }
}

TEST(OutputParserFuzz, SeedsAndDamagedSeeds) {
  Random random(1);
  const std::vector<std::string> all = seeds();
  ASSERT_GE(all.size(), 6u);
  for (const std::string& seed : all) {
    for (const ChatFormat format : kFormats) {
      check(format, seed, random);
      const std::vector<std::string> tags = tags_of(format);
      for (int i = 0; i < 60; ++i) {
        std::string text = seed;
        for (size_t damage = 0; damage <= random.below(3) && !text.empty(); ++damage) {
          const size_t at = random.below(text.size()), size = random.below(std::min<size_t>(text.size() - at, 60) + 1);
          switch (random.below(5)) {
            case 0: text[at] = static_cast<char>(random.below(256)); break;
            case 1: text.erase(at, size); break;
            case 2: text.insert(random.below(text.size()), text.substr(at, size)); break;
            case 3: text.insert(at, tags[random.below(tags.size())]); break;
            default: text.resize(at);
          }
        }
        check(format, text, random);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Words between tags in any order: each comes out somewhere (V3 and R1 drop a call's type).
TEST(OutputParserFuzz, LosesNoWord) {
  Random random(2);
  for (int i = 0; i < 4000; ++i) {
    const ChatFormat format = kFormats[random.below(std::size(kFormats))];
    const std::vector<std::string> tags = tags_of(format);
    std::string text;
    std::vector<std::string> words;
    for (size_t n = random.below(14); n > 0; --n) {
      switch (random.below(4)) {
        case 0: text += " "; break;
        case 1:
          // Kimi's names are split at ':', and what stands before the separator of V3's is dropped: plain words do.
          words.push_back(fmt::format("w{}z", 100 + words.size()));
          text += words.back();
          break;
        default: text += tags[random.below(tags.size())];
      }
    }
    const OutputParserOptions options{.starts_thinking = random.below(2) == 0, .tools = kTools};
    const ParsedOutput parsed = parse_output(format, text, options);
    const std::string out = all_of(parsed);
    const ToolSyntax* syntax = tool_syntax(format);
    const bool drops_type = syntax != nullptr && !syntax->name_after.empty();
    for (const std::string& word : words) {
      ASSERT_TRUE(drops_type || out.find(word) != std::string::npos) << to_string(format) << ": " << text << "\n"
                                                                     << out;
    }
    check(format, text, random);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace lantern
