// Grammars against what is known of their languages without them: masks token by token, and whole answers of the
// shipped model.
#include "server/grammar.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json.hpp>
#include <chrono>
#include <functional>
#include <random>

#include "engine/load_engine.h"
#include "text/output_parser.h"
#include "text/utf8.h"

namespace lantern {
namespace {

namespace json = boost::json;
using Kind = OutputForm::Kind;

const Tokenizer& tokenizer() {
  static const Tokenizer tokenizer = Tokenizer::load(LANTERN_SOURCE_DIR "/models/tiny").value();
  return tokenizer;
}
constexpr int32_t kVocab = 2048;
constexpr int32_t kEnd = 1;

GrammarCompiler& compiler() {
  static GrammarCompiler compiler(tokenizer(), kVocab, {kEnd});
  return compiler;
}

using Mask = std::vector<uint32_t>;
bool allows(const Mask& mask, int32_t id) { return (mask[static_cast<size_t>(id) / 32] >> (id % 32) & 1) != 0; }

class GrammarTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!have_grammars()) GTEST_SKIP() << "this build has no xgrammar: structured output is not tested";
  }
};

std::shared_ptr<const Grammar> compiled(const OutputForm& form) {
  Result<std::shared_ptr<const Grammar>> grammar = compiler().compile(form);
  EXPECT_TRUE(grammar.ok()) << grammar.error().message();
  return grammar.ok() ? *grammar : nullptr;
}

// A way through a grammar by random allowed tokens; `look` sees every mask and the text before it. The end is taken
// where it is allowed, one time in `patience`. Empty where `most` tokens did not suffice.
std::string walk(const OutputForm& form, uint32_t seed, int most, uint32_t patience,
                 const std::function<void(const std::string&, const Mask&)>& look = {}) {
  const auto grammar = compiled(form);
  if (grammar == nullptr) return {};
  const auto matcher = std::move(grammar->start()).value();
  std::mt19937 random(seed);
  std::string text;
  for (int i = 0; i < most; ++i) {
    Mask mask(kVocab / 32, 0);
    EXPECT_TRUE(matcher->fill(mask).ok());
    if (look) look(text, mask);
    std::vector<int32_t> allowed;
    for (int32_t id = 0; id < kVocab; ++id) {
      if (allows(mask, id) && id != kEnd) allowed.push_back(id);
    }
    if (allows(mask, kEnd) && (allowed.empty() || random() % patience == 0)) {
      EXPECT_TRUE(*matcher->accept(kEnd));
      EXPECT_TRUE(matcher->ended());
      return text;
    }
    if (allowed.empty()) {
      ADD_FAILURE() << "nothing may follow: " << text;
      return {};
    }
    const int32_t next = allowed[random() % allowed.size()];
    EXPECT_TRUE(*matcher->accept(next));
    text += tokenizer().token_bytes(next);
  }
  return {};
}

// A language by its prefixes.
struct Language {
  std::function<bool(std::string_view)> begins, holds;
};

void expect_masks_are_exact(const OutputForm& form, const Language& language, int walks, int most) {
  int64_t compared = 0;
  for (int seed = 0; seed < walks; ++seed) {
    walk(form, static_cast<uint32_t>(seed), most, 3, [&](const std::string& text, const Mask& mask) {
      for (int32_t id = 0; id < kVocab; ++id) {
        const std::string_view bytes = tokenizer().token_bytes(id);
        const bool added = tokenizer().is_added(id);
        const bool expected =
            id == kEnd ? language.holds(text) : !added && !bytes.empty() && language.begins(text + std::string(bytes));
        ASSERT_EQ(allows(mask, id), expected) << "after [" << text << "]: [" << bytes << "]";
        ++compared;
      }
    });
    if (::testing::Test::HasFatalFailure()) return;
  }
  EXPECT_GT(compared, 2 * kVocab);
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

TEST_F(GrammarTest, MasksOfAChoiceAreExact) {
  const std::vector<std::string> list = {"yes", "yesterday", "no", "\"quoted\" \\ \n line", "né"};
  expect_masks_are_exact({.kind = Kind::kChoice, .choices = list},
                         {[&](std::string_view text) {
                            return std::ranges::any_of(list, [&](const auto& item) { return item.starts_with(text); });
                          },
                          [&](std::string_view text) { return std::ranges::find(list, text) != list.end(); }},
                         12, 30);
}

// [0-9]{2,4}(-[a-c]+)?
TEST_F(GrammarTest, MasksOfARegexAreExact) {
  const auto state = [](std::string_view text) {  // -1: no beginning, 0: a beginning, 1: whole
    size_t digits = 0;
    while (digits < text.size() && digits < 4 && is_digit(text[digits])) ++digits;
    if (digits == text.size()) return digits >= 2 ? 1 : 0;
    if (digits < 2 || text[digits] != '-') return -1;
    const std::string_view rest = text.substr(digits + 1);
    return !std::ranges::all_of(rest, [](char c) { return c >= 'a' && c <= 'c'; }) ? -1 : rest.empty() ? 0 : 1;
  };
  expect_masks_are_exact({.kind = Kind::kRegex, .text = "[0-9]{2,4}(-[a-c]+)?"},
                         {[&](std::string_view text) { return state(text) >= 0; },
                          [&](std::string_view text) { return state(text) == 1; }},
                         12, 20);
}

// Balanced parentheses: no finite automaton has them.
TEST_F(GrammarTest, MasksOfAnEbnfAreExact) {
  const auto depth = [](std::string_view text) {
    int open = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      open += text[i] == '(' ? 1 : text[i] == ')' ? -1 : -1000;
      if (open < 0 || (open == 0 && i + 1 < text.size())) return -1;
    }
    return open;
  };
  expect_masks_are_exact({.kind = Kind::kGrammar, .text = "root ::= \"(\" root* \")\""},
                         {[&](std::string_view text) { return depth(text) >= 0; },
                          [&](std::string_view text) { return !text.empty() && depth(text) == 0; }},
                         12, 20);
}

// Against Boost's parser: allowed is what is the beginning of a JSON object, but for tabs and long white space.
TEST_F(GrammarTest, MasksOfAJsonObjectAreThoseOfAJsonParser) {
  const auto state = [](std::string_view text) {
    if (text.empty()) return 0;
    if (text[0] != '{' || !is_valid_utf8(text.substr(0, text.size() - incomplete_utf8_tail(text)))) return -1;
    json::stream_parser parser;
    json::error_code error;
    const size_t read = parser.write_some(text.data(), text.size(), error);
    if (error) return -1;
    if (!parser.done()) return read == text.size() ? 0 : -1;
    return read == text.size() && text.back() == '}' ? 1 : -1;
  };
  int64_t compared = 0, allowed = 0;
  for (uint32_t seed = 0; seed < 8; ++seed) {
    walk({.kind = Kind::kJsonObject}, seed, 40, 2, [&](const std::string& text, const Mask& mask) {
      // The grammar takes any \u, the parser only whole pairs of surrogates.
      if (text.find("\\u") != std::string::npos) return;
      for (int32_t id = 3; id < kVocab; ++id) {
        const std::string_view bytes = tokenizer().token_bytes(id);
        if (bytes.empty() || tokenizer().is_added(id) || bytes.find_first_of("u\t") != std::string::npos) continue;
        ASSERT_EQ(allows(mask, id), state(text + std::string(bytes)) >= 0)
            << "after [" << text << "]: [" << bytes << "]";
        ++compared;
        allowed += allows(mask, id) ? 1 : 0;
      }
      ASSERT_EQ(allows(mask, kEnd), state(text) == 1) << text;
    });
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(compared, 50 * kVocab);
  EXPECT_GT(allowed, 1000);
}

const char* const kSchema = R"({"type": "object", "properties": {"name": {"enum": ["ann", "bob"]},
  "count": {"type": "integer", "minimum": 0, "maximum": 99},
  "tags": {"type": "array", "items": {"type": "boolean"}, "maxItems": 2}, "note": {"type": "string", "maxLength": 5}},
  "required": ["name", "count", "tags"], "additionalProperties": false})";

// By hand, from the schema.
bool matches_schema(const std::string& text) {
  json::error_code failure;
  const json::value value = json::parse(text, failure);
  if (failure || !value.is_object()) return false;
  const json::object& object = value.get_object();
  for (const auto& [key, of_key] : object) {
    if (key != "name" && key != "count" && key != "tags" && key != "note") return false;
  }
  const json::value *name = object.if_contains("name"), *count = object.if_contains("count"),
                    *tags = object.if_contains("tags"), *note = object.if_contains("note");
  if (name == nullptr || count == nullptr || tags == nullptr) return false;
  if (*name != "ann" && *name != "bob") return false;
  if (!count->is_int64() || count->get_int64() < 0 || count->get_int64() > 99) return false;
  if (!tags->is_array() || tags->get_array().size() > 2) return false;
  if (!std::ranges::all_of(tags->get_array(), [](const json::value& tag) { return tag.is_bool(); })) return false;
  if (note == nullptr) return true;
  if (!note->is_string()) return false;
  const std::string_view characters(note->get_string());
  return std::ranges::count_if(characters, [](char c) { return (c & 0xC0) != 0x80; }) <= 5;
}

TEST_F(GrammarTest, WalksThroughASchemaMatchIt) {
  int whole = 0;
  for (uint32_t seed = 0; seed < 60; ++seed) {
    const std::string text = walk({.kind = Kind::kJsonSchema, .text = kSchema}, seed, 300, 1);
    if (text.empty()) continue;
    EXPECT_TRUE(matches_schema(text)) << text;
    ++whole;
  }
  EXPECT_GT(whole, 40);
}

const std::vector<std::string> kTools = {
    R"({"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {
      "a": {"type": "integer", "minimum": 0, "maximum": 9}, "unit": {"type": "string", "enum": ["m", "km"]}},
      "required": ["a", "unit"], "additionalProperties": false}}})",
    R"({"type": "function", "function": {"name": "now"}})"};

std::string_view strip(std::string_view text) {
  const size_t begin = std::min(text.find_first_not_of(" \t\r\n"), text.size());
  return text.substr(begin, text.find_last_not_of(" \t\r\n") + 1 - begin);
}

// Forced calls, walked at random, are calls to the parser of each format.
TEST_F(GrammarTest, ForcedCallsAreReadBack) {
  for (const ChatFormat format : {ChatFormat::kDeepSeekV3, ChatFormat::kDeepSeekV31, ChatFormat::kDeepSeekV32,
                                  ChatFormat::kGlm45, ChatFormat::kGlm47, ChatFormat::kGlm52, ChatFormat::kKimiK2}) {
    int calls = 0, several = 0;
    for (const bool may_be_several : {false, true}) {
      for (uint32_t seed = 0; seed < 12; ++seed) {
        const OutputForm form{.kind = Kind::kToolCalls,
                              .format = format,
                              .tools = may_be_several ? kTools : std::vector<std::string>{kTools[0]},
                              .several_calls = may_be_several};
        const std::string text = walk(form, seed, 400, 2);
        if (text.empty()) continue;
        const ParsedOutput parsed = parse_output(format, text, {.tools = kTools});
        EXPECT_EQ(parsed.content, "") << text;
        ASSERT_GE(parsed.tool_calls.size(), 1u) << to_string(format) << ": " << text;
        if (!may_be_several) {
          EXPECT_EQ(parsed.tool_calls.size(), 1u) << text;
        }
        several += parsed.tool_calls.size() > 1 ? 1 : 0;
        for (const ChatToolCall& call : parsed.tool_calls) {
          ++calls;
          json::error_code failure;
          const json::value arguments = json::parse(call.arguments, failure);
          ASSERT_FALSE(failure) << to_string(format) << ": " << text << "\n" << call.arguments;
          if (call.name == "now") continue;
          ASSERT_EQ(call.name, "add") << text;
          EXPECT_TRUE(arguments.at("a").is_int64()) << call.arguments;
          const std::string_view unit = strip(arguments.at("unit").as_string());  // GLM may write white space around it
          EXPECT_TRUE(unit == "m" || unit == "km") << call.arguments;
        }
      }
    }
    EXPECT_GE(calls, 12) << to_string(format);
    EXPECT_GE(several, 1) << to_string(format);
  }
}

struct Refused {
  OutputForm form;
  ErrorCode code;
  const char* part;  // of the sentence
};

TEST_F(GrammarTest, BadFormsAreOneSentence) {
  const auto schema = [](std::string text) { return OutputForm{.kind = Kind::kJsonSchema, .text = std::move(text)}; };
  const auto regex = [](std::string text) { return OutputForm{.kind = Kind::kRegex, .text = std::move(text)}; };
  const auto ebnf = [](std::string text) { return OutputForm{.kind = Kind::kGrammar, .text = std::move(text)}; };
  std::string deep;
  for (int i = 0; i < 40; ++i) deep += R"({"items":)";
  constexpr auto kInvalid = ErrorCode::kInvalidArgument;
  constexpr auto kUnsupported = ErrorCode::kUnsupported;
  const std::vector<Refused> all = {
      {schema("{"), kInvalid, "not JSON"},
      {schema("[]"), kInvalid, "no schema"},
      {schema(R"({"type": "strin"})"), kInvalid, "JSON schema"},
      {schema(R"({"type": 7})"), kInvalid, "JSON schema"},
      {schema(R"({"properties": {"a": 3}})"), kInvalid, "/properties/a"},
      {schema(R"({"properties": {"a": {"not": {}}}})"), kUnsupported, "'not' at /properties/a"},
      {schema(R"({"type": "array", "uniqueItems": true})"), kUnsupported, "uniqueItems"},
      {schema(R"({"allOf": [{}, {}]})"), kUnsupported, "allOf"},
      {schema(R"({"$ref": "https://example.org/s.json"})"), kUnsupported, "$ref"},
      {schema(R"({"$ref": "#/$defs/none"})"), kInvalid, "JSON schema"},
      {schema(R"({"type": "array", "items": {}, "minItems": 1000000})"), kInvalid, "minItems"},
      {schema(R"({"type": "string", "maxLength": -1})"), kInvalid, "maxLength"},
      {schema(deep), kInvalid, "deep"},
      {schema(std::string(70'000, ' ')), kInvalid, "bytes"},
      {regex(""), kInvalid, "empty"},
      {regex("("), kInvalid, "regular expression"},
      {regex("[z-a]"), kInvalid, "regular expression"},
      {regex("a{3,2}"), kInvalid, "regular expression"},
      {regex("(a{9000}){9000000}"), kInvalid, "repeats"},
      {regex("a{99999999999999999999}"), kInvalid, "repeats"},
      {regex(std::string(5000, '(')), kInvalid, "groups"},
      {ebnf("root ::= "), kInvalid, "grammar"},
      {ebnf("a ::= \"x\""), kInvalid, "grammar"},
      {ebnf("root ::= other"), kInvalid, "grammar"},
      {ebnf("root ::= \"unclosed"), kInvalid, "grammar"},
      {ebnf("root ::= root"), kInvalid, "no text"},
      {{.kind = Kind::kChoice}, kInvalid, "choice"},
      {{.kind = Kind::kChoice, .choices = {"a", ""}}, kInvalid, "empty"},
      {{.kind = Kind::kChoice, .choices = std::vector<std::string>(1025, "a")}, kInvalid, "1024"},
      {{.kind = Kind::kToolCalls, .format = ChatFormat::kMoonlight, .tools = kTools}, kUnsupported, "moonlight"},
  };
  for (const Refused& refused : all) {
    const auto result = compiler().compile(refused.form);
    const std::string shown = refused.form.text.substr(0, 80);
    ASSERT_FALSE(result.ok()) << shown;
    EXPECT_EQ(result.error().code(), refused.code) << shown << ": " << result.error().message();
    EXPECT_NE(result.error().message().find(refused.part), std::string::npos)
        << shown << ": " << result.error().message();
    EXPECT_EQ(result.error().message().find('\n'), std::string::npos);
    EXPECT_LT(result.error().message().size(), 420u);
  }
}

// Left recursion, many ways to read one text, empty repetitions: they end, one way or the other, and the next form is
// served.
TEST_F(GrammarTest, HardFormsDoNotHoldUpTheNext) {
  for (const OutputForm& form :
       std::vector<OutputForm>{{.kind = Kind::kGrammar, .text = "root ::= root \"a\" | \"a\""},
                               {.kind = Kind::kGrammar, .text = "root ::= a | b\na ::= b\nb ::= a"},
                               {.kind = Kind::kGrammar, .text = "root ::= (\"\"*)*"},
                               {.kind = Kind::kRegex, .text = "(a*)*b"},
                               {.kind = Kind::kRegex, .text = "(a|a)*(a|a)*(a|a)*c"},
                               {.kind = Kind::kRegex, .text = "[a-z]{0,10000}"},
                               {.kind = Kind::kJsonSchema, .text = R"({"$ref": "#"})"},
                               {.kind = Kind::kJsonSchema, .text = R"({"type": "array", "items": {"$ref": "#"}})"}}) {
    const auto begin = std::chrono::steady_clock::now();
    const auto result = compiler().compile(form);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(6)) << form.text;
    if (result.ok()) {
      const auto matcher = (*result)->start();
      ASSERT_TRUE(matcher.ok());
      Mask mask(kVocab / 32, 0);
      EXPECT_TRUE((*matcher)->fill(mask).ok()) << form.text;
    }
  }
  EXPECT_NE(compiled({.kind = Kind::kRegex, .text = "ok"}), nullptr);
}

TEST_F(GrammarTest, TakingTooLongIsAnError) {
  ASSERT_NE(compiled({.kind = Kind::kJsonSchema, .text = kSchema}), nullptr);
  GrammarCompiler hasty(tokenizer(), kVocab, {kEnd}, {.compile_time = std::chrono::milliseconds(0)});
  const auto result = hasty.compile({.kind = Kind::kJsonSchema, .text = kSchema});
  ASSERT_FALSE(result.ok());
  EXPECT_NE(result.error().message().find("structured output"), std::string::npos) << result.error().message();
}

// A form that is still being compiled when the process ends reads what static destructors would destroy.
TEST_F(GrammarTest, AProcessEndsWhileAFormIsCompiled) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  ASSERT_NE(compiled({.kind = Kind::kJsonSchema, .text = kSchema}), nullptr);
  for (int i = 0; i < 8; ++i) {
    EXPECT_EXIT(
        {
          {
            GrammarCompiler hasty(tokenizer(), kVocab, {kEnd}, {.compile_time = std::chrono::milliseconds(i)});
            static_cast<void>(hasty.compile({.kind = Kind::kJsonSchema, .text = kSchema}));
          }
          std::exit(7);
        },
        ::testing::ExitedWithCode(7), "^$");
  }
}

// The model itself.
class StructuredAnswers : public GrammarTest {
 protected:
  static std::unique_ptr<Engine> engine_of(int32_t drafts) {
    EngineOptions options;
    options.model_dir = LANTERN_SOURCE_DIR "/models/tiny";
    options.device = "cpu";
    options.threads = 2;
    options.max_num_seqs = 8;
    options.kv_cache_bytes = int64_t{64} << 20;
    options.num_draft_tokens = drafts;
    Result<LoadedEngine> loaded = load_engine(options);
    EXPECT_TRUE(loaded.ok()) << loaded.error().message();
    return loaded.ok() ? std::move(loaded->engine) : nullptr;
  }

  static EngineRequest request(const std::string& user, bool thinking, uint64_t seed, float temperature) {
    EngineRequest request;
    const ChatEncoder encoder = ChatEncoder::create(ChatFormat::kDeepSeekV32, tokenizer()).value();
    const ChatOptions options{.thinking = thinking, .add_generation_prompt = true, .tools = {}};
    ChatMessage message;
    message.content = user;
    request.request.prompt = encoder.encode({message}, options).value();
    request.request.max_tokens = 400;
    request.request.sampling.seed = seed;
    request.request.sampling.temperature = temperature;
    request.skip_special_tokens = false;
    return request;
  }

  static std::string answer(Engine& engine, EngineRequest&& request, EndReason& reason) {
    Result<TokenStream> stream = engine.submit(std::move(request));
    EXPECT_TRUE(stream.ok()) << stream.error().message();
    std::string text;
    Output output;
    while (stream.ok() && stream->next(output)) {
      text += output.text;
      reason = output.end_reason;
      EXPECT_EQ(output.error, "");
    }
    return text;
  }
};

// The same text for every number of drafts, and it has the form; behind the thinking where there is some.
TEST_F(StructuredAnswers, HaveTheirFormWhateverTheDrafts) {
  const std::vector<OutputForm> forms = {
      {.kind = Kind::kJsonSchema, .text = kSchema},
      {.kind = Kind::kChoice, .choices = {"north", "south"}},
      {.kind = Kind::kToolCalls, .format = ChatFormat::kDeepSeekV32, .tools = kTools}};
  const TokenId think_end = tokenizer().added_token_id("</think>").value();
  std::vector<std::string> first;
  int thought = 0;
  for (const int32_t drafts : {0, 1, 3}) {
    const std::unique_ptr<Engine> engine = engine_of(drafts);
    ASSERT_NE(engine, nullptr);
    std::vector<std::string> texts;
    for (const OutputForm& form : forms) {
      for (const bool thinking : {false, true}) {
        for (const float temperature : {0.0f, 1.5f}) {
          EngineRequest asked = request("How many apples are 3 and 4?", thinking, 11, temperature);
          // The shipped model was not trained to think: it is led to the end of it.
          if (thinking) asked.request.logit_bias = {{.token = think_end, .bias = temperature > 0 ? 16.0f : 100.0f}};
          asked.request.constraint =
              constrain(compiled(form), tokenizer(), compiler().end_ids(), {.thinking = thinking});
          EndReason reason = EndReason::kNone;
          texts.push_back(answer(*engine, std::move(asked), reason));
          const ParsedOutput parsed =
              parse_output(ChatFormat::kDeepSeekV32, texts.back(), {.starts_thinking = thinking, .tools = kTools});
          if (reason == EndReason::kLength && thinking && parsed.content.empty()) continue;  // it thinks to the end
          ASSERT_EQ(reason, EndReason::kStop) << texts.back();
          thought += thinking ? 1 : 0;
          switch (form.kind) {
            case Kind::kJsonSchema: EXPECT_TRUE(matches_schema(parsed.content)) << parsed.content; break;
            case Kind::kChoice: EXPECT_TRUE(parsed.content == "north" || parsed.content == "south"); break;
            default: EXPECT_GE(parsed.tool_calls.size(), 1u) << texts.back();
          }
        }
      }
    }
    if (first.empty()) first = texts;
    EXPECT_EQ(texts, first) << drafts << " drafts";
  }
  EXPECT_GE(thought, 3 * 3) << "answers behind thinking";
}

// Thinking ends with the characters of its tag, in whatever tokens, and what the last of them brings along counts.
TEST_F(StructuredAnswers, BeginWhereThinkingEnds) {
  const auto ids_of = [](std::string_view text) {
    return tokenizer().encode(text, {.add_special = false, .parse_special = false}).value();
  };
  const auto constraint = [](AnswerStart start) {
    return constrain(compiled({.kind = Kind::kChoice, .choices = {"yes"}}), tokenizer(), compiler().end_ids(), start);
  };
  const auto ask = [](TokenConstraint& of, const std::vector<int32_t>& output) {
    Mask mask(kVocab / 32, 0);
    const Status asked = of.allow(0, output, mask);
    EXPECT_TRUE(asked.ok()) << asked.error().message();
    return mask;
  };
  const TokenId begin = tokenizer().added_token_id("<think>").value(),
                end = tokenizer().added_token_id("</think>").value();
  const TokenId other = ids_of("q")[0], yes = ids_of("y")[0];
  const auto thinks = [&](const Mask& mask) { return allows(mask, other) && allows(mask, end) && !allows(mask, kEnd); };
  const auto answers = [&](const Mask& mask) { return !allows(mask, other) && allows(mask, yes); };

  const auto in_one = constraint({.thinking = true});
  EXPECT_TRUE(thinks(ask(*in_one, {})));
  EXPECT_TRUE(thinks(ask(*in_one, {other})));
  EXPECT_TRUE(answers(ask(*in_one, {other, end})));
  EXPECT_TRUE(answers(ask(*in_one, {other, end}))) << "asked again";

  const auto in_many = constraint({.thinking = true});
  std::vector<int32_t> output = ids_of("so </thi</think>");
  ASSERT_GT(output.size(), 3u);
  EXPECT_TRUE(thinks(ask(*in_many, std::vector<int32_t>(output.begin(), output.end() - 1))));
  EXPECT_TRUE(answers(ask(*in_many, output)));

  const auto by_itself = constraint({.may_think = true});
  const Mask at_start = ask(*by_itself, {});
  EXPECT_TRUE(allows(at_start, begin) && allows(at_start, yes) && !allows(at_start, other));
  EXPECT_TRUE(thinks(ask(*by_itself, {begin})));
  EXPECT_TRUE(answers(ask(*by_itself, {begin, end})));
  EXPECT_FALSE(allows(ask(*constraint({}), {}), begin));
}

}  // namespace
}  // namespace lantern
