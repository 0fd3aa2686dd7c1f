#include "engine/step_buckets.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace lantern {
namespace {

TEST(CaptureSizes, StepsGrowWithTheSize) {
  EXPECT_EQ(capture_sizes(1), (std::vector<int32_t>{1}));
  EXPECT_EQ(capture_sizes(3), (std::vector<int32_t>{1, 2, 3}));
  EXPECT_EQ(capture_sizes(20), (std::vector<int32_t>{1, 2, 4, 8, 16, 20}));
  const std::vector<int32_t> many = capture_sizes(600);
  EXPECT_TRUE(std::ranges::is_sorted(many, std::less_equal<>()));
  for (const int32_t size : {8, 16, 24, 248, 256, 272, 512, 544, 600})
    EXPECT_TRUE(std::ranges::count(many, size)) << size;
  for (const int32_t size : {3, 5, 12, 264, 520, 608}) EXPECT_FALSE(std::ranges::count(many, size)) << size;
}

TEST(PieceSizes, GrowByAQuarterAtMostAndEndWhereLaunchesDoNotShow) {
  EXPECT_EQ(piece_sizes(1), (std::vector<int32_t>{1}));
  EXPECT_EQ(piece_sizes(70), (std::vector<int32_t>{1, 2, 4, 8, 16, 24, 32, 40, 48, 56, 64, 70}));
  const std::vector<int32_t> most = piece_sizes(100000);
  EXPECT_EQ(most.back(), kMostTokensInPieces);
  EXPECT_EQ(most, piece_sizes(kMostTokensInPieces));
  EXPECT_EQ(most.size(), 11u + 5 * 4);
  for (size_t i = 1; i < most.size(); ++i) {
    EXPECT_GT(most[i], most[i - 1]);
    if (most[i] > 32) {
      EXPECT_LE(4 * most[i], 5 * most[i - 1]) << most[i];
    }
  }
}

StepLimits limits_of(int32_t max_requests, int32_t max_query_len) {
  StepLimits limits;
  limits.max_requests = max_requests;
  limits.max_query_len = max_query_len;
  limits.max_tokens = max_requests * max_query_len;
  return limits;
}

TEST(StepBuckets, HoldEveryStepAndAreListed) {
  for (const int32_t max_requests : {1, 3, 64}) {
    for (const int32_t width : {1, 4}) {
      const StepBuckets buckets(limits_of(max_requests, width), width - 1);
      const std::vector<BucketKey> decodes = buckets.decodes();
      ASSERT_EQ(buckets.most_tokens(), max_requests * width);
      for (int32_t tokens = 1; tokens <= max_requests * width; ++tokens) {
        const BucketKey bucket = buckets.of_decodes(tokens);
        EXPECT_GE(bucket.tokens, tokens);
        EXPECT_LE(bucket.tokens, std::max(tokens + 7, 2 * tokens));
        // As many requests as tokens may come, but for those that the engine does not have.
        EXPECT_GE(bucket.requests, std::min(tokens, max_requests));
        EXPECT_LE(bucket.requests, max_requests);
        EXPECT_EQ(bucket.query_width, width);
        EXPECT_EQ(std::ranges::count(decodes, bucket), 1);
      }
      for (int32_t tokens = 1; tokens <= max_requests * width; ++tokens) {
        const BucketKey bucket = buckets.of_pieces(tokens, StepKind::kPiece);
        EXPECT_GE(bucket.tokens, tokens);
        EXPECT_LE(bucket.tokens, std::max(tokens + 7, 2 * tokens));
        EXPECT_EQ(std::ranges::count(buckets.piece_tokens(), bucket.tokens), 1);
        EXPECT_EQ(buckets.widest_in_pieces(bucket.tokens).bucket.tokens, bucket.tokens);
      }
      const std::vector<BucketKey> drafts = buckets.drafts();
      for (int32_t requests = 1; requests <= max_requests && width > 1; ++requests) {
        for (int32_t passes = 1; passes < width; ++passes) {
          const BucketKey bucket = buckets.of_drafts(requests, passes);
          EXPECT_GE(bucket.requests, requests);
          EXPECT_EQ(bucket.query_width, passes);
          EXPECT_EQ(std::ranges::count(drafts, bucket), 1);
        }
      }
      EXPECT_EQ(drafts.empty(), width == 1);
    }
  }
}

TEST(StepBucketsDeathTest, RefuseWhatIsLargerThanAll) {
  const StepBuckets buckets(limits_of(4, 2), 1);
  EXPECT_DEATH((void)buckets.of_decodes(9), "9 do not fit the largest bucket, 8");
  EXPECT_DEATH((void)buckets.of_pieces(9, StepKind::kPiece), "9 do not fit the largest bucket, 8");
  EXPECT_DEATH((void)buckets.of_drafts(1, 2), "2 passes of a drafter that makes 1");
}

}  // namespace
}  // namespace lantern
