#include "text/tag_scanner.h"

#include <algorithm>
#include <array>

namespace lantern {

TagMatch find_tag(std::string_view text, std::span<const std::string_view> tags) {
  std::array<bool, 256> first{};
  for (const std::string_view tag : tags) first[static_cast<uint8_t>(tag[0])] = true;
  for (size_t at = 0; at < text.size(); ++at) {
    if (!first[static_cast<uint8_t>(text[at])]) continue;
    const std::string_view rest = text.substr(at);
    bool may_become = false;
    for (size_t i = 0; i < tags.size(); ++i) {
      const size_t size = std::min(rest.size(), tags[i].size());
      if (rest.substr(0, size) != tags[i].substr(0, size)) continue;
      if (size == tags[i].size()) return {at, static_cast<int>(i)};
      may_become = true;
    }
    if (may_become) return {at, -1};
  }
  return {text.size(), -1};
}

}  // namespace lantern
