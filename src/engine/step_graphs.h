// The captured steps of an executor: one graph for each bucket of decodes, and graphs for the passes that a drafter
// makes behind a step. All are captured at start; a replay allocates nothing and waits for nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "device/graph_cache.h"
#include "engine/graph_mode.h"
#include "engine/launch_shape.h"
#include "engine/step_buckets.h"

namespace lantern {

// What capturing came to.
struct GraphReport {
  GraphMode mode = GraphMode::kNone;
  int32_t num_graphs = 0;
  int64_t bytes = 0;    // of the graphs themselves, parameters of launches included
  int64_t kernels = 0;  // that a decode of one token takes, the drafter left out
  double seconds = 0;
};

class StepGraphs {
 public:
  struct Bodies {
    std::function<void(const LaunchShape&)> step;
    // Of a drafter that runs behind the step; null where none does.
    std::function<void(const LaunchShape&)> fill;              // over the step's tokens
    std::function<void(int32_t rows, int32_t passes)> drafts;  // and further
  };

  // Runs each bucket once, on inputs that say that there is nothing to do, and captures it. `logprobs`: rows may want
  // log-probabilities. Errors: those of capture_graph().
  static Result<std::unique_ptr<StepGraphs>> capture(Stream& stream, const StepLimits& limits, bool logprobs,
                                                     const Bodies& bodies);

  // Whether there is a graph for such a step: one of decodes alone.
  bool holds(const LaunchShape& shape) const {
    return shape.bucket.kind == StepKind::kDecode && shape.bucket.tokens <= buckets_.most_tokens();
  }
  // Its bucket, where there is one.
  BucketKey bucket_of(const LaunchShape& shape) const { return buckets_.of_decodes(shape.bucket.tokens); }
  // Precondition: holds(shape).
  void replay(Stream& stream, const LaunchShape& shape, int32_t draft_passes) const;

  // Mode apart.
  const GraphReport& report() const { return report_; }

 private:
  StepGraphs(const StepLimits& limits, int32_t draft_passes) : buckets_(limits, draft_passes) {}
  Status capture_all(Stream& stream, bool logprobs, const Bodies& bodies);

  StepBuckets buckets_;
  bool has_drafter_ = false;
  GraphCache graphs_;
  GraphReport report_;
};

}  // namespace lantern
