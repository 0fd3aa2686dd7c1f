#include "engine/launch_shape.h"

namespace lantern {

LaunchShape decode_shape(const BucketKey& bucket, bool logprobs) {
  return {.bucket = bucket,
          .decode_tokens = bucket.tokens,
          .sample_rows = bucket.tokens,
          .draft_rows = bucket.requests,
          .logprobs = logprobs};
}

LaunchShape launch_shape(const StepBatch& batch) {
  LaunchShape shape{.bucket = batch.shape.bucket, .decode_tokens = batch.num_decode_tokens};
  if (shape.bucket.kind == StepKind::kDecode) shape.decode_tokens = shape.bucket.tokens;
  shape.draft_rows = batch.shape.sampling_rows;
  shape.drafter_runs = batch.shape.drafter_runs;
  shape.logprobs = batch.logprobs;
  shape.num_scored = batch.num_scored;
  for (const StepRow& row : batch.rows) shape.sample_rows += row.num_samples();
  return shape;
}

}  // namespace lantern
