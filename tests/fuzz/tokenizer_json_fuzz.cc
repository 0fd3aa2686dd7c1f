// tokenizer.json, and behind a byte 0x1e tokenizer_config.json. A tokenizer that is accepted gives back the words of a
// text as they were, whole and token by token (CVE-2025-52566, CVE-2025-49847).
#include "base/check.h"
#include "fuzz_input.h"
#include "text/detokenizer.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

using namespace lantern;

namespace {

constexpr std::string_view kTexts[] = {"Hello, world 123!\n  x = y;\tend", "a\xff\xc3\xa9\xe4\xb8\xad\xf0\x9f\x98\x80",
                                       "<think>12345</think>\r\n\r\n   ", ""};

void exercise(const Tokenizer& tokenizer, std::string_view text, bool parse) {
  const Result<std::vector<TokenId>> ids = tokenizer.encode(text, {.add_special = parse, .parse_special = parse});
  if (!ids.ok()) return;  // a pattern of the file's own may be too hard for this text
  std::string streamed;
  Detokenizer detokenizer(tokenizer, /*skip_special=*/false);
  for (const TokenId id : *ids) {
    CHECK(id >= 0 && id < tokenizer.vocab_size(), "id {} is outside of the vocabulary", id);
    const std::string piece = detokenizer.add(id);
    CHECK(is_valid_utf8(piece), "a piece ends inside of a character");
    streamed += piece;
  }
  streamed += detokenizer.flush();
  CHECK(streamed == tokenizer.decode(*ids), "streamed text differs from the whole");
  if (parse) return;
  // A file may ask for a space in front, or for parts to be dropped.
  const Result<std::vector<std::string>> words = tokenizer.words(replace_invalid_utf8(text));
  CHECK(words.ok(), "a text was encoded that has no words");
  std::string joined;
  for (const std::string& word : *words) joined += word;
  CHECK(streamed == joined, "the text comes back as {}", streamed);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  test::FuzzInput input(data, size);
  const std::string_view file = input.part();
  const Result<Tokenizer> tokenizer = Tokenizer::from_json(file, input.rest());
  if (!tokenizer.ok()) {
    CHECK(!tokenizer.error().message().empty(), "a refusal says nothing");
    return 0;
  }
  for (const std::string_view text : kTexts) {
    exercise(*tokenizer, text, true);
    exercise(*tokenizer, text, false);
  }
  return 0;
}
