// The buckets that steps are rounded up to, so that graphs are captured for each of them once.
#pragma once

#include <cstdint>
#include <vector>

#include "attention/plan/step_limits.h"
#include "device/bucket_key.h"
#include "engine/launch_shape.h"

namespace lantern {

// 1, 2, 4, then multiples of 8 to 256, of 16 to 512 and of 32 beyond, as serving engines capture them: up to `most`,
// which is the last.
std::vector<int32_t> capture_sizes(int32_t most);

// Of any step's tokens: 1, 2, 4, then multiples of 8, each at most a quarter more than the one before from 32 on. Up to
// `most`, which is the last, or to kMostTokensInPieces where that is more: with so many tokens the launches do not show
// beside the work.
constexpr int32_t kMostTokensInPieces = 2048;
std::vector<int32_t> piece_sizes(int32_t most);

class StepBuckets {
 public:
  // `draft_passes`: of the drafter behind a step, at most.
  StepBuckets(const StepLimits& limits, int32_t draft_passes);

  int32_t most_tokens() const { return tokens_.back(); }
  int32_t most_tokens_in_pieces() const { return piece_tokens_.back(); }
  // The bucket of a step of so many tokens, all of decodes. Their number is all that says how long it takes: it has the
  // most requests that so many tokens can belong to. Precondition: 1 <= tokens <= most_tokens().
  BucketKey of_decodes(int32_t tokens) const;
  // Of what is left to draft after a step: `passes` passes of the drafter, over one token of each sampling request.
  // Precondition: both within the limits.
  BucketKey of_drafts(int32_t requests, int32_t passes) const;

  // Of a piece (the first) of any step of so many tokens: requests do not shape it. `kind` is one of pieces.
  // Precondition: 1 <= tokens <= most_tokens_in_pieces().
  BucketKey of_pieces(int32_t tokens, StepKind kind) const;
  // A step of prompts to run where its pieces are captured.
  LaunchShape widest_in_pieces(int32_t tokens) const;

  // Those that of_decodes(), of_pieces() and of_drafts() name, ascending.
  const std::vector<int32_t>& decode_tokens() const { return tokens_; }
  const std::vector<int32_t>& piece_tokens() const { return piece_tokens_; }
  std::vector<BucketKey> decodes() const;
  std::vector<BucketKey> drafts() const;

 private:
  int32_t max_requests_;
  int32_t query_width_;
  int32_t draft_passes_;
  std::vector<int32_t> tokens_, requests_, piece_tokens_;  // ascending
};

}  // namespace lantern
