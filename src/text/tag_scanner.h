// Finds tags in text that arrives in parts.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace lantern {

struct TagMatch {
  size_t before = 0;  // bytes that certainly belong to no tag
  int tag = -1;       // which tag follows them; -1: none yet, what follows may still become one
};

// The first of `tags` in `text`. No tag may be the beginning of another, so that what is found never depends on how
// much text has come. Linear in the text times the length of the tags.
TagMatch find_tag(std::string_view text, std::span<const std::string_view> tags);

}  // namespace lantern
