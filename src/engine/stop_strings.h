// Stop strings on a stream of text: no part of one is ever let through, wherever the stream is cut.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lantern {

class StopStrings {
 public:
  // Empty strings in the list are ignored: they would match at once.
  explicit StopStrings(std::vector<std::string> strings);

  // Takes more text and returns what is certain not to be part of a stop string. The match that ends first counts, the
  // longest of those that end together. After a match everything further is swallowed.
  std::string feed(std::string_view text);
  // The same, behind what `out` has; null: it is not wanted.
  void feed_to(std::string_view text, std::string* out);
  // At the end of the stream: what was held back because it could have begun a stop string.
  std::string flush();

  bool stopped() const { return matched_ != nullptr; }
  // The stop string that was met; empty before.
  std::string_view matched() const { return matched_ != nullptr ? std::string_view(*matched_) : std::string_view(); }

 private:
  // Bytes at the end of held_ that begin a stop string.
  size_t partial_match_bytes() const;

  std::vector<std::string> strings_;
  std::string held_;
  const std::string* matched_ = nullptr;  // into strings_
};

}  // namespace lantern
