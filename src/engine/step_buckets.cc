#include "engine/step_buckets.h"

#include <algorithm>

#include "base/check.h"

namespace lantern {
namespace {

int32_t rounded_up(const std::vector<int32_t>& sizes, int32_t count) {
  const auto size = std::ranges::lower_bound(sizes, count);
  CHECK(count >= 0 && size != sizes.end(), "{} do not fit the largest bucket, {}", count, sizes.back());
  return *size;
}

}  // namespace

std::vector<int32_t> capture_sizes(int32_t most) {
  std::vector<int32_t> sizes;
  const auto step = [](int32_t size) {
    if (size < 4) return size;
    if (size < 8) return 4;
    if (size < 256) return 8;
    return size < 512 ? 16 : 32;
  };
  for (int32_t size = 1; size < most; size += step(size)) sizes.push_back(size);
  sizes.push_back(most);
  return sizes;
}

std::vector<int32_t> piece_sizes(int32_t most) {
  most = std::min(most, kMostTokensInPieces);
  std::vector<int32_t> sizes;
  const auto step = [](int32_t size) {
    if (size < 8) return size;
    int32_t width = 8;
    while (8 * width <= size) width *= 2;  // 8 below 64, then 16, 32, ...: a quarter of the power of two below
    return width;
  };
  for (int32_t size = 1; size < most; size += step(size)) sizes.push_back(size);
  sizes.push_back(most);
  return sizes;
}

StepBuckets::StepBuckets(const StepLimits& limits, int32_t draft_passes)
    : max_requests_(limits.max_requests),
      query_width_(limits.max_query_len),
      draft_passes_(draft_passes),
      tokens_(capture_sizes(static_cast<int32_t>(limits.max_sample_rows()))),
      requests_(capture_sizes(limits.max_requests)),
      piece_tokens_(piece_sizes(limits.max_tokens)) {}

BucketKey StepBuckets::of_decodes(int32_t tokens) const {
  const int32_t size = rounded_up(tokens_, tokens);
  return {.tokens = size,
          .requests = std::min(size, max_requests_),
          .query_width = query_width_,
          .kind = StepKind::kDecode};
}

BucketKey StepBuckets::of_drafts(int32_t requests, int32_t passes) const {
  CHECK(passes >= 1 && passes <= draft_passes_, "{} passes of a drafter that makes {}", passes, draft_passes_);
  const int32_t size = rounded_up(requests_, requests);
  return {.tokens = size, .requests = size, .query_width = passes, .kind = StepKind::kDrafts};
}

BucketKey StepBuckets::of_pieces(int32_t tokens, StepKind kind) const {
  return {.tokens = rounded_up(piece_tokens_, tokens), .kind = kind};
}

LaunchShape StepBuckets::widest_in_pieces(int32_t tokens) const {
  const BucketKey bucket{.tokens = tokens,
                         .requests = std::min(tokens, max_requests_),
                         .query_width = query_width_,
                         .kind = StepKind::kMixed};
  return {.bucket = bucket};
}

std::vector<BucketKey> StepBuckets::decodes() const {
  std::vector<BucketKey> buckets;
  buckets.reserve(tokens_.size());
  for (const int32_t tokens : tokens_) buckets.push_back(of_decodes(tokens));
  return buckets;
}

std::vector<BucketKey> StepBuckets::drafts() const {
  std::vector<BucketKey> buckets;
  buckets.reserve(requests_.size() * static_cast<size_t>(draft_passes_));
  for (const int32_t requests : requests_) {
    for (int32_t passes = 1; passes <= draft_passes_; ++passes) buckets.push_back(of_drafts(requests, passes));
  }
  return buckets;
}

}  // namespace lantern
