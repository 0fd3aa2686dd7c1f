#include "engine/graph_mode.h"

#include <gtest/gtest.h>

namespace lantern {
namespace {

TEST(GraphMode, NamesAreReadAndWritten) {
  for (const GraphMode mode : {GraphMode::kNone, GraphMode::kFull, GraphMode::kVerify}) {
    const Result<GraphMode> read = parse_graph_mode(to_string(mode), DeviceKind::kCpu);
    ASSERT_TRUE(read.ok());
    EXPECT_EQ(*read, mode);
  }
}

TEST(GraphMode, AutoIsWhatIsFastOnTheDevice) {
  EXPECT_EQ(parse_graph_mode("auto", DeviceKind::kCpu).value(), GraphMode::kNone);
  EXPECT_EQ(parse_graph_mode("auto", DeviceKind::kCuda).value(), GraphMode::kFull);
}

TEST(GraphMode, RefusalsSayWhatToUse) {
  const Result<GraphMode> piecewise = parse_graph_mode("piecewise", DeviceKind::kCpu);
  ASSERT_FALSE(piecewise.ok());
  EXPECT_EQ(piecewise.error().code(), ErrorCode::kUnsupported);
  EXPECT_NE(piecewise.error().message().find("use full"), std::string::npos);
  const Result<GraphMode> unknown = parse_graph_mode("fast", DeviceKind::kCpu);
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.error().message(), "graphs 'fast' are not known; use auto, none, full or verify");
}

}  // namespace
}  // namespace lantern
