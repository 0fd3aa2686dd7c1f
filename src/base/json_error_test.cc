#include "base/json_error.h"

#include <gtest/gtest.h>

namespace lantern {
namespace {

TEST(JsonError, SaysWhereReadingStopped) {
  EXPECT_EQ(json_error("{\n \"a\": 1,\n \"b\" 2}").message(),
            "not valid JSON at line 3, column 6, byte 16 of 18 (syntax error)");
  EXPECT_EQ(json_error("").message(), "not valid JSON at line 1, column 1, byte 0 of 0 (it ends too early)");
  EXPECT_EQ(json_error("{\n").message(), "not valid JSON at line 2, column 1, byte 2 of 2 (it ends too early)");
  EXPECT_EQ(json_error("{} x").message(), "not valid JSON at line 1, column 4, byte 3 of 4 (extra data)");
  EXPECT_EQ(json_error("[\n[1]]", 1).message(), "not valid JSON at line 2, column 1, byte 2 of 6 (too deep)");
  EXPECT_EQ(json_error("[]", 1).code(), ErrorCode::kCorrupt);
}

}  // namespace
}  // namespace lantern
