// The rules that keep includes pointing one way, applied to the text of a source tree:
//   1. a room includes itself and the rooms to its left (kRooms in include_rules.cc), by paths from src/;
//   2. a third-party header is included only where its wrapping files are (kThirdParties);
//   3. no header that another room includes leads to a third party (fmt excepted), however many headers lie between;
//   4. only tests, which have _test in their name, include test frameworks and other tests;
//   5. include/ includes the standard library and itself.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace lantern {

// Path from the root of the checkout ("src/ops/norm.h") to contents.
using SourceTree = std::map<std::string, std::string>;

struct IncludeViolation {
  std::string file;
  int line = 0;
  std::string reason;  // one sentence: what is wrong and what is allowed
};

// Every .h, .cc, .cu, .cuh and .inc file of src/ and include/ under `root`.
SourceTree read_source_tree(const std::string& root);

std::vector<IncludeViolation> find_include_violations(const SourceTree& tree);

}  // namespace lantern
