#include "engine/step_graphs.h"

#include <chrono>

#include "base/check.h"
#include "device/kernel_count.h"
#include "device/stream.h"

namespace lantern {

Result<std::unique_ptr<StepGraphs>> StepGraphs::capture(Stream& stream, const StepLimits& limits, bool logprobs,
                                                        const Bodies& bodies) {
  const int32_t draft_passes = bodies.drafts ? limits.max_query_len - 1 : 0;
  std::unique_ptr<StepGraphs> graphs(new StepGraphs(limits, draft_passes));
  graphs->has_drafter_ = draft_passes > 0;
  const auto start = std::chrono::steady_clock::now();
  RETURN_IF_ERROR(graphs->capture_all(stream, logprobs, bodies));
  graphs->report_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  graphs->report_.num_graphs = static_cast<int32_t>(graphs->graphs_.size());
  graphs->report_.kernels = kernel_count(*graphs->graphs_.find(graphs->buckets_.of_decodes(1)));
  graphs->report_.bytes = static_cast<int64_t>(graphs->graphs_.bytes());
  return graphs;
}

Status StepGraphs::capture_all(Stream& stream, bool logprobs, const Bodies& bodies) {
  for (BucketKey bucket : buckets_.decodes()) {
    const LaunchShape shape = decode_shape(bucket, logprobs);
    RETURN_IF_ERROR(graphs_.capture(stream, bucket, [&](Stream&) -> Status {
      bodies.step(shape);
      return {};
    }));
    if (!has_drafter_) continue;
    for (const bool runs : {true, false}) {
      LaunchShape fill = shape;
      fill.drafter_runs = runs;
      bucket.kind = runs ? StepKind::kDraftFill : StepKind::kDraftClear;
      RETURN_IF_ERROR(graphs_.capture(stream, bucket, [&](Stream&) -> Status {
        bodies.fill(fill);
        return {};
      }));
    }
  }
  for (const BucketKey& bucket : buckets_.drafts()) {
    RETURN_IF_ERROR(graphs_.capture(stream, bucket, [&](Stream&) -> Status {
      bodies.drafts(bucket.requests, bucket.query_width);
      return {};
    }));
  }
  return {};
}

void StepGraphs::replay(Stream& stream, const LaunchShape& shape, int32_t draft_passes) const {
  BucketKey bucket = bucket_of(shape);
  Graph* step = graphs_.find(bucket);
  CHECK(step != nullptr && shape.bucket.requests <= bucket.requests, "a step in the {} and no graph for it",
        to_string(shape.bucket));
  step->replay(stream);
  if (!has_drafter_) return;
  // The drafter goes on from hidden states that the step left in the workspace.
  bucket.kind = shape.drafter_runs ? StepKind::kDraftFill : StepKind::kDraftClear;
  graphs_.find(bucket)->replay(stream, {.keep_workspace = true});
  if (draft_passes == 0 || shape.draft_rows == 0 || !shape.drafter_runs) return;
  graphs_.find(buckets_.of_drafts(shape.draft_rows, draft_passes))->replay(stream, {.keep_workspace = true});
}

}  // namespace lantern
