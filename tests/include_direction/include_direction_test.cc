#include <gtest/gtest.h>

#include <algorithm>

#include "include_rules.h"

namespace lantern {
namespace {

const SourceTree& tree() {
  static const SourceTree instance = read_source_tree(LANTERN_SOURCE_DIR);
  return instance;
}

TEST(IncludeDirection, TheTreeFollowsTheRules) {
  for (const IncludeViolation& violation : find_include_violations(tree())) {
    ADD_FAILURE() << violation.file << ":" << violation.line << ": " << violation.reason;
  }
}

TEST(IncludeDirection, TheWholeTreeWasRead) {
  // An empty tree follows every rule: some files that every room builds on must be in it.
  for (const char* path : {"src/base/result.h", "src/device/fixed.h", "src/ops/norm_host.cc", "src/attention/mla.h",
                           "src/model/config.h"}) {
    ASSERT_TRUE(tree().contains(path)) << path;
    EXPECT_NE(tree().at(path).find("#include"), std::string::npos) << path;
  }
  EXPECT_GE(tree().size(), 100u);
}

// The real tree with one more file must have exactly one violation more, in that file, for that reason.
void expect_found(const std::string& path, const std::string& text, int line, const std::string& reason) {
  SourceTree planted = tree();
  const size_t before = find_include_violations(planted).size();
  planted[path] = text;
  std::vector<IncludeViolation> own;
  const auto violations = find_include_violations(planted);
  for (const IncludeViolation& violation : violations) {
    if (violation.file == path) own.push_back(violation);
  }
  EXPECT_EQ(violations.size(), before + 1) << path;
  ASSERT_EQ(own.size(), 1u) << path << "\n" << text;
  EXPECT_EQ(own[0].line, line);
  EXPECT_NE(own[0].reason.find(reason), std::string::npos) << own[0].reason;
}

TEST(IncludeDirection, APlantedIncludeOfARoomToTheRightIsFound) {
  expect_found("src/base/planted.h", "#include <vector>\n#include \"device/fixed.h\"\n", 2,
               "base must not include device");
  expect_found("src/attention/planted.cc", "#include \"model/config.h\"\n", 1, "attention must not include model");
  expect_found("src/attention/planted_test.cc", "\n  #  include \"ops/norm.h\"\n", 2, "attention must not include ops");
  expect_found("src/ops/planted.cc", "#include \"attention/mla.h\"\n", 1, "ops must not include attention");
  expect_found("src/text/planted.cc", "#include \"device/device.h\"\n", 1, "text must not include device");
  expect_found("src/model/planted.cu", "#include \"text/tokenizer.h\"\n", 1, "model must not include text");
}

TEST(IncludeDirection, APlantedThirdPartyIsFound) {
  expect_found("src/engine/planted.cc", "#include <boost/json.hpp>\n", 1, "may be included by");
  expect_found("src/base/planted.cc", "#include <spdlog/spdlog.h>\n", 1, "src/base/log.cc only");
  expect_found("src/model/planted.cc", "#include <hwy/highway.h>\n", 1, "may be included by src/ops/");
  expect_found("src/attention/planted.cc", "#include \"boost/json.hpp\"\n", 1, "may be included by");
  expect_found("src/cli/planted.cc", "#include <curl/curl.h>\n", 1, "not known here");
  expect_found("src/ops/planted.h", "#include <gtest/gtest.h>\n", 1, "is for tests");
  expect_found("src/ops/planted.h", "#include <unistd.h>\n", 1, "belong into sources");
  expect_found("src/ops/planted.h", "#include <immintrin.h>\n", 1, "belong into sources");
  expect_found("src/ops/planted_amx.h", "#include <unistd.h>\n", 1, "belong into sources");
}

TEST(IncludeDirection, AThirdPartyBehindAHeaderIsFoundThroughOtherHeaders) {
  SourceTree planted = tree();
  planted["src/model/planted_json.h"] = "#include <boost/json.hpp>\n";
  planted["src/model/planted_config.h"] = "#include \"model/planted_json.h\"\n#include \"model/planted_config.h\"\n";
  const size_t before = find_include_violations(planted).size();
  planted["src/model/planted.cc"] = "#include \"model/planted_config.h\"\n";  // its own room may
  EXPECT_EQ(find_include_violations(planted).size(), before);
  planted["src/engine/planted.cc"] = "#include \"model/planted_config.h\"\n";
  const auto violations = find_include_violations(planted);
  ASSERT_EQ(violations.size(), before + 1);
  const auto it = std::find_if(violations.begin(), violations.end(),
                               [](const auto& violation) { return violation.file == "src/engine/planted.cc"; });
  ASSERT_NE(it, violations.end());
  EXPECT_NE(it->reason.find("brings boost/json.hpp into another room"), std::string::npos) << it->reason;
}

TEST(IncludeDirection, OtherPathsAndRoomsAreFound) {
  expect_found("src/ops/planted.cc", "#include \"norm.h\"\n", 1, "by the path from src/");
  expect_found("src/ops/planted.cc", "#include \"../base/result.h\"\n", 1, "by the path from src/");
  expect_found("src/ops/planted.cc", "#include \"ops/host_op_test.h\"\n", 1, "belongs to tests");
  expect_found("src/misc/planted.cc", "#include \"base/result.h\"\n", 1, "not a room");
  expect_found("include/lantern/planted.h", "#include <cstdint>\n#include \"base/result.h\"\n", 2, "public header");
}

TEST(IncludeDirection, WhatIsAllowedIsNotReported) {
  SourceTree planted = tree();
  const size_t before = find_include_violations(planted).size();
  planted["src/cli/planted.cc"] =
      "// #include <curl/curl.h>\n#include <unistd.h>\n#include <vector>\n#include \"engine/session.h\"\n"
      "#include \"text/tokenizer.h\"\n#include <boost/json.hpp>\n#include HWY_TARGET_INCLUDE\n";
  planted["src/attention/planted.cc"] =
      "#include \"device/fixed.h\"\n#include <hwy/highway.h>\n#include <fmt/core.h>\n";
  planted["include/lantern/planted.h"] = "#include <stdint.h>\n#include <span>\n";
  EXPECT_EQ(find_include_violations(planted).size(), before);
}

}  // namespace
}  // namespace lantern
