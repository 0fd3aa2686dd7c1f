// The buckets that steps of decodes are rounded up to, so that a graph is captured for each of them once.
#pragma once

#include <cstdint>
#include <vector>

#include "attention/plan/step_limits.h"
#include "device/bucket_key.h"

namespace lantern {

// 1, 2, 4, then multiples of 8 to 256, of 16 to 512 and of 32 beyond, as serving engines capture them: up to `most`,
// which is the last.
std::vector<int32_t> capture_sizes(int32_t most);

class StepBuckets {
 public:
  // `draft_passes`: of the drafter behind a step, at most.
  StepBuckets(const StepLimits& limits, int32_t draft_passes);

  int32_t most_tokens() const { return tokens_.back(); }
  // The bucket of a step of so many tokens, all of decodes. Their number is all that says how long it takes: it has the
  // most requests that so many tokens can belong to. Precondition: 1 <= tokens <= most_tokens().
  BucketKey of_decodes(int32_t tokens) const;
  // Of what is left to draft after a step: `passes` passes of the drafter, over one token of each sampling request.
  // Precondition: both within the limits.
  BucketKey of_drafts(int32_t requests, int32_t passes) const;

  // Those that of_decodes() and of_drafts() name.
  std::vector<BucketKey> decodes() const;
  std::vector<BucketKey> drafts() const;

 private:
  int32_t max_requests_;
  int32_t query_width_;
  int32_t draft_passes_;
  std::vector<int32_t> tokens_, requests_;  // ascending
};

}  // namespace lantern
