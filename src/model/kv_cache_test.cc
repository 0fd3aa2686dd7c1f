#include "model/kv_cache.h"

#include <gtest/gtest.h>

namespace lantern {
namespace {

TEST(KvCacheDtype, EveryNameOfALayout) {
  const auto config = parse_model_config(builtin_config_json("deepseek-v32").value(), {});
  ASSERT_TRUE(config.ok()) << config.error().message();
  struct Case {
    const char* name;
    LatentLayout latent;
    IndexKeyLayout index;
  };
  for (const Case& c : {Case{"auto", LatentLayout::kBf16, IndexKeyLayout::kFp8},
                        {"bf16", LatentLayout::kBf16, IndexKeyLayout::kFp8},
                        {"bfloat16", LatentLayout::kBf16, IndexKeyLayout::kFp8},
                        {"fp8", LatentLayout::kFp8, IndexKeyLayout::kFp8},
                        {"fp8_ds_mla", LatentLayout::kFp8, IndexKeyLayout::kFp8},
                        {"f32", LatentLayout::kF32, IndexKeyLayout::kF32}}) {
    const auto layouts = parse_kv_cache_dtype(c.name, *config);
    ASSERT_TRUE(layouts.ok()) << c.name << ": " << layouts.error().message();
    EXPECT_EQ(layouts->latent, c.latent) << c.name;
    EXPECT_EQ(layouts->index, c.index) << c.name;
  }
  const auto unknown = parse_kv_cache_dtype("int4", *config);
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.error().message(), "--kv-cache-dtype int4 is not known; use auto, bf16, fp8 or f32");
}

}  // namespace
}  // namespace lantern
