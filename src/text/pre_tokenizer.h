// Cuts text into the words that byte pairs are merged in: a sequence of splits, then byte-level.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/split_pattern.h"

namespace lantern {

// What becomes of the matches of a split; the names are those of tokenizer.json.
enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

class PreTokenizer {
 public:
  // `invert` swaps what matches and what lies between.
  void add_split(std::unique_ptr<SplitPattern> pattern, SplitBehavior behavior, bool invert);
  // The Digits pre-tokenizer.
  void add_digits(bool individual);
  // The ByteLevel pre-tokenizer, which must come last. `use_regex` splits by GPT-2's pattern.
  void set_byte_level(bool add_prefix_space, bool use_regex);

  // Appends to `words` the pre-tokens of `text` (valid UTF-8), each one contiguous in `text` except that
  // add_prefix_space may put a space in front; `storage` holds such copies and must outlive the words.
  Status split(std::string_view text, std::vector<std::string_view>& words,
               std::vector<std::unique_ptr<std::string>>& storage) const;

 private:
  struct Step {
    std::unique_ptr<SplitPattern> pattern;
    SplitBehavior behavior = SplitBehavior::kIsolated;
    bool invert = false;
  };

  std::vector<Step> steps_;
  bool add_prefix_space_ = false;
  std::unique_ptr<SplitPattern> byte_level_pattern_;
};

}  // namespace lantern
