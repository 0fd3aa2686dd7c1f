#include "engine/graph_mode.h"

#include <gtest/gtest.h>

namespace lantern {
namespace {

TEST(GraphMode, NamesAreReadAndWritten) {
  for (const GraphMode mode :
       {GraphMode::kNone, GraphMode::kPiecewise, GraphMode::kFull, GraphMode::kFullAndPiecewise, GraphMode::kVerify}) {
    const Result<GraphMode> read = parse_graph_mode(to_string(mode), DeviceKind::kCpu);
    ASSERT_TRUE(read.ok());
    EXPECT_EQ(*read, mode);
  }
  EXPECT_EQ(to_string(GraphMode::kFullAndPiecewise), "full_and_piecewise");
}

TEST(GraphMode, AutoIsWhatIsFastOnTheDevice) {
  EXPECT_EQ(parse_graph_mode("auto", DeviceKind::kCpu).value(), GraphMode::kNone);
  EXPECT_EQ(parse_graph_mode("auto", DeviceKind::kCuda).value(), GraphMode::kFull);
}

TEST(GraphMode, SaysWhatItCaptures) {
  EXPECT_FALSE(captures_whole(GraphMode::kNone) || captures_pieces(GraphMode::kNone));
  EXPECT_TRUE(captures_pieces(GraphMode::kPiecewise) && !captures_whole(GraphMode::kPiecewise));
  EXPECT_TRUE(captures_whole(GraphMode::kFull) && !captures_pieces(GraphMode::kFull));
  EXPECT_TRUE(captures_whole(GraphMode::kFullAndPiecewise) && captures_pieces(GraphMode::kFullAndPiecewise));
  EXPECT_TRUE(captures_whole(GraphMode::kVerify) && captures_pieces(GraphMode::kVerify));
}

TEST(GraphMode, RefusalsSayWhatToUse) {
  const Result<GraphMode> unknown = parse_graph_mode("fast", DeviceKind::kCpu);
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(unknown.error().message(),
            "graphs 'fast' are not known; use auto, none, piecewise, full, full_and_piecewise or verify");
}

}  // namespace
}  // namespace lantern
