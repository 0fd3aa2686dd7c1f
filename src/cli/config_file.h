// A file of settings, one a line, in the part of YAML that this takes:
//
//   # a comment
//   max-model-len: 32k
//   host: "0.0.0.0"                  # quotes as in YAML
//   served-model-name: [tiny, small] # a list, or below it lines "- tiny"
//
// Everything else that YAML has is refused with its line.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace lantern::cli {

struct ConfigEntry {
  std::string name;  // as it is written
  std::vector<std::string> values;
  bool is_list = false;
  int line = 0;  // from 1
};

// Errors: what is no such line, a name that comes twice. They begin with "line N: ".
Result<std::vector<ConfigEntry>> parse_config(std::string_view text);

}  // namespace lantern::cli
