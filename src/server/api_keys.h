// Which keys open which doors.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "server/http.h"

namespace lantern {

// Keys are kept as digests, and every comparison looks at every byte of every one: how long it takes tells nothing of
// how much of a guess was right.
class ApiKeys {
 public:
  ApiKeys() = default;
  // Each entry may be a list with commas. Empty entries are left out.
  explicit ApiKeys(const std::vector<std::string>& keys);

  bool empty() const { return digests_.empty(); }
  bool accepts(std::string_view key) const;

  // One key a line; blank lines and what follows a '#' at the start of a line are left out. Errors: the file's.
  static Result<std::vector<std::string>> read_file(const std::string& path);

 private:
  using Digest = std::array<uint64_t, 2>;
  Digest digest(std::string_view key) const;

  std::array<uint64_t, 4> secret_ = {};  // of this object: a digest says nothing about its key
  std::vector<Digest> digests_;
};

// The key of "Authorization: Bearer KEY" or of "x-api-key: KEY"; empty where there is none.
std::string_view presented_key(const HttpRequest& request);

}  // namespace lantern
