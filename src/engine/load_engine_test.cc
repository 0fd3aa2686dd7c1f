#include "engine/load_engine.h"

#include <gtest/gtest.h>

namespace lantern {
namespace {

LoadedEngine load_tiny(int32_t num_draft_tokens, const std::string& drafter = "auto") {
  auto loaded = load_engine({.model_dir = LANTERN_SOURCE_DIR "/models/tiny",
                             .device = "cpu",
                             .threads = 1,
                             .max_num_seqs = 2,
                             .num_draft_tokens = num_draft_tokens,
                             .drafter = drafter,
                             .kv_cache_bytes = int64_t{64} << 20});
  EXPECT_TRUE(loaded.ok()) << loaded.error().message();
  return std::move(loaded).value();
}

TEST(LoadEngineTest, MtpLayersThatNobodyDraftsWithTakeNoMemory) {
  constexpr int64_t kMtpBytes = 6336800;                   // of model.layers.5, by the checkpoint's own headers
  constexpr int64_t kMostPadding = 64 * 256;               // its tensors begin at multiples of 256 bytes
  constexpr int64_t kRowBytes = 2 * (512 + 64) + 128 + 4;  // a latent in bf16, an index key and its scale

  testing::internal::CaptureStderr();
  const LoadedEngine none = load_tiny(0);
  const LoadedEngine ngram = load_tiny(2, "ngram");
  EXPECT_EQ(testing::internal::GetCapturedStderr().find("are not used"), std::string::npos) << "left out on purpose";
  EXPECT_EQ(none.kv_bytes_per_token, 5 * kRowBytes);
  EXPECT_EQ(ngram.weight_bytes, none.weight_bytes);
  EXPECT_EQ(ngram.kv_bytes_per_token, 5 * kRowBytes);

  const LoadedEngine mtp = load_tiny(2);
  EXPECT_GE(mtp.weight_bytes - none.weight_bytes, kMtpBytes);
  EXPECT_LE(mtp.weight_bytes - none.weight_bytes, kMtpBytes + kMostPadding);
  EXPECT_EQ(mtp.kv_bytes_per_token, 6 * kRowBytes);
}

}  // namespace
}  // namespace lantern
