// Hand-written matchers for the pre-tokenizer patterns of the model family. Each function returns the end of the match
// that begins at `pos`, or `pos` if there is none. The alternatives are tried in the order of the published pattern.
#include <array>

#include "text/split_pattern.h"
#include "text/unicode_classes.h"

namespace lantern {
namespace {

constexpr std::string_view kGpt2 = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view kDeepSeekV3 =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kGlm4 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|)"
    R"(\s+(?!\S)|\s+)";
constexpr std::string_view kKimi =
    R"([\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+)"
    R"([\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";

// 's|'t|'re|'ve|'m|'ll|'d. Ignoring case, U+017F (long s) is an s.
size_t match_contraction(std::string_view text, size_t pos, bool ignore_case) {
  if (pos >= text.size() || text[pos] != '\'') return pos;
  const auto lower = [&](size_t i) -> char {
    if (i >= text.size()) return '\0';
    const char c = text[i];
    return ignore_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  };
  const char first = lower(pos + 1), second = lower(pos + 2);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return pos + 2;
  if ((first == 'r' || first == 'v') && second == 'e') return pos + 3;
  if (first == 'l' && second == 'l') return pos + 3;
  if (ignore_case && text.substr(pos + 1).starts_with("\u017F")) return pos + 3;
  return pos;
}

size_t skip_newlines(std::string_view text, size_t pos) {
  while (pos < text.size() && (text[pos] == '\n' || text[pos] == '\r')) ++pos;
  return pos;
}

// \s+(?!\S)|\s+  preceded, if `newlines`, by  \s*[\r\n]+.
size_t match_space(std::string_view text, size_t pos, bool newlines) {
  size_t end = pos, last_begin = pos, newline_end = pos, count = 0;
  for (Char c = char_at(text, end); c.any(kWhiteSpace); c = char_at(text, end)) {
    last_begin = end;
    end += c.size;
    ++count;
    if (c.newline()) newline_end = end;
  }
  if (newlines && newline_end > pos) return newline_end;
  // A run before a visible character leaves its last space to that character.
  return end == text.size() || count < 2 ? end : last_begin;
}

// \p{N}{1,3}
size_t match_number(std::string_view text, size_t pos) {
  for (int i = 0; i < 3; ++i) {
    const Char c = char_at(text, pos);
    if (!c.any(kNumber)) break;
    pos += c.size;
  }
  return pos;
}

// ` ?[^\s\p{L}\p{N}]+` and, if `newlines`, `[\r\n]*` after it.
size_t match_other(std::string_view text, size_t pos, bool newlines) {
  const size_t begin = pos < text.size() && text[pos] == ' ' ? pos + 1 : pos;
  const size_t end = skip_unless(text, begin, kWhiteSpace | kLetter | kNumber);
  if (end == begin) return pos;
  return newlines ? skip_newlines(text, end) : end;
}

size_t match_gpt2(std::string_view text, size_t pos) {
  if (const size_t end = match_contraction(text, pos, false); end > pos) return end;
  const size_t begin = text[pos] == ' ' ? pos + 1 : pos;
  for (const CharMask mask : {kLetter, kNumber}) {
    if (const size_t end = skip_while(text, begin, mask); end > begin) return end;
  }
  if (const size_t end = match_other(text, pos, false); end > pos) return end;
  return match_space(text, pos, false);
}

bool is_ascii_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// Control and format characters and numbers match nothing here: they are left between two matches.
size_t match_deepseek_v3(std::string_view text, size_t pos) {
  const Char first = char_at(text, pos);
  if (first.value < 0x80 && first.any(kPunctuation | kSymbol)) {
    size_t end = pos + 1;
    while (end < text.size() && is_ascii_letter(text[end])) ++end;
    if (end > pos + 1) return end;
  }
  if (!first.newline() && !first.any(kLetter | kPunctuation | kSymbol)) {
    const size_t begin = pos + first.size;
    if (const size_t end = skip_while(text, begin, kLetter | kMark); end > begin) return end;
  }
  if (const size_t end = skip_while(text, pos, kLetter | kMark); end > pos) return end;
  const size_t begin = first.value == ' ' ? pos + 1 : pos;
  if (const size_t end = skip_while(text, begin, kPunctuation | kSymbol); end > begin) return skip_newlines(text, end);
  return match_space(text, pos, true);
}

size_t match_glm4(std::string_view text, size_t pos) {
  if (const size_t end = match_contraction(text, pos, true); end > pos) return end;
  const Char first = char_at(text, pos);
  const size_t begin = first.newline() || first.any(kLetter | kNumber) ? pos : pos + first.size;
  if (const size_t end = skip_while(text, begin, kLetter); end > begin) return end;
  if (const size_t end = match_number(text, pos); end > pos) return end;
  if (const size_t end = match_other(text, pos, true); end > pos) return end;
  return match_space(text, pos, true);
}

constexpr CharMask kKimiUpper = kLetterUpper | kLetterOther | kMark;
constexpr CharMask kKimiLower = kLetterLower | kLetterOther | kMark;

size_t skip_not_han(std::string_view text, size_t pos, CharMask wanted) {
  for (Char c = char_at(text, pos); c.any(wanted) && !c.any(kHan); c = char_at(text, pos)) pos += c.size;
  return pos;
}

// upper*lower+ from `begin`, where upper gives back what lower needs; `begin` if it does not match.
size_t match_upper_lower(std::string_view text, size_t begin) {
  size_t end = begin;
  // Where the last character of the upper run that lower may take begins.
  size_t shared = std::string_view::npos;
  for (Char c = char_at(text, end); c.any(kKimiUpper) && !c.any(kHan); c = char_at(text, end)) {
    if (c.any(kKimiLower)) shared = end;
    end += c.size;
  }
  if (const size_t lower_end = skip_not_han(text, end, kKimiLower); lower_end > end) return lower_end;
  return shared == std::string_view::npos ? begin : skip_not_han(text, shared, kKimiLower);
}

// upper+lower*
size_t match_upper(std::string_view text, size_t begin) {
  const size_t end = skip_not_han(text, begin, kKimiUpper);
  return end == begin ? begin : skip_not_han(text, end, kKimiLower);
}

size_t match_kimi(std::string_view text, size_t pos) {
  if (const size_t end = skip_while(text, pos, kHan); end > pos) return end;
  const Char first = char_at(text, pos);
  const bool may_be_prefix = !first.newline() && !first.any(kLetter | kNumber);
  for (const auto match : {match_upper_lower, match_upper}) {
    for (const bool prefix : {true, false}) {
      if (prefix && !may_be_prefix) continue;
      const size_t begin = prefix ? pos + first.size : pos;
      if (const size_t end = match(text, begin); end > begin) return match_contraction(text, end, true);
    }
  }
  if (const size_t end = match_number(text, pos); end > pos) return end;
  if (const size_t end = match_other(text, pos, true); end > pos) return end;
  return match_space(text, pos, true);
}

class KnownPattern final : public SplitPattern {
 public:
  using MatchAt = size_t (*)(std::string_view text, size_t pos);
  explicit KnownPattern(MatchAt match_at) : match_at_(match_at) {}

  Result<std::optional<Span>> next(std::string_view text, size_t from) const override {
    while (from < text.size()) {
      const size_t end = match_at_(text, from);
      if (end > from) return std::optional<Span>({from, end});
      from += char_at(text, from).size;
    }
    return std::optional<Span>();
  }

 private:
  MatchAt match_at_;
};

}  // namespace

std::unique_ptr<SplitPattern> make_gpt2_pattern() { return std::make_unique<KnownPattern>(match_gpt2); }
std::unique_ptr<SplitPattern> make_kimi_pattern() { return std::make_unique<KnownPattern>(match_kimi); }

std::unique_ptr<SplitPattern> make_known_pattern(std::string_view pattern) {
  std::string spelled;
  for (const char c : pattern) {
    if (c == '\r') {
      spelled += "\\r";
    } else if (c == '\n') {
      spelled += "\\n";
    } else {
      spelled += c;
    }
  }
  if (spelled == kGpt2) return make_gpt2_pattern();
  if (spelled == kDeepSeekV3) return std::make_unique<KnownPattern>(match_deepseek_v3);
  if (spelled == kGlm4) return std::make_unique<KnownPattern>(match_glm4);
  if (spelled == kKimi) return make_kimi_pattern();
  return nullptr;
}

}  // namespace lantern
