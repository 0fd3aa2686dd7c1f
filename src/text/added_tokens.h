// Added tokens are cut out of the text before anything else looks at it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/bpe.h"

namespace lantern {

struct AddedToken {
  TokenId id = -1;
  std::string content;
  bool special = false;
  bool single_word = false;  // only where no word character touches it
  bool lstrip = false;       // takes the white space before it along
  bool rstrip = false;       // ... and after it
  bool normalized = false;   // no effect: the normalizer is always empty
};

// Finds added tokens in text: leftmost, then longest.
class AddedTokenMatcher {
 public:
  // Contents must be different and not empty. Tokens with normalized=false are cut out in a first pass, the others in
  // a second one over what is left, as the tokenizers package does.
  explicit AddedTokenMatcher(std::vector<AddedToken> tokens);

  struct Section {
    std::string_view text;
    TokenId id = -1;  // -1: ordinary text
  };
  // Cuts text into sections. Without `special`, tokens flagged special stay ordinary text.
  std::vector<Section> cut(std::string_view text, bool special) const;

 private:
  struct Trie {
    struct Node {
      int32_t token = -1;  // index into tokens_
      std::vector<std::pair<uint8_t, int32_t>> children;
    };
    std::vector<Node> nodes{1};
    bool starts[256] = {};

    void insert(std::string_view content, int32_t token);
    // Index of the longest token that `text` begins with, or -1.
    int32_t longest(std::string_view text) const;
  };
  void cut_with(const Trie& trie, std::string_view text, bool special, std::vector<Section>& out) const;

  std::vector<AddedToken> tokens_;
  Trie first_, second_;
};

}  // namespace lantern
