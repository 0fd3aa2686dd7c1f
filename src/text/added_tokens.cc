#include "text/added_tokens.h"

#include <algorithm>

#include "text/unicode_classes.h"

namespace lantern {
namespace {

// Start of the last code point before `end`; the text is valid UTF-8 and end > 0.
size_t previous_start(std::string_view text, size_t end) {
  do {
    --end;
  } while (end > 0 && (static_cast<uint8_t>(text[end]) & 0xC0) == 0x80);
  return end;
}

}  // namespace

void AddedTokenMatcher::Trie::insert(std::string_view content, int32_t token) {
  starts[static_cast<uint8_t>(content[0])] = true;
  size_t node = 0;
  for (const char c : content) {
    const auto byte = static_cast<uint8_t>(c);
    auto& children = nodes[node].children;
    const auto known =
        std::find_if(children.begin(), children.end(), [&](const auto& child) { return child.first == byte; });
    if (known != children.end()) {
      node = static_cast<size_t>(known->second);
      continue;
    }
    children.emplace_back(byte, static_cast<int32_t>(nodes.size()));
    node = nodes.size();
    nodes.emplace_back();
  }
  nodes[node].token = token;
}

int32_t AddedTokenMatcher::Trie::longest(std::string_view text) const {
  int32_t found = -1;
  size_t node = 0;
  for (const char c : text) {
    const auto& children = nodes[node].children;
    const auto child = std::find_if(children.begin(), children.end(),
                                    [&](const auto& entry) { return entry.first == static_cast<uint8_t>(c); });
    if (child == children.end()) break;
    node = static_cast<size_t>(child->second);
    if (nodes[node].token >= 0) found = nodes[node].token;
  }
  return found;
}

AddedTokenMatcher::AddedTokenMatcher(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  for (size_t i = 0; i < tokens_.size(); ++i) {
    (tokens_[i].normalized ? second_ : first_).insert(tokens_[i].content, static_cast<int32_t>(i));
  }
}

void AddedTokenMatcher::cut_with(const Trie& trie, std::string_view text, bool special,
                                 std::vector<Section>& out) const {
  size_t covered = 0, pos = 0;
  while (pos < text.size()) {
    if (!trie.starts[static_cast<uint8_t>(text[pos])]) {
      ++pos;
      continue;
    }
    const int32_t index = trie.longest(text.substr(pos));
    if (index < 0) {
      ++pos;
      continue;
    }
    const AddedToken& token = tokens_[static_cast<size_t>(index)];
    size_t begin = pos, end = pos + token.content.size();
    pos = end;  // even a match that is not wanted hides those that overlap it
    if (!special && token.special) continue;
    if (token.single_word) {
      const bool word_before = begin > 0 && char_at(text, previous_start(text, begin)).any(kWord);
      if (word_before || char_at(text, end).any(kWord)) continue;
    }
    if (token.lstrip) {
      while (begin > covered) {
        const size_t previous = previous_start(text, begin);
        if (!char_at(text, previous).any(kWhiteSpace)) break;
        begin = previous;
      }
      begin = std::max(begin, covered);
    }
    if (token.rstrip) end = skip_while(text, end, kWhiteSpace);
    if (begin > covered) out.push_back({text.substr(covered, begin - covered), -1});
    // White space that an earlier token took may reach into this match.
    out.push_back({text.substr(begin, end - begin), token.id});
    covered = end;
  }
  if (covered < text.size()) out.push_back({text.substr(covered), -1});
}

std::vector<AddedTokenMatcher::Section> AddedTokenMatcher::cut(std::string_view text, bool special) const {
  std::vector<Section> sections, out;
  cut_with(first_, text, special, sections);
  for (const Section& section : sections) {
    if (section.id >= 0) {
      out.push_back(section);
    } else {
      cut_with(second_, section.text, special, out);
    }
  }
  return out;
}

}  // namespace lantern
