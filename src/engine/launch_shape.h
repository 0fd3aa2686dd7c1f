// The launch shape of a step: what its launches know of it on the host. Everything else, counts and lengths, they read
// from device memory.
#pragma once

#include <cstdint>

#include "attention/plan/step_plan.h"
#include "device/bucket_key.h"
#include "engine/step_batch.h"

namespace lantern {

struct LaunchShape {
  BucketKey bucket;
  int32_t decode_tokens = 0;  // tokens [0, decode_tokens) belong to decodes
  int32_t sample_rows = 0;    // rows of logits
  int32_t draft_rows = 0;     // requests that sample, and then draft
  bool drafter_runs = true;   // false: the drafter's layer leaves zeros for entries (StepSchedule::drafter_runs)
  bool logprobs = false;      // of what is sampled; rows that want none cost nothing
  int32_t num_scored = 0;     // tokens of prompts whose logits are scored

  BucketShape plan() const { return {bucket.tokens, bucket.requests, bucket.query_width}; }
  // More tokens, which are padding: of decodes in a step of decodes, else of prompts.
  void pad_to(int32_t tokens) {
    bucket.tokens = tokens;
    if (bucket.kind == StepKind::kDecode) decode_tokens = tokens;
  }
};

// A bucket of decodes says all: each of its tokens may have a row of logits, each of its requests drafts.
LaunchShape decode_shape(const BucketKey& bucket, bool logprobs);

// Of a step as it is to be launched: batch.shape, which may be larger than its rows need.
LaunchShape launch_shape(const StepBatch& batch);

}  // namespace lantern
