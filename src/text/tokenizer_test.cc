#include "text/tokenizer.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <ctime>
#include <fstream>
#include <functional>
#include <iterator>

#include "text/detokenizer.h"
#include "text/json.h"

namespace lantern {
namespace {

namespace json = boost::json;

const std::string kFolder = LANTERN_SOURCE_DIR "/tests/text/tokenizers/";

std::string read_all(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in.good()) << path;
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

Tokenizer load(const std::string& name) {
  auto tokenizer = Tokenizer::load(kFolder + name);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.error().message();
  return std::move(tokenizer).value();
}

TEST(Tokenizer, AddSpecialFollowsTheConfigOrTheTemplate) {
  const Tokenizer v3 = load("v3"), glm = load("glm"), gpt2 = load("gpt2"), other = load("other");
  // add_bos_token of tokenizer_config.json.
  EXPECT_EQ(v3.encode("Hi").value().front(), *v3.bos_id());
  EXPECT_NE(v3.encode("Hi").value().back(), *v3.eos_id());
  EXPECT_EQ(v3.encode("").value(), std::vector<TokenId>{*v3.bos_id()});
  EXPECT_TRUE(v3.encode("", {.add_special = false}).value().empty());
  // TemplateProcessing of tokenizer.json.
  const auto ids = glm.encode("x").value();
  ASSERT_EQ(ids.size(), 3u);
  EXPECT_EQ(ids[0], *glm.added_token_id("[gMASK]"));
  EXPECT_EQ(ids[1], *glm.added_token_id("<sop>"));
  const auto around = gpt2.encode("x").value();
  EXPECT_EQ(around.front(), *gpt2.bos_id());
  EXPECT_EQ(around.back(), *gpt2.bos_id());
  EXPECT_EQ(other.encode("x").value(), other.encode("x", {.add_special = false}).value());
  EXPECT_FALSE(other.bos_id().has_value());
}

TEST(Tokenizer, AddedTokensInTextAreAChoice) {
  const Tokenizer v3 = load("v3");
  const TokenId think = v3.added_token_id("<think>").value();
  EXPECT_EQ(v3.encode("<think>", {.add_special = false}).value(), std::vector<TokenId>{think});
  // In V3 this token is not flagged special, and still a user must not be able to write it.
  EXPECT_FALSE(v3.is_special(think));
  EXPECT_TRUE(v3.is_added(think));
  const auto plain = v3.encode("<think>", {.add_special = false, .parse_special = false}).value();
  EXPECT_GT(plain.size(), 1u);
  EXPECT_EQ(v3.decode(plain), "<think>");
  EXPECT_EQ(v3.encode("<think>", {.add_special = false, .parse_special = false, .parse_not_special = true}).value(),
            std::vector<TokenId>{think});
}

TEST(Tokenizer, SkipSpecialLeavesOutWhatIsFlagged) {
  const Tokenizer v3 = load("v3");
  const std::vector<TokenId> ids = v3.encode("a<think>b<｜end▁of▁sentence｜>").value();
  EXPECT_EQ(v3.decode(ids), "<｜begin▁of▁sentence｜>a<think>b<｜end▁of▁sentence｜>");
  EXPECT_EQ(v3.decode(ids, true), "a<think>b");
}

TEST(Tokenizer, IdsWithoutATokenGiveNothing) {
  const Tokenizer v3 = load("v3");
  const TokenId beyond = static_cast<TokenId>(v3.vocab_size());
  EXPECT_EQ(v3.decode(std::vector<TokenId>{beyond, -1, 1 << 30}), "");
  EXPECT_TRUE(v3.token_bytes(beyond).empty());
  EXPECT_TRUE(v3.token_bytes(-1).empty());
  EXPECT_FALSE(v3.is_special(-1));
}

TEST(Tokenizer, KimiReadsTiktokenAndItsReservedTokens) {
  const Tokenizer kimi = load("kimi");
  EXPECT_EQ(kimi.vocab_size(), 2048 + 256);
  EXPECT_EQ(kimi.bos_id(), kimi.added_token_id("[BOS]"));
  EXPECT_EQ(kimi.added_token_id("[BOS]"), 2048);
  EXPECT_EQ(kimi.added_token_id("<|reserved_token_2053|>"), 2053);
  EXPECT_EQ(kimi.encode("[BOS]x<|im_end|>").value().front(), 2048);
}

// Every id alone, and every pair around a code point boundary, streams to what decode gives.
TEST(Detokenizer, NeverEmitsHalfACodePoint) {
  const Tokenizer v3 = load("v3");
  // 😀 as its four byte tokens.
  std::vector<TokenId> bytes;
  for (const char byte : std::string("\xF0\x9F\x98\x80")) {
    for (TokenId id = 0; id < v3.vocab_size(); ++id) {
      if (v3.token_bytes(id) == std::string(1, byte)) bytes.push_back(id);
    }
  }
  ASSERT_EQ(bytes.size(), 4u);
  Detokenizer detokenizer(v3);
  EXPECT_EQ(detokenizer.add(bytes[0]), "");
  EXPECT_EQ(detokenizer.add(bytes[1]), "");
  EXPECT_EQ(detokenizer.add(bytes[2]), "");
  EXPECT_EQ(detokenizer.pending().size(), 3u);
  EXPECT_EQ(detokenizer.add(bytes[3]), "😀");
  EXPECT_EQ(detokenizer.flush(), "");
  // Cut short: the rest becomes one replacement as soon as that is certain, or at the end.
  EXPECT_EQ(detokenizer.add(bytes[0]), "");
  EXPECT_EQ(detokenizer.add(bytes[1]), "");
  EXPECT_EQ(detokenizer.add(v3.encode("a", {.add_special = false}).value()[0]), "\uFFFDa");
  EXPECT_EQ(detokenizer.add(bytes[0]), "");
  EXPECT_EQ(detokenizer.flush(), "\uFFFD");
  EXPECT_EQ(detokenizer.add(bytes[3]), "\uFFFD");  // a continuation byte alone can become nothing
}

TEST(Detokenizer, SkipsSpecialTokensOnRequest) {
  const Tokenizer v3 = load("v3");
  Detokenizer skipping(v3), showing(v3, false);
  EXPECT_EQ(skipping.add(*v3.eos_id()), "");
  EXPECT_EQ(showing.add(*v3.eos_id()), "<｜end▁of▁sentence｜>");
}

// Each change to a good file gives one sentence that names what is wrong.
TEST(TokenizerErrors, CorruptTokenizerJson) {
  const std::string good = read_all(kFolder + "v3/tokenizer.json");
  const json::value document = json::parse(good);
  const auto error_of = [](const std::string& text) {
    const auto tokenizer = Tokenizer::from_json(text, "");
    return tokenizer.ok() ? std::string("accepted") : tokenizer.error().message();
  };
  const auto changed = [&](const std::function<void(json::object&)>& change) {
    json::value copy = document;
    change(copy.as_object());
    return error_of(json::serialize(copy));
  };
  EXPECT_EQ(changed([](auto&) {}), "accepted");
  EXPECT_EQ(error_of(""), "tokenizer.json: not valid JSON at line 1, column 1, byte 0 of 0 (it ends too early)");
  EXPECT_EQ(error_of("[]"), "tokenizer.json: the file must be an object but is an array");
  EXPECT_EQ(error_of("{}"), "tokenizer.json: the file has no \"model\"");
  EXPECT_EQ(error_of(good + "x"), fmt::format("tokenizer.json: not valid JSON at line 1, column {1}, byte {0} of {1} "
                                              "(extra data)",
                                              good.size(), good.size() + 1));
  for (size_t cut = 1; cut < good.size(); cut += good.size() / 97) {
    EXPECT_NE(error_of(good.substr(0, cut)).find("it ends too early"), std::string::npos) << cut;
  }
  const auto model = [](json::object& root) -> json::object& { return root["model"].as_object(); };
  const auto check = [&](const std::function<void(json::object&)>& change, const std::string& sentence) {
    EXPECT_EQ(changed(change), "tokenizer.json: " + sentence);
  };
  check([&](auto& r) { r.erase("model"); }, "the file has no \"model\"");
  check([&](auto& r) { r["model"] = 3; }, "\"model\" must be an object but is a number");
  check([&](auto& r) { model(r)["type"] = "Unigram"; }, "the model type Unigram is not supported; only BPE is");
  check([&](auto& r) { model(r).erase("vocab"); }, "the model has no \"vocab\"");
  check([&](auto& r) { model(r)["vocab"].as_object()["!"] = "x"; },
        "the id of token \"!\" must be an integer but is a string");
  check([&](auto& r) { model(r)["vocab"].as_object()["!"] = -1; },
        "the id -1 of token \"!\" is outside of [0, 4194303]");
  check([&](auto& r) { model(r)["vocab"].as_object()["!"] = 4194304; },
        "the id 4194304 of token \"!\" is outside of [0, 4194303]");
  check([&](auto& r) { model(r)["vocab"].as_object()["\""] = model(r)["vocab"].as_object()["!"]; },
        "tokens \"!\" and \"\"\" have the same id 3");
  check([&](auto& r) { model(r)["vocab"].as_object().erase("!"); },
        "the vocabulary has no token for byte 0x21, so not all text can be encoded");
  check([&](auto& r) { model(r)["merges"].as_array().push_back(json::array{"!", "no such token"}); },
        "merge 2045 (\"!\" and \"no such token\") needs token \"no such token\", which is not in the vocabulary");
  check([&](auto& r) { model(r)["merges"].as_array().push_back(json::array{"!", "~"}); },
        "merge 2045 (\"!\" and \"~\") needs token \"!~\", which is not in the vocabulary");
  check([&](auto& r) { model(r)["merges"].as_array().push_back("abc"); },
        "merge 2045 is \"abc\", not two tokens with a space between");
  check([&](auto& r) { model(r)["merges"].as_array().push_back(json::array{"a"}); },
        "merge 2045 must be a string or an array of two strings");
  check([&](auto& r) { model(r)["merges"] = json::object(); }, "\"merges\" must be an array but is an object");
  check([&](auto& r) { model(r)["dropout"] = 0.1; },
        "\"dropout\" of the model is set, which makes ids random; only none is supported");
  check([&](auto& r) { model(r)["end_of_word_suffix"] = "</w>"; },
        "\"end_of_word_suffix\" of the model is \"</w>\"; only none is supported");
  check([&](auto& r) { r["normalizer"] = json::object{{"type", "NFC"}}; },
        "the normalizer NFC is not supported; only an empty one is");
  check([&](auto& r) { r["normalizer"].as_object()["normalizers"] = json::array{json::object{{"type", "Lowercase"}}}; },
        "the normalizer Lowercase is not supported; only an empty one is");
  check([&](auto& r) { r["pre_tokenizer"] = nullptr; },
        "there is no pre_tokenizer; only byte-level ones are supported");
  check(
      [&](auto& r) {
        r["pre_tokenizer"].as_object()["pretokenizers"].as_array()[0].as_object()["type"] = "Whitespace";
      },
      "the pre-tokenizer Whitespace is not supported; Split, Digits and ByteLevel are");
  check([&](auto& r) { r["pre_tokenizer"].as_object()["pretokenizers"].as_array().pop_back(); },
        "the pre_tokenizer must end in its only ByteLevel step, but step 3 of 3 is Split");
  check([&](auto& r) { r["decoder"] = json::object{{"type", "WordPiece"}}; },
        "the decoder WordPiece is not supported; only ByteLevel is");
  check([&](auto& r) { r["post_processor"] = json::object{{"type", "BertProcessing"}}; },
        "the post_processor BertProcessing is not supported; TemplateProcessing and ByteLevel are");
  const auto added = [](json::object& root) -> json::array& { return root["added_tokens"].as_array(); };
  check([&](auto& r) { added(r)[0].as_object()["id"] = 7; },
        "added token \"<｜begin▁of▁sentence｜>\" has the id 7 here and 0 in the vocabulary");
  check([&](auto& r) { added(r)[4].as_object()["id"] = added(r)[3].as_object()["id"]; },
        "tokens \"<think>\" and \"</think>\" have the same id 2304");
  check([&](auto& r) { added(r).push_back(added(r)[3]); }, "added token \"<think>\" is listed twice");
  check([&](auto& r) { added(r)[3].as_object()["content"] = ""; },
        "added token 2304 has 0 bytes; 1 to 4096 are supported");
  check([&](auto& r) { added(r)[3].as_object()["special"] = 1; },
        "\"special\" of added token \"<think>\" must be true or false but is a number");
}

// A token's length fits no small type: its bytes come out whole, or the file is refused.
TEST(TokenizerErrors, Cve_2025_49847_TokensOfEveryLength) {
  const json::value document = json::parse(read_all(kFolder + "v3/tokenizer.json"));
  constexpr TokenId kNew = 2400;
  for (const size_t length : {127u, 128u, 255u, 256u, 32767u, 32768u, 65535u, 65536u, 1u << 20}) {
    json::value copy = document;
    const std::string text(length, 'a');
    copy.as_object()["model"].as_object()["vocab"].as_object()[text] = kNew;
    const auto tokenizer = Tokenizer::from_json(json::serialize(copy), "");
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message();
    EXPECT_EQ(tokenizer->token_bytes(kNew), text);
    Detokenizer detokenizer(*tokenizer);
    EXPECT_EQ(detokenizer.add(kNew), text);
  }
  json::value copy = document;
  copy.as_object()["added_tokens"].as_array()[3].as_object()["content"] = std::string(size_t{1} << 20, 'a');
  const auto added = Tokenizer::from_json(json::serialize(copy), "");
  ASSERT_FALSE(added.ok());
  EXPECT_EQ(added.error().message(), "tokenizer.json: added token 2304 has 1048576 bytes; 1 to 4096 are supported");
  std::string half = json::serialize(document);
  half[half.find("<think>")] = '\xff';
  EXPECT_FALSE(Tokenizer::from_json(half, "").ok()) << "text that is no UTF-8";
}

TEST(TokenizerErrors, CorruptTiktokenAndConfig) {
  const std::string good = read_all(kFolder + "kimi/tiktoken.model");
  const auto error_of = [](const std::string& text, const std::string& config) {
    const auto tokenizer = Tokenizer::from_tiktoken(text, config);
    return tokenizer.ok() ? std::string("accepted") : tokenizer.error().message();
  };
  EXPECT_EQ(error_of(good, ""), "accepted");
  EXPECT_EQ(error_of("", ""), "tiktoken.model: there is no token for byte 0x00");
  EXPECT_EQ(error_of(good + "IQ==", ""), "tiktoken.model: line 2049 is not a base64 token, a space and a rank");
  EXPECT_EQ(error_of(good + "I*== 5\n", ""), "tiktoken.model: line 2049 has a token that is not base64");
  EXPECT_EQ(error_of(good + "IQ== x\n", ""), "tiktoken.model: line 2049 has a rank that is not a small number");
  EXPECT_EQ(error_of(good + "IQ== 99999999999\n", ""),
            "tiktoken.model: line 2049 has a rank that is not a small number");
  EXPECT_EQ(error_of(good + "enp6eno= 5\n", ""), "tiktoken.model: line 2049 gives rank 5 a second time");
  EXPECT_EQ(error_of(good + "enp6eno= 2050\n", ""), "tiktoken.model: no line has rank 2048");
  EXPECT_EQ(error_of(good + "IQ== 2048\n", ""), "tiktoken.model: rank 2048 has the same bytes as an earlier one");
  EXPECT_EQ(error_of(good, R"({"added_tokens_decoder": {"5": {"content": "<x>"}}})"),
            "tiktoken.model: tokenizer_config.json names \"<x>\" as token 5, but special tokens lie in [2048, 2304)");
  EXPECT_EQ(error_of(good, R"({"added_tokens_decoder": {"2048": {"content": "a"}, "2049": {"content": "a"}}})"),
            "tiktoken.model: tokenizer_config.json gives \"a\" to two special tokens");
  EXPECT_EQ(error_of(good, R"({"added_tokens_decoder": {"x": {"content": "a"}}})"),
            "tokenizer_config.json: \"added_tokens_decoder\" has the key \"x\", which is no token id");
  EXPECT_EQ(error_of(good, R"({"bos_token": "<s>"})"),
            "tokenizer_config.json: bos_token is \"<s>\", which is not in the vocabulary");
  EXPECT_EQ(error_of(good, R"({"add_bos_token": true})"),
            "tokenizer_config.json: add_bos_token is true, but there is no bos_token");
  EXPECT_EQ(error_of(good, R"({"bos_token": 3})"),
            "tokenizer_config.json: \"bos_token\" must be a string but is a number");
}

TEST(TokenizerErrors, MissingFiles) {
  const auto none = Tokenizer::load("/nonexistent");
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().code(), ErrorCode::kNotFound);
  EXPECT_EQ(none.error().message(), "/nonexistent has neither tokenizer.json nor tiktoken.model");
}

// A word of 30,000 bytes must not take quadratic time in any tokenizer: merging, matching and cutting are all near
// linear.
TEST(Tokenizer, LongRunsStayFast) {
  for (const char* name : {"v3", "v2", "glm", "gpt2", "other", "kimi"}) {
    const Tokenizer tokenizer = load(name);
    for (const std::string unit : {"a", "A", " ", "\n", "=", "<", "1", "é", "漢", "\u0301", " x", "\xFF"}) {
      std::string text;
      while (text.size() < 30'000) text += unit;
      // A letter behind white space makes every "only at the end" look-ahead fail.
      for (const std::string& subject : {text, text + "x"}) {
        const std::clock_t start = std::clock();
        const auto ids = tokenizer.encode(subject, {.add_special = false});
        const double cpu_seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
        ASSERT_TRUE(ids.ok()) << name << ": " << ids.error().message();
        // Linear work takes some ms of processor time, quadratic work minutes, however busy the machine is.
        EXPECT_LT(cpu_seconds, 10.0) << name << " on runs of " << unit;
      }
    }
  }
}

}  // namespace
}  // namespace lantern
