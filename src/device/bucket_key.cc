#include "device/bucket_key.h"

#include <fmt/core.h>

namespace lantern {

std::string to_string(const BucketKey& bucket) {
  return fmt::format("{} bucket of {} tokens, {} requests, query width {}",
                     bucket.kind == StepKind::kDecode ? "decode" : "mixed", bucket.tokens, bucket.requests,
                     bucket.query_width);
}

}  // namespace lantern

size_t std::hash<lantern::BucketKey>::operator()(const lantern::BucketKey& bucket) const noexcept {
  uint64_t state = 0;
  for (const int32_t part : {bucket.tokens, bucket.requests, bucket.query_width, static_cast<int32_t>(bucket.kind)}) {
    state = (state ^ static_cast<uint32_t>(part)) * 0x9e3779b97f4a7c15u;
    state ^= state >> 32;
  }
  return static_cast<size_t>(state);
}
