// Words that a text must not contain, as token sequences (Request::bad_words).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/tokenizer.h"

namespace lantern {

struct BadWordOptions {
  std::string_view name = "the bad word";  // what an error calls a word
  bool parse_special = false;              // special strings in a word are their tokens
};
// Each word as it is and as it is written after a space, which other tokens stand for. Errors: a word without text.
Result<std::vector<std::vector<int32_t>>> encode_bad_words(const Tokenizer& tokenizer,
                                                           std::span<const std::string> words,
                                                           const BadWordOptions& options = {});

}  // namespace lantern
