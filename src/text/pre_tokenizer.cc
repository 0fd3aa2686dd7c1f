#include "text/pre_tokenizer.h"

#include <algorithm>

#include "text/unicode_classes.h"

namespace lantern {
namespace {

class DigitsPattern final : public SplitPattern {
 public:
  Result<std::optional<Span>> next(std::string_view text, size_t from) const override {
    for (Char c = char_at(text, from); c.size != 0; c = char_at(text, from)) {
      if (c.any(kNumeric)) return std::optional<Span>({from, from + c.size});
      from += c.size;
    }
    return std::optional<Span>();
  }
};

struct Piece {
  Span span;
  bool match = false;
};

// Matches and what lies between them; together they cover the text.
Status find_pieces(const SplitPattern& pattern, std::string_view text, bool invert, std::vector<Piece>& pieces) {
  pieces.clear();
  size_t covered = 0, from = 0;
  bool matched = false;
  while (from <= text.size()) {
    ASSIGN_OR_RETURN(const std::optional<Span> match, pattern.next(text, from));
    if (!match) break;
    const bool empty = match->begin == match->end;
    from = match->end;
    if (empty) from += std::max<size_t>(1, char_at(text, match->end).size);
    // As in Oniguruma's iterator, an empty match right behind the last match does not count.
    if (empty && matched && match->end == covered) continue;
    if (match->begin > covered) pieces.push_back({{covered, match->begin}, invert});
    if (!empty) pieces.push_back({*match, !invert});
    covered = match->end;
    matched = true;
  }
  if (covered < text.size()) pieces.push_back({{covered, text.size()}, invert});
  return {};
}

void apply_behavior(const std::vector<Piece>& pieces, SplitBehavior behavior, size_t base, std::vector<Span>& out) {
  const auto push = [&](Span span) { out.push_back({base + span.begin, base + span.end}); };
  const size_t first = out.size();
  bool previous_match = false;
  switch (behavior) {
    case SplitBehavior::kIsolated:
      for (const Piece& piece : pieces) push(piece.span);
      break;
    case SplitBehavior::kRemoved:
      for (const Piece& piece : pieces) {
        if (!piece.match) push(piece.span);
      }
      break;
    case SplitBehavior::kContiguous:
      for (const Piece& piece : pieces) {
        if (out.size() > first && piece.match == previous_match) {
          out.back().end = base + piece.span.end;
        } else {
          push(piece.span);
        }
        previous_match = piece.match;
      }
      break;
    case SplitBehavior::kMergedWithPrevious:
      for (const Piece& piece : pieces) {
        if (piece.match && !previous_match && out.size() > first) {
          out.back().end = base + piece.span.end;
        } else {
          push(piece.span);
        }
        previous_match = piece.match;
      }
      break;
    case SplitBehavior::kMergedWithNext:
      for (auto piece = pieces.rbegin(); piece != pieces.rend(); ++piece) {
        if (piece->match && !previous_match && out.size() > first) {
          out.back().begin = base + piece->span.begin;
        } else {
          push(piece->span);
        }
        previous_match = piece->match;
      }
      std::reverse(out.begin() + static_cast<std::ptrdiff_t>(first), out.end());
      break;
  }
}

}  // namespace

void PreTokenizer::add_split(std::unique_ptr<SplitPattern> pattern, SplitBehavior behavior, bool invert) {
  steps_.push_back({std::move(pattern), behavior, invert});
}

void PreTokenizer::add_digits(bool individual) {
  add_split(std::make_unique<DigitsPattern>(), individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous,
            false);
}

void PreTokenizer::set_byte_level(bool add_prefix_space, bool use_regex) {
  add_prefix_space_ = add_prefix_space;
  byte_level_pattern_ = use_regex ? make_gpt2_pattern() : nullptr;
}

Status PreTokenizer::split(std::string_view text, std::vector<std::string_view>& words,
                           std::vector<std::unique_ptr<std::string>>& storage) const {
  if (text.empty()) return {};
  std::vector<Span> spans = {{0, text.size()}}, next_spans;
  std::vector<Piece> pieces;
  for (const Step& step : steps_) {
    next_spans.clear();
    for (const Span& span : spans) {
      RETURN_IF_ERROR(find_pieces(*step.pattern, text.substr(span.begin, span.end - span.begin), step.invert, pieces));
      apply_behavior(pieces, step.behavior, span.begin, next_spans);
    }
    spans.swap(next_spans);
  }
  for (const Span& span : spans) {
    std::string_view word = text.substr(span.begin, span.end - span.begin);
    if (add_prefix_space_ && !word.starts_with(' ')) {
      storage.push_back(std::make_unique<std::string>(1, ' '));
      storage.back()->append(word);
      word = *storage.back();
    }
    if (!byte_level_pattern_) {
      words.push_back(word);
      continue;
    }
    RETURN_IF_ERROR(find_pieces(*byte_level_pattern_, word, false, pieces));
    for (const Piece& piece : pieces) words.push_back(word.substr(piece.span.begin, piece.span.end - piece.span.begin));
  }
  return {};
}

}  // namespace lantern
