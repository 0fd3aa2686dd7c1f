// Ids equal those of the tokenizers package (tiktoken for Kimi) on 12,000 strings, and so does what they decode to.
#include <gtest/gtest.h>

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

// FNV-1a over the ids as little-endian int32, its halves folded together.
uint16_t hash_ids(const std::vector<TokenId>& ids) {
  uint32_t hash = 0x811C9DC5;
  for (const TokenId id : ids) {
    for (int shift = 0; shift < 32; shift += 8)
      hash = (hash ^ (static_cast<uint32_t>(id) >> shift & 0xFF)) * 0x01000193;
  }
  return static_cast<uint16_t>(hash >> 16 ^ hash);
}

std::vector<uint16_t> read_hashes(const std::string& name) {
  const std::string bytes = read_all(kFolder + "golden/" + name + ".hash");
  std::vector<uint16_t> hashes(bytes.size() / sizeof(uint16_t));
  std::memcpy(hashes.data(), bytes.data(), hashes.size() * sizeof(uint16_t));
  EXPECT_EQ(hashes.size(), kNumCorpusStrings) << name;
  hashes.resize(kNumCorpusStrings);
  return hashes;
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
  const auto hashes = read_hashes(name + "." + mode);
  const auto full = parse_json(read_all(kFolder + "golden/" + name + "." + mode + ".json"));
  ASSERT_TRUE(full.ok());
  const auto fragments = load_fragments();
  int failures = 0;
  for (size_t i = 0; i < kNumCorpusStrings && failures < 5; ++i) {
    const std::string text = make_corpus_string(i, fragments);
    const auto ids = tokenizer->encode(text, options_of(mode));
    ASSERT_TRUE(ids.ok()) << ids.error().message();
    if (i < full->as_array().size()) {
      const auto expected = boost::json::value_to<std::vector<TokenId>>(full->as_array()[i]);
      EXPECT_EQ(*ids, expected) << i << ": " << escaped(text);
    }
    if (hash_ids(*ids) == hashes[i]) continue;
    ++failures;
    std::string pieces;
    for (const TokenId id : *ids) pieces += escaped(std::string(tokenizer->token_bytes(id))) + " | ";
    ADD_FAILURE() << "string " << i << " " << escaped(text) << "\n -> " << pieces;
  }
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
  const auto hashes = read_hashes(name + ".words");
  const auto fragments = load_fragments();
  int failures = 0;
  for (size_t i = 0; i < kNumCorpusStrings && failures < 5; ++i) {
    const auto words = tokenizer->words(make_corpus_string(i, fragments));
    ASSERT_TRUE(words.ok());
    std::vector<TokenId> sizes;
    std::string shown;
    for (const std::string& word : *words) {
      sizes.push_back(static_cast<TokenId>(word.size()));
      shown += escaped(word);
      shown += " | ";
    }
    if (hash_ids(sizes) == hashes[i]) continue;
    ++failures;
    ADD_FAILURE() << "string " << i << " is cut into " << shown;
  }
}

INSTANTIATE_TEST_SUITE_P(All, WordsGolden, testing::Values("v3", "v2", "glm", "gpt2", "other", "random", "kimi"),
                         [](const auto& test) { return std::string(test.param); });

class DecodeGolden : public testing::TestWithParam<const char*> {};

// Also: the incremental detokenizer gives the same text, in parts that are valid UTF-8 each.
TEST_P(DecodeGolden, TextEqualsTheReference) {
  const std::string name = GetParam();
  const auto tokenizer = Tokenizer::load(kFolder + "tokenizers/" + name);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message();
  const auto hashes = read_hashes(name + ".decoded");
  const auto fragments = load_fragments();
  int failures = 0;
  for (size_t i = 0; i < kNumCorpusStrings && failures < 5; ++i) {
    const auto ids = tokenizer->encode(make_corpus_string(i, fragments), options_of("all"));
    ASSERT_TRUE(ids.ok());
    const std::string text = tokenizer->decode(*ids, true);
    std::vector<TokenId> bytes;
    for (const char c : text) bytes.push_back(static_cast<uint8_t>(c));
    std::string streamed;
    Detokenizer detokenizer(*tokenizer);
    for (const TokenId id : *ids) streamed += detokenizer.add(id);
    streamed += detokenizer.flush();
    if (hash_ids(bytes) == hashes[i] && streamed == text) continue;
    ++failures;
    ADD_FAILURE() << "string " << i << " decodes to " << escaped(text) << ", streamed to " << escaped(streamed);
  }
}

INSTANTIATE_TEST_SUITE_P(All, DecodeGolden, testing::Values("v3", "v2", "glm", "gpt2", "other", "random"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace lantern
