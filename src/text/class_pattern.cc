// Patterns made of one character class, which is what DeepSeek-V2 and -V3 cut with before their main pattern.
#include <algorithm>
#include <limits>
#include <vector>

#include "text/split_pattern.h"
#include "text/unicode_classes.h"

namespace lantern {
namespace {

struct CharSet {
  struct Range {
    char32_t first, last;
  };
  std::vector<Range> ranges;  // sorted by first
  CharMask mask = 0;
  bool negated = false;

  bool contains(const Char& c) const {
    if (c.size == 0) return false;
    bool found = c.any(mask);
    if (!found) {
      auto it = std::upper_bound(ranges.begin(), ranges.end(), c.value,
                                 [](char32_t value, const Range& range) { return value < range.first; });
      found = it != ranges.begin() && c.value <= std::prev(it)->last;
    }
    return found != negated;
  }
};

// Reads the small grammar; every method returns false for what it does not know, and PCRE2 gets the pattern.
class ClassReader {
 public:
  explicit ClassReader(std::string_view text) : text_(text) {}

  bool at_end() const { return pos_ == text_.size(); }

  bool eat(std::string_view literal) {
    if (!text_.substr(pos_).starts_with(literal)) return false;
    pos_ += literal.size();
    return true;
  }

  bool read_atom(CharSet* set) {
    if (eat("\\s")) {
      set->mask = kWhiteSpace;
      return true;
    }
    if (eat("\\p{")) return read_property(set);
    return eat("[") && read_class(set);
  }

  // "" is {1,1}, "+" is {1,}, "{1,n}".
  bool read_quantifier(size_t* max_count) {
    *max_count = 1;
    if (at_end()) return true;
    if (eat("+")) {
      *max_count = std::numeric_limits<size_t>::max();
      return at_end();
    }
    if (!eat("{1,")) return false;
    size_t n = 0;
    while (!at_end() && text_[pos_] >= '0' && text_[pos_] <= '9' && n < 1000) {
      n = n * 10 + static_cast<size_t>(text_[pos_++] - '0');
    }
    *max_count = n;
    return n >= 1 && eat("}") && at_end();
  }

 private:
  bool read_property(CharSet* set) {
    static constexpr struct {
      std::string_view name;
      CharMask mask;
    } kProperties[] = {{"L}", kLetter},      {"M}", kMark},   {"N}", kNumber},
                       {"P}", kPunctuation}, {"S}", kSymbol}, {"Han}", kHan}};
    for (const auto& property : kProperties) {
      if (eat(property.name)) {
        set->mask |= property.mask;
        return true;
      }
    }
    return false;
  }

  bool read_class(CharSet* set) {
    set->negated = eat("^");
    bool first = true;
    for (; !eat("]"); first = false) {
      if (at_end()) return false;
      if (eat("\\p{")) {
        if (!read_property(set)) return false;
        continue;
      }
      if (eat("\\s")) {
        set->mask |= kWhiteSpace;
        continue;
      }
      char32_t low = 0, high = 0;
      if (!read_char(first, &low)) return false;
      high = low;
      // A hyphen is a range only between two plain characters.
      if (text_.substr(pos_).starts_with("-") && !text_.substr(pos_).starts_with("-]")) {
        ++pos_;
        if (!read_char(false, &high) || high < low) return false;
      }
      set->ranges.push_back({low, high});
    }
    if (first) return false;
    std::sort(set->ranges.begin(), set->ranges.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    // Merge overlaps so that the search may look at one range only.
    std::vector<CharSet::Range> merged;
    for (const auto& range : set->ranges) {
      if (!merged.empty() && range.first <= merged.back().last) {
        merged.back().last = std::max(merged.back().last, range.last);
      } else {
        merged.push_back(range);
      }
    }
    set->ranges = std::move(merged);
    return true;
  }

  // One literal or escaped character. Nested classes, intersections and a stray hyphen are not read here.
  bool read_char(bool first, char32_t* out) {
    if (at_end()) return false;
    if (eat("\\")) {
      if (at_end()) return false;
      const char c = text_[pos_++];
      switch (c) {
        case 'r': *out = '\r'; return true;
        case 'n': *out = '\n'; return true;
        case 't': *out = '\t'; return true;
        default:
          // \d, \w, \x and the like have a meaning of their own.
          *out = static_cast<char32_t>(c);
          return static_cast<unsigned char>(c) < 0x80 &&
                 !((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'));
      }
    }
    const Utf8Step step = decode_utf8(text_, pos_);
    if (!step.valid || step.value == '[' || step.value == '&' || (step.value == '-' && !first)) return false;
    pos_ += step.size;
    *out = step.value;
    return true;
  }

  std::string_view text_;
  size_t pos_ = 0;
};

class ClassPattern final : public SplitPattern {
 public:
  ClassPattern(bool space_before, CharSet set, size_t max_count)
      : space_before_(space_before), set_(std::move(set)), max_count_(max_count) {}

  Result<std::optional<Span>> next(std::string_view text, size_t from) const override {
    while (from < text.size()) {
      const Char c = char_at(text, from);
      if (space_before_ && c.any(kWhiteSpace)) {
        const size_t begin = from + c.size;
        if (const size_t end = run_end(text, begin); end > begin) return std::optional<Span>({from, end});
      }
      if (const size_t end = run_end(text, from); end > from) return std::optional<Span>({from, end});
      from += c.size;
    }
    return std::optional<Span>();
  }

 private:
  size_t run_end(std::string_view text, size_t pos) const {
    for (size_t count = 0; count < max_count_; ++count) {
      const Char c = char_at(text, pos);
      if (!set_.contains(c)) break;
      pos += c.size;
    }
    return pos;
  }

  bool space_before_;
  CharSet set_;
  size_t max_count_;
};

// `\s+$`: in Ruby syntax `$` also stands before any LF.
class TrailingSpacePattern final : public SplitPattern {
 public:
  Result<std::optional<Span>> next(std::string_view text, size_t from) const override {
    while (from < text.size()) {
      const Char first = char_at(text, from);
      if (!first.any(kWhiteSpace)) {
        from += first.size;
        continue;
      }
      // The longest part of the run that is followed by the end or by an LF.
      size_t end = from, match_end = from;
      for (Char c = first; c.any(kWhiteSpace); c = char_at(text, end)) {
        if (c.value == '\n' && end > from) match_end = end;
        end += c.size;
      }
      if (end == text.size()) match_end = end;
      if (match_end > from) return std::optional<Span>({from, match_end});
      // What fails at the start of a run fails inside of it, unless the run begins with an LF, which then
      // has no other LF after it.
      from = end;
    }
    return std::optional<Span>();
  }
};

class LiteralPattern final : public SplitPattern {
 public:
  explicit LiteralPattern(std::string literal) : literal_(std::move(literal)) {}

  Result<std::optional<Span>> next(std::string_view text, size_t from) const override {
    const size_t begin = literal_.empty() ? std::string_view::npos : text.find(literal_, from);
    if (begin == std::string_view::npos) return std::optional<Span>();
    return std::optional<Span>({begin, begin + literal_.size()});
  }

 private:
  std::string literal_;
};

}  // namespace

std::unique_ptr<SplitPattern> make_class_pattern(std::string_view pattern) {
  if (pattern == "\\s+$") return std::make_unique<TrailingSpacePattern>();
  ClassReader reader(pattern);
  const bool space_before = reader.eat("\\s?");
  CharSet set;
  size_t max_count = 0;
  if (!reader.read_atom(&set) || !reader.read_quantifier(&max_count)) return nullptr;
  return std::make_unique<ClassPattern>(space_before, std::move(set), max_count);
}

std::unique_ptr<SplitPattern> make_literal_pattern(std::string literal) {
  return std::make_unique<LiteralPattern>(std::move(literal));
}

Result<std::unique_ptr<SplitPattern>> make_split_pattern(std::string_view pattern) {
  if (auto known = make_known_pattern(pattern)) return known;
  if (auto simple = make_class_pattern(pattern)) return simple;
  return make_pcre_pattern(pattern);
}

}  // namespace lantern
