#include "device/bucket_key.h"

#include <gtest/gtest.h>

#include <unordered_set>

namespace lantern {
namespace {

TEST(BucketKey, NamesEachDimension) {
  EXPECT_EQ(to_string(BucketKey{12, 4, 3, StepKind::kDecode}), "decode bucket of 12 tokens, 4 requests, query width 3");
  EXPECT_EQ(to_string(BucketKey{1, 1, 1, StepKind::kMixed}), "mixed bucket of 1 tokens, 1 requests, query width 1");
  EXPECT_EQ(to_string(BucketKey{.tokens = 64, .kind = StepKind::kPiece, .piece = 3}),
            "piece 3 of the bucket of 64 tokens");
  EXPECT_EQ(to_string(BucketKey{.tokens = 64, .kind = StepKind::kDraftFillPiece, .piece = 1}),
            "piece 1 of the draft fill bucket of 64 tokens");
}

TEST(BucketKey, DiffersInEachDimension) {
  std::unordered_set<BucketKey> keys;
  std::unordered_set<size_t> hashes;
  for (int32_t tokens = 0; tokens < 20; ++tokens) {
    for (int32_t requests = 0; requests < 20; ++requests) {
      for (int32_t width = 1; width < 6; ++width) {
        for (const StepKind kind : {StepKind::kDecode, StepKind::kMixed, StepKind::kPiece}) {
          for (int32_t piece = 0; piece < 3; ++piece) {
            const BucketKey key{tokens, requests, width, kind, piece};
            EXPECT_TRUE(keys.insert(key).second);
            EXPECT_FALSE(keys.insert(key).second);
            hashes.insert(std::hash<BucketKey>{}(key));
          }
        }
      }
    }
  }
  EXPECT_EQ(hashes.size(), keys.size());
}

}  // namespace
}  // namespace lantern
