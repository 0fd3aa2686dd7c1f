#include "device/bucket_key.h"

#include <fmt/core.h>

namespace lantern {

std::string to_string(const BucketKey& bucket) {
  if (bucket.kind == StepKind::kDrafts) {
    return fmt::format("drafts bucket of {} requests, {} passes", bucket.requests, bucket.query_width);
  }
  if (bucket.kind == StepKind::kPiece || bucket.kind == StepKind::kDraftFillPiece) {
    return fmt::format("piece {} of the {}bucket of {} tokens", bucket.piece,
                       bucket.kind == StepKind::kPiece ? "" : "draft fill ", bucket.tokens);
  }
  const char* kind = bucket.kind == StepKind::kDecode ? "decode" : "mixed";
  if (bucket.kind == StepKind::kDraftFill) kind = "draft fill";
  if (bucket.kind == StepKind::kDraftClear) kind = "draft clear";
  return fmt::format("{} bucket of {} tokens, {} requests, query width {}", kind, bucket.tokens, bucket.requests,
                     bucket.query_width);
}

}  // namespace lantern

size_t std::hash<lantern::BucketKey>::operator()(const lantern::BucketKey& bucket) const noexcept {
  uint64_t state = 0;
  for (const int32_t part :
       {bucket.tokens, bucket.requests, bucket.query_width, static_cast<int32_t>(bucket.kind), bucket.piece}) {
    state = (state ^ static_cast<uint32_t>(part)) * 0x9e3779b97f4a7c15u;
    state ^= state >> 32;
  }
  return static_cast<size_t>(state);
}
