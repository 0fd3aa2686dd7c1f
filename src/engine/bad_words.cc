#include "engine/bad_words.h"

#include <fmt/format.h>

#include <algorithm>

namespace lantern {

Result<std::vector<std::vector<int32_t>>> encode_bad_words(const Tokenizer& tokenizer,
                                                           std::span<const std::string> words,
                                                           const BadWordOptions& options) {
  const EncodeOptions encode{.add_special = false, .parse_special = options.parse_special};
  std::vector<std::vector<int32_t>> all;
  all.reserve(2 * words.size());
  for (const std::string& written : words) {
    std::string_view word = written;
    word.remove_prefix(std::min(word.find_first_not_of(' '), word.size()));
    if (word.empty()) {
      return Error(ErrorCode::kInvalidArgument,
                   fmt::format("{} '{}' has no text; give at least one character", options.name, written));
    }
    ASSIGN_OR_RETURN(std::vector<int32_t> plain, tokenizer.encode(word, encode));
    ASSIGN_OR_RETURN(std::vector<int32_t> after_space, tokenizer.encode(fmt::format(" {}", word), encode));
    // Where the second ends with the first, whoever completes the second completes the first.
    const bool contained =
        after_space.size() >= plain.size() && std::equal(plain.rbegin(), plain.rend(), after_space.rbegin());
    all.push_back(std::move(plain));
    if (!contained) all.push_back(std::move(after_space));
  }
  return all;
}

}  // namespace lantern
