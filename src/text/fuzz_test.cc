// Random and damaged input: nothing may crash, and what is accepted must keep its promises. Worth most under the
// sanitizers.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <random>

#include "text/chat.h"
#include "text/detokenizer.h"
#include "text/golden_corpus_test.h"
#include "text/split_pattern.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace lantern {
namespace {

const std::string kFolder = LANTERN_SOURCE_DIR "/tests/text/tokenizers/";

std::string read_all(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in.good()) << path;
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

class Fuzz {
 public:
  explicit Fuzz(uint32_t seed) : engine_(seed) {}

  size_t below(size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(engine_); }

  std::string bytes(size_t max_size) {
    std::string out(below(max_size + 1), '\0');
    for (char& c : out) c = static_cast<char>(below(256));
    return out;
  }

  std::string soup(std::string_view alphabet, size_t max_size) {
    std::string out(below(max_size + 1), '\0');
    for (char& c : out) c = alphabet[below(alphabet.size())];
    return out;
  }

  // Flips, removes, repeats and inserts parts.
  std::string damage(std::string text) {
    static constexpr std::string_view kInserts[] = {"\"",   "{",  "}",    "[",  "]",       ",",   ":",
                                                    "null", "-1", "1e99", "\\", "\\u0000", "\xFF"};
    const size_t count = 1 + below(4);
    for (size_t i = 0; i < count && !text.empty(); ++i) {
      const size_t at = below(text.size()), size = below(std::min<size_t>(text.size() - at, 200) + 1);
      switch (below(5)) {
        case 0: text[at] = static_cast<char>(below(256)); break;
        case 1: text.erase(at, size); break;
        case 2: text.insert(below(text.size()), text.substr(at, size)); break;
        case 3: text.insert(at, kInserts[below(std::size(kInserts))]); break;
        default: text.resize(at);
      }
    }
    return text;
  }

 private:
  std::mt19937 engine_;
};

void exercise(const Tokenizer& tokenizer, Fuzz& fuzz, const std::vector<std::string>& fragments) {
  const std::string text = make_corpus_string(fuzz.below(kNumCorpusStrings), fragments) + fuzz.bytes(20);
  for (const bool parse : {false, true}) {
    const auto ids = tokenizer.encode(text, {.add_special = parse, .parse_special = parse});
    if (!ids.ok()) continue;
    std::string streamed;
    Detokenizer detokenizer(tokenizer, parse);
    for (const TokenId id : *ids) {
      ASSERT_GE(id, 0);
      ASSERT_LT(id, tokenizer.vocab_size());
      const std::string part = detokenizer.add(id);
      ASSERT_TRUE(is_valid_utf8(part));
      streamed += part;
    }
    streamed += detokenizer.flush();
    ASSERT_EQ(streamed, tokenizer.decode(*ids, parse));
  }
}

TEST(TextFuzz, RandomBytesAsFiles) {
  Fuzz fuzz(1);
  int accepted = 0;
  for (int i = 0; i < 3000; ++i) {
    const std::string file =
        i % 2 == 0 ? fuzz.bytes(300) : fuzz.soup("{}[]\",:0123456789eE+-.truefalsnmodelvocab \n=/", 300);
    accepted += Tokenizer::from_json(file, "").ok() ? 1 : 0;
    accepted += Tokenizer::from_tiktoken(file, "").ok() ? 1 : 0;
    accepted += Tokenizer::from_json("{}", file).ok() ? 1 : 0;
  }
  EXPECT_EQ(accepted, 0);
  // Nesting must not eat the stack.
  for (const char* open : {"[", "{\"a\":", "{\"model\":["}) {
    std::string deep;
    for (int i = 0; i < 100000; ++i) deep += open;
    EXPECT_FALSE(Tokenizer::from_json(deep, "").ok());
    EXPECT_FALSE(Tokenizer::from_json("{}", deep).ok());
  }
}

TEST(TextFuzz, DamagedFiles) {
  Fuzz fuzz(2);
  const auto fragments = load_fragments();
  int accepted = 0;
  for (const char* name : {"gpt2", "other", "kimi"}) {
    const bool tiktoken = std::string(name) == "kimi";
    const std::string model = read_all(kFolder + name + (tiktoken ? "/tiktoken.model" : "/tokenizer.json"));
    const std::string config = read_all(kFolder + name + "/tokenizer_config.json");
    for (int i = 0; i < 250; ++i) {
      const std::string bad_model = fuzz.below(4) == 0 ? model : fuzz.damage(model);
      const std::string bad_config = fuzz.below(2) == 0 ? config : fuzz.damage(config);
      const auto tokenizer =
          tiktoken ? Tokenizer::from_tiktoken(bad_model, bad_config) : Tokenizer::from_json(bad_model, bad_config);
      if (!tokenizer.ok()) {
        ASSERT_FALSE(tokenizer.error().message().empty());
        continue;
      }
      ++accepted;
      exercise(*tokenizer, fuzz, fragments);
    }
  }
  EXPECT_GT(accepted, 50);  // damage in a name or a flag leaves a good file
}

// Whatever the bytes, what is encoded without added tokens decodes to the same text.
TEST(TextFuzz, AnyTextSurvivesARoundTrip) {
  Fuzz fuzz(3);
  const auto fragments = load_fragments();
  for (const char* name : {"v3", "v2", "glm", "kimi"}) {
    const auto tokenizer = Tokenizer::load(kFolder + name);
    ASSERT_TRUE(tokenizer.ok());
    for (int i = 0; i < 1500; ++i) {
      std::string text = fuzz.bytes(60);
      if (fuzz.below(2) == 0) text += make_corpus_string(fuzz.below(kNumCorpusStrings), fragments);
      const auto ids = tokenizer->encode(text, {.add_special = false, .parse_special = false});
      ASSERT_TRUE(ids.ok());
      ASSERT_EQ(tokenizer->decode(*ids), replace_invalid_utf8(text));
    }
  }
}

TEST(TextFuzz, AnyIdsDecodeToValidText) {
  Fuzz fuzz(4);
  const auto tokenizer = Tokenizer::load(kFolder + "v3");
  ASSERT_TRUE(tokenizer.ok());
  for (int i = 0; i < 1000; ++i) {
    std::vector<TokenId> ids(fuzz.below(30));
    for (TokenId& id : ids) id = static_cast<TokenId>(fuzz.below(2600)) - 100;
    const std::string text = tokenizer->decode(ids);
    ASSERT_TRUE(is_valid_utf8(text));
    std::string streamed;
    Detokenizer detokenizer(*tokenizer, false);
    for (const TokenId id : ids) {
      const std::string part = detokenizer.add(id);
      ASSERT_TRUE(is_valid_utf8(part));
      streamed += part;
    }
    ASSERT_EQ(streamed + detokenizer.flush(), text);
  }
}

TEST(TextFuzz, RandomPatterns) {
  Fuzz fuzz(5);
  int accepted = 0;
  for (int i = 0; i < 4000; ++i) {
    const auto pattern = make_split_pattern(fuzz.soup("[]()?:!|+*{}0,1\\spSwnLNPabAZ-^$. &'é\xC3", 24));
    if (!pattern.ok()) continue;
    ++accepted;
    const std::string text = replace_invalid_utf8(fuzz.bytes(20) + fuzz.soup("ab  \nAZ09'-", 20));
    for (size_t from = 0; from <= text.size();) {
      const auto match = (*pattern)->next(text, from);
      if (!match.ok() || !*match) break;
      ASSERT_GE((*match)->begin, from);
      ASSERT_LE((*match)->begin, (*match)->end);
      ASSERT_LE((*match)->end, text.size());
      from = (*match)->end == (*match)->begin
                 ? (*match)->end + std::max<size_t>(1, decode_utf8(text, (*match)->end).size)
                 : (*match)->end;
    }
  }
  EXPECT_GT(accepted, 100);
}

TEST(TextFuzz, RandomConversations) {
  Fuzz fuzz(6);
  const auto fragments = load_fragments();
  const auto v3 = Tokenizer::load(kFolder + "v3"), glm = Tokenizer::load(kFolder + "glm"),
             kimi = Tokenizer::load(kFolder + "kimi");
  ASSERT_TRUE(v3.ok() && glm.ok() && kimi.ok());
  int accepted = 0;
  const auto text = [&]() {
    return fuzz.below(3) == 0 ? fuzz.bytes(20)
                              : make_corpus_string(fuzz.below(kNumCorpusStrings), fragments).substr(0, 60);
  };
  const auto object = [&]() -> std::string {
    static constexpr std::string_view kObjects[] = {"{}",
                                                    R"({"a": 1e400})",
                                                    R"({"name": "f", "parameters": {"x": [0.1, "é"]}})",
                                                    R"({"type": "function", "function": {"name": "f"}})",
                                                    "[",
                                                    ""};
    return fuzz.below(4) == 0 ? fuzz.bytes(10) : std::string(kObjects[fuzz.below(std::size(kObjects))]);
  };
  for (int i = 0; i < 3000; ++i) {
    const auto format = static_cast<ChatFormat>(fuzz.below(11));
    std::vector<ChatMessage> messages(fuzz.below(6));
    for (ChatMessage& message : messages) {
      message.role = static_cast<ChatRole>(fuzz.below(5));
      message.content = text();
      if (fuzz.below(4) == 0) message.reasoning_content = text();
      if (fuzz.below(2) == 0) message.tool_call_id = text();
      if (fuzz.below(4) == 0) message.name = text();
      if (message.role == ChatRole::kAssistant && fuzz.below(3) == 0) message.tool_calls = {{text(), text(), object()}};
      if (fuzz.below(10) == 0) message.tools = {object()};
    }
    ChatOptions options;
    if (fuzz.below(3) == 0) options.thinking = fuzz.below(2) == 0;
    if (fuzz.below(3) == 0) options.effort = fuzz.below(2) == 0 ? ReasoningEffort::kHigh : ReasoningEffort::kMax;
    options.add_generation_prompt = fuzz.below(2) == 0;
    if (fuzz.below(4) == 0) options.tools = {object()};
    const std::string_view name = to_string(format);
    const Tokenizer& tokenizer = name.starts_with("deepseek") ? *v3 : name.starts_with("glm") ? *glm : *kimi;
    const auto encoder = ChatEncoder::create(format, tokenizer);
    ASSERT_TRUE(encoder.ok());
    const auto pieces = render_chat(format, messages, options);
    const auto ids = encoder->encode(messages, options);
    ASSERT_EQ(ids.ok(), pieces.ok());
    if (!ids.ok()) continue;
    ++accepted;
    // Added tokens are exactly the special pieces.
    size_t special = 0, added = 0;
    for (const ChatPiece& piece : *pieces) special += piece.special ? 1 : 0;
    for (const TokenId id : *ids) added += tokenizer.is_added(id) ? 1 : 0;
    ASSERT_EQ(added, special);
  }
  EXPECT_GT(accepted, 300);
}

}  // namespace
}  // namespace lantern
