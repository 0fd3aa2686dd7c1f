// Patterns that cut text into pre-tokens, with the meaning they have in the tokenizers package (Oniguruma, Ruby syntax)
// or in tiktoken (Rust regex).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace lantern {

struct Span {
  size_t begin = 0;
  size_t end = 0;  // bytes

  friend bool operator==(const Span&, const Span&) = default;
};

// Immutable and safe to use from several threads.
class SplitPattern {
 public:
  virtual ~SplitPattern() = default;

  // The leftmost match that begins at or after `from`, or none. `text` is valid UTF-8 and `from` lies on a code point;
  // look-around sees `text` alone. A match may be empty only for a PCRE2 pattern. Fails only where PCRE2 reaches a
  // resource limit.
  virtual Result<std::optional<Span>> next(std::string_view text, size_t from) const = 0;
};

// The patterns below are matched by hand: GPT-2's, DeepSeek-V3's third, the one GLM-4 and later share with cl100k, and
// Kimi's. `pattern` must be spelled as published, except that CR and LF may be literal. Null for any other.
std::unique_ptr<SplitPattern> make_known_pattern(std::string_view pattern);

std::unique_ptr<SplitPattern> make_gpt2_pattern();
std::unique_ptr<SplitPattern> make_kimi_pattern();

// Patterns of the form  [\s?] class [+ or {1,n}],  and `\s+$`. Null for anything else.
std::unique_ptr<SplitPattern> make_class_pattern(std::string_view pattern);

// A literal string.
std::unique_ptr<SplitPattern> make_literal_pattern(std::string literal);

// Anything else, through PCRE2 (UTF, UCP, JIT); \s, \w and \h are given Oniguruma's meaning. Refuses by name what has
// no counterpart there.
Result<std::unique_ptr<SplitPattern>> make_pcre_pattern(std::string_view pattern);

// The first of the above that knows the pattern.
Result<std::unique_ptr<SplitPattern>> make_split_pattern(std::string_view pattern);

}  // namespace lantern
