// Split patterns that have no matcher of their own, through PCRE2.
#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include "text/split_pattern.h"
#include "text/unicode_classes.h"

namespace lantern {
namespace {

constexpr size_t kMaxPatternBytes = 1 << 16;
constexpr size_t kJitStackBytes = 1 << 20;
constexpr uint32_t kMatchLimit = 10'000'000;

// Oniguruma's classes written out, for use inside of a bracket. PCRE2's own \s and \w differ in a few characters.
constexpr std::string_view kSpaceItems =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr std::string_view kHexItems = "0-9A-Fa-f";

Error unsupported(std::string_view what, std::string_view pattern) {
  return Error(ErrorCode::kUnsupported,
               fmt::format("the split pattern uses {}, which Lantern cannot match as the tokenizers package does: {}",
                           what, pattern.substr(0, 200)));
}

// The code points whose mask has a wanted and no unwanted bit, written as items of a class.
std::string class_items(CharMask wanted, CharMask unwanted) {
  std::string items;
  uint32_t first = 0, last = 0;
  bool open = false;
  const auto close = [&]() {
    if (open)
      items += first == last ? fmt::format("\\x{{{:x}}}", first) : fmt::format("\\x{{{:x}}}-\\x{{{:x}}}", first, last);
    open = false;
  };
  for (size_t i = 0; i < kNumUnicodeRanges; ++i) {
    const UnicodeRange& range = kUnicodeRanges[i];
    if ((range.mask & wanted) == 0 || (range.mask & unwanted) != 0) continue;
    if (open && range.first == last + 1) {
      last = range.last;
      continue;
    }
    close();
    first = range.first;
    last = range.last;
    open = true;
  }
  close();
  return items;
}

// Properties are written out, because PCRE2 may know an older Unicode than Oniguruma. Empty for a name that is not in
// our table: PCRE2's own meaning is taken.
std::string property_items(std::string_view name) {
  if (name == "L") return class_items(kLetter, 0);
  if (name == "Lu") return class_items(kLetterUpper, kTitlecase);
  if (name == "Lt") return class_items(kTitlecase, 0);
  if (name == "Ll") return class_items(kLetterLower, 0);
  if (name == "Lm") return class_items(kModifierLetter, 0);
  if (name == "Lo") return class_items(kLetterOther, kModifierLetter);
  if (name == "M") return class_items(kMark, 0);
  if (name == "N") return class_items(kNumber, 0);
  if (name == "Nd") return class_items(kDecimalDigit, 0);
  if (name == "P") return class_items(kPunctuation, 0);
  if (name == "S") return class_items(kSymbol, 0);
  if (name == "Han") return class_items(kHan, 0);
  return {};
}

// PCRE2 takes a bare script name for the extended property, Oniguruma for the plain one.
bool is_script(std::string_view name) {
  const std::string probe = fmt::format("\\p{{sc:{}}}", name);
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(probe.data()), probe.size(), PCRE2_UTF | PCRE2_UCP,
                                   &error, &offset, nullptr);
  pcre2_code_free(code);
  return code != nullptr;
}

// Rewrites Oniguruma's Ruby syntax to PCRE2's.
Result<std::string> translate(std::string_view pattern) {
  std::string out;
  bool in_class = false;
  size_t class_begin = 0;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\') {
      if (++i == pattern.size()) {
        return Error(ErrorCode::kCorrupt, fmt::format("the split pattern ends in a backslash: {}", pattern));
      }
      const char escaped = pattern[i];
      std::string items;
      const size_t brace = pattern.substr(i + 1).starts_with('{') ? pattern.find('}', i) : std::string_view::npos;
      const std::string_view name =
          brace == std::string_view::npos ? std::string_view() : pattern.substr(i + 2, brace - i - 2);
      if (escaped == 's' || escaped == 'S') items = kSpaceItems;
      if (escaped == 'w' || escaped == 'W') items = class_items(kLetter | kMark | kNumber, 0) + "\\p{Pc}";
      if (escaped == 'd' || escaped == 'D') items = class_items(kDecimalDigit, 0);
      if (escaped == 'h' || escaped == 'H') items = kHexItems;
      if (escaped == 'p' || escaped == 'P') {
        items = property_items(name);
        if (!items.empty()) i = brace;
      }
      if (items.empty()) {
        // \b depends on \w; the others have another meaning or none in PCRE2.
        if (std::string_view("bBZGKRXNOyYkg").find(escaped) != std::string_view::npos) {
          return unsupported(fmt::format("\\{}", escaped), pattern);
        }
        out += '\\';
        out += escaped;
        // The braces of \p{Greek} and \x{41} are no repeat.
        if (brace != std::string_view::npos) {
          out += (escaped == 'p' || escaped == 'P') && is_script(name) ? fmt::format("{{sc:{}}}", name)
                                                                       : fmt::format("{{{}}}", name);
          i = brace;
        }
      } else if (escaped >= 'a') {
        out += in_class ? items : fmt::format("[{}]", items);
      } else if (in_class) {
        return unsupported(fmt::format("\\{} inside of a character class", escaped), pattern);
      } else {
        out += fmt::format("[^{}]", items);
      }
      continue;
    }
    if (in_class) {
      if (c == '&' && pattern.substr(i).starts_with("&&")) return unsupported("a class intersection (&&)", pattern);
      if (c == '[') return unsupported("a nested character class", pattern);
      const bool first = i == class_begin + 1 || (i == class_begin + 2 && pattern[i - 1] == '^');
      if (c == ']' && !first) in_class = false;
      if (c == ']' && first) return unsupported("an unescaped ] at the start of a class", pattern);
    } else if (c == '[') {
      in_class = true;
      class_begin = i;
    } else if (c == '(' && pattern.substr(i).starts_with("(?") && !pattern.substr(i).starts_with("(?:") &&
               !pattern.substr(i).starts_with("(?i:") && !pattern.substr(i).starts_with("(?=") &&
               !pattern.substr(i).starts_with("(?!") && !pattern.substr(i).starts_with("(?>") &&
               !pattern.substr(i).starts_with("(?<=") && !pattern.substr(i).starts_with("(?<!")) {
      return unsupported("a group of the form " + std::string(pattern.substr(i, 4)), pattern);
    } else if (c == '(' && pattern.substr(i).starts_with("(*")) {
      return unsupported("a group of the form (*", pattern);
    } else if (c == '}' && i + 1 < pattern.size() && pattern[i + 1] == '+') {
      return unsupported("a + after a counted repeat", pattern);
    }
    out += c;
  }
  return out;
}

struct CodeDeleter {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct MatchDataDeleter {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};
struct ContextDeleter {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};
struct JitStackDeleter {
  void operator()(pcre2_jit_stack* stack) const { pcre2_jit_stack_free(stack); }
};

// What one thread needs to match.
struct MatchState {
  std::unique_ptr<pcre2_match_data, MatchDataDeleter> data{pcre2_match_data_create(1, nullptr)};
  std::unique_ptr<pcre2_match_context, ContextDeleter> context{pcre2_match_context_create(nullptr)};
  std::unique_ptr<pcre2_jit_stack, JitStackDeleter> stack{pcre2_jit_stack_create(32 * 1024, kJitStackBytes, nullptr)};

  MatchState() {
    if (!context) return;
    pcre2_set_match_limit(context.get(), kMatchLimit);
    if (stack) pcre2_jit_stack_assign(context.get(), nullptr, stack.get());
  }
};

class PcrePattern final : public SplitPattern {
 public:
  PcrePattern(std::unique_ptr<pcre2_code, CodeDeleter> code, std::string pattern)
      : code_(std::move(code)), pattern_(std::move(pattern)) {}

  Result<std::optional<Span>> next(std::string_view text, size_t from) const override {
    thread_local MatchState state;
    if (!state.data || !state.context) return Error(ErrorCode::kOutOfMemory, "no memory to match a split pattern");
    const auto subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    int rc =
        pcre2_match(code_.get(), subject, text.size(), from, PCRE2_NO_UTF_CHECK, state.data.get(), state.context.get());
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) {
      rc = pcre2_match(code_.get(), subject, text.size(), from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, state.data.get(),
                       state.context.get());
    }
    if (rc == PCRE2_ERROR_NOMATCH) return std::optional<Span>();
    if (rc < 0) {
      PCRE2_UCHAR message[256] = {};
      pcre2_get_error_message(rc, message, sizeof(message));
      return Error(ErrorCode::kUnsupported, fmt::format("the split pattern cannot be matched on this text ({}): {}",
                                                        reinterpret_cast<const char*>(message), pattern_));
    }
    const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(state.data.get());
    return std::optional<Span>({ends[0], ends[1]});
  }

 private:
  std::unique_ptr<pcre2_code, CodeDeleter> code_;
  std::string pattern_;
};

}  // namespace

Result<std::unique_ptr<SplitPattern>> make_pcre_pattern(std::string_view pattern) {
  if (pattern.size() > kMaxPatternBytes) {
    return Error(ErrorCode::kUnsupported,
                 fmt::format("a split pattern has {} bytes, more than {}", pattern.size(), kMaxPatternBytes));
  }
  ASSIGN_OR_RETURN(const std::string translated, translate(pattern));
  int error = 0;
  PCRE2_SIZE offset = 0;
  std::unique_ptr<pcre2_code, CodeDeleter> code(
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error, &offset, nullptr));
  if (!code) {
    PCRE2_UCHAR message[256] = {};
    pcre2_get_error_message(error, message, sizeof(message));
    return Error(ErrorCode::kUnsupported, fmt::format("the split pattern does not compile ({}): {}",
                                                      reinterpret_cast<const char*>(message), pattern));
  }
  // Without JIT support the interpreter gives the same matches.
  (void)pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);
  return std::unique_ptr<SplitPattern>(std::make_unique<PcrePattern>(std::move(code), std::string(pattern)));
}

}  // namespace lantern
