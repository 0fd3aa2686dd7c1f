#include "attention/block_copy.h"

#include <gtest/gtest.h>

#include <vector>

namespace lantern {
namespace {

TEST(BlockCopy, CopiesWholeBlocksAndNothingElse) {
  constexpr int64_t kBlockBytes = 24;
  constexpr int32_t kBlocks = 6;
  const auto device = make_host_device(2);
  Stream stream(*device);
  std::vector<std::byte> cache(kBlockBytes * kBlocks);
  for (size_t i = 0; i < cache.size(); ++i) cache[i] = static_cast<std::byte>(i);
  std::vector<std::byte> expected = cache;
  const std::vector<int32_t> pairs{1, 4, 5, 2, 1, 3};  // one source twice; 0 is no target
  for (size_t i = 0; i < pairs.size(); i += 2) {
    std::copy_n(cache.begin() + pairs[i] * kBlockBytes, kBlockBytes, expected.begin() + pairs[i + 1] * kBlockBytes);
  }
  copy_blocks(stream, {.cache = borrow_fixed(cache.data(), static_cast<int64_t>(cache.size())),
                       .block_bytes = kBlockBytes,
                       .pairs = borrow_fixed(pairs.data(), static_cast<int64_t>(pairs.size())),
                       .count = 3});
  stream.synchronize();
  EXPECT_EQ(cache, expected);
}

}  // namespace
}  // namespace lantern
