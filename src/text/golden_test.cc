// Ids equal those of the tokenizers package (tiktoken for Kimi) on 12,000 strings, and so does what they decode to.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>

#include "text/detokenizer.h"
#include "text/golden_corpus_test.h"
#include "text/json.h"
#include "text/tokenizer.h"

namespace lantern {
namespace {

const std::string kFolder = LANTERN_SOURCE_DIR "/tests/text/";

std::string read_all(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in.good()) << path;
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

// tools/make_text_goldens/make_tokenizers.py has the same.
constexpr size_t kStringsPerHash = 8;

// FNV-1a over each string's ids as little-endian int32, their number before them to part the strings; its halves folded
// together.
class GroupHash {
 public:
  void add(const std::vector<TokenId>& ids) {
    add(static_cast<uint32_t>(ids.size()));
    for (const TokenId id : ids) add(static_cast<uint32_t>(id));
  }

  uint16_t folded() const { return static_cast<uint16_t>(hash_ >> 16 ^ hash_); }

 private:
  void add(uint32_t value) {
    for (int shift = 0; shift < 32; shift += 8) hash_ = (hash_ ^ (value >> shift & 0xFF)) * 0x01000193;
  }

  uint32_t hash_ = 0x811C9DC5;
};

std::vector<uint16_t> read_hashes(const std::string& name) {
  const std::string bytes = read_all(kFolder + "golden/" + name + ".hash");
  std::vector<uint16_t> hashes(kNumCorpusStrings / kStringsPerHash);
  EXPECT_EQ(bytes.size(), hashes.size() * sizeof(uint16_t)) << name;
  std::memcpy(hashes.data(), bytes.data(), std::min(bytes.size(), hashes.size() * sizeof(uint16_t)));
  return hashes;
}

// What one string has become (ids, sizes of words or bytes), and how a failure shows it.
struct Outcome {
  std::vector<TokenId> ids;
  std::string shown;
};

Outcome failed(const Error& error) {
  ADD_FAILURE() << error.message();
  return {};
}

// `result_of(i)` gives the Outcome of string i. A group that differs is shown whole: which string of it does is not
// kept.
template <typename ResultOf>
void expect_groups_equal(const std::string& name, ResultOf result_of) {
  const auto hashes = read_hashes(name);
  int failures = 0;
  for (size_t group = 0; group < hashes.size() && failures < 3; ++group) {
    GroupHash hash;
    std::string shown;
    for (size_t i = group * kStringsPerHash; i < (group + 1) * kStringsPerHash; ++i) {
      const Outcome result = result_of(i);
      hash.add(result.ids);
      shown += "\nstring " + std::to_string(i) + " " + result.shown;
    }
    if (hash.folded() == hashes[group]) continue;
    ++failures;
    ADD_FAILURE() << name << ": one of these differs from the reference" << shown;
  }
}

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    char hex[8];
    std::snprintf(hex, sizeof(hex), "\\x%02x", static_cast<unsigned>(static_cast<uint8_t>(c)));
    out += c >= 0x20 && c < 0x7F ? std::string(1, c) : std::string(hex);
  }
  return out;
}

struct Case {
  const char* tokenizer;
  const char* mode;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.tokenizer << " " << c.mode; }

EncodeOptions options_of(const std::string& mode) {
  EncodeOptions options;
  options.add_special = false;
  options.parse_special = mode == "all" || mode == "whole";
  options.parse_not_special = mode == "not_special";
  return options;
}

Result<Tokenizer> load_with_ignore_merges(const std::string& folder) {
  std::string text = read_all(folder + "/tokenizer.json");
  const std::string off = "\"ignore_merges\":false";
  const size_t at = text.find(off);
  EXPECT_NE(at, std::string::npos);
  if (at != std::string::npos) text.replace(at, off.size(), "\"ignore_merges\":true");
  return Tokenizer::from_json(text, "");
}

class TokenizerGolden : public testing::TestWithParam<Case> {};

TEST_P(TokenizerGolden, IdsEqualTheReference) {
  const std::string name = GetParam().tokenizer, mode = GetParam().mode;
  const std::string folder =
      name == "tiny" ? std::string(LANTERN_SOURCE_DIR "/models/tiny") : kFolder + "tokenizers/" + name;
  const auto tokenizer = mode == "whole" ? load_with_ignore_merges(folder) : Tokenizer::load(folder);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message();
  const auto full = parse_json(read_all(kFolder + "golden/" + name + "." + mode + ".json"));
  ASSERT_TRUE(full.ok());
  const auto fragments = load_fragments();
  expect_groups_equal(name + "." + mode, [&](size_t i) -> Outcome {
    const std::string text = make_corpus_string(i, fragments);
    const auto ids = tokenizer->encode(text, options_of(mode));
    if (!ids.ok()) return failed(ids.error());
    if (i < full->as_array().size()) {
      const auto expected = boost::json::value_to<std::vector<TokenId>>(full->as_array()[i]);
      EXPECT_EQ(*ids, expected) << i << ": " << escaped(text);
    }
    std::string pieces;
    for (const TokenId id : *ids) pieces += escaped(std::string(tokenizer->token_bytes(id))) + " | ";
    return {*ids, escaped(text) + "\n -> " + pieces};
  });
}

INSTANTIATE_TEST_SUITE_P(All, TokenizerGolden,
                         testing::Values(Case{"v3", "all"}, Case{"v3", "none"}, Case{"v2", "all"}, Case{"v2", "none"},
                                         Case{"glm", "all"}, Case{"glm", "none"}, Case{"glm", "not_special"},
                                         Case{"gpt2", "all"}, Case{"gpt2", "none"}, Case{"other", "all"},
                                         Case{"other", "none"}, Case{"other", "not_special"}, Case{"kimi", "all"},
                                         Case{"kimi", "none"}, Case{"random", "all"}, Case{"random", "whole"},
                                         Case{"tiny", "all"}),
                         [](const auto& test) { return std::string(test.param.tokenizer) + "_" + test.param.mode; });

class WordsGolden : public testing::TestWithParam<const char*> {};

// Ids hide a wrong cut wherever no merge would cross it; the sizes of the pre-tokens do not.
TEST_P(WordsGolden, CutsEqualTheReference) {
  const std::string name = GetParam();
  const auto tokenizer = Tokenizer::load(kFolder + "tokenizers/" + name);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message();
  const auto fragments = load_fragments();
  expect_groups_equal(name + ".words", [&](size_t i) -> Outcome {
    const auto words = tokenizer->words(make_corpus_string(i, fragments));
    if (!words.ok()) return failed(words.error());
    Outcome cut{{}, "is cut into "};
    for (const std::string& word : *words) {
      cut.ids.push_back(static_cast<TokenId>(word.size()));
      cut.shown += escaped(word);
      cut.shown += " | ";
    }
    return cut;
  });
}

INSTANTIATE_TEST_SUITE_P(All, WordsGolden, testing::Values("v3", "v2", "glm", "gpt2", "other", "random", "kimi"),
                         [](const auto& test) { return std::string(test.param); });

class DecodeGolden : public testing::TestWithParam<const char*> {};

// Also: the incremental detokenizer gives the same text, in parts that are valid UTF-8 each.
TEST_P(DecodeGolden, TextEqualsTheReference) {
  const std::string name = GetParam();
  const auto tokenizer = Tokenizer::load(kFolder + "tokenizers/" + name);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message();
  const auto fragments = load_fragments();
  expect_groups_equal(name + ".decoded", [&](size_t i) -> Outcome {
    const auto ids = tokenizer->encode(make_corpus_string(i, fragments), options_of("all"));
    if (!ids.ok()) return failed(ids.error());
    const std::string text = tokenizer->decode(*ids, true);
    std::string streamed;
    Detokenizer detokenizer(*tokenizer);
    for (const TokenId id : *ids) streamed += detokenizer.add(id);
    streamed += detokenizer.flush();
    EXPECT_EQ(streamed, text) << "string " << i;
    Outcome decoded{{}, "decodes to " + escaped(text)};
    for (const char c : text) decoded.ids.push_back(static_cast<uint8_t>(c));
    return decoded;
  });
}

INSTANTIATE_TEST_SUITE_P(All, DecodeGolden, testing::Values("v3", "v2", "glm", "gpt2", "other", "random"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace lantern
