// The strings of the goldens: the same generator as tools/make_text_goldens/corpus.py.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lantern {

// tests/text/fragments.json
std::vector<std::string> load_fragments();

// String `index` of the corpus; not always valid UTF-8.
std::string make_corpus_string(size_t index, const std::vector<std::string>& fragments);

inline constexpr size_t kNumCorpusStrings = 12000;

}  // namespace lantern
