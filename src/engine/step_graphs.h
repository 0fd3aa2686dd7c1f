// The captured steps of an executor: one graph for each bucket of decodes, graphs for the passes that a drafter makes
// behind a step, and for each bucket of tokens the pieces of any step between its places of attention. All are captured
// at start; a replay allocates nothing and waits for nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "device/graph_cache.h"
#include "engine/graph_mode.h"
#include "engine/launch_shape.h"
#include "engine/step_buckets.h"
#include "model/piece_runner.h"

namespace lantern {

// What capturing came to.
struct GraphReport {
  GraphMode mode = GraphMode::kNone;
  int32_t num_graphs = 0;
  int64_t bytes = 0;    // of the graphs themselves, parameters of launches included
  int64_t kernels = 0;  // in the graphs of a decode of one token, the drafter left out
  double seconds = 0;
  std::string buckets;  // "decodes whole at 1, 2, 4 tokens; steps in 6 pieces at 1, 2, 4, 8 tokens"
};

// How a step runs.
enum class StepWay : uint8_t {
  kEager,   // launch by launch
  kPieces,  // with attention between the pieces, and what is before and behind the layers, launch by launch
  kWhole,   // as one graph, and the drafter behind it
};

class StepGraphs {
 public:
  struct Bodies {
    // From step inputs to the outcome; the layers by `pieces`, where it is given.
    std::function<void(const LaunchShape&, PieceRunner* pieces)> step;
    // Of a drafter that runs behind the step; null where none does.
    std::function<void(const LaunchShape&, PieceRunner* pieces)> fill;  // over the step's tokens
    std::function<void(int32_t rows, int32_t passes)> drafts;           // and further
  };

  // Runs each bucket once, on inputs that say that there is nothing to do, and captures it. `mode` is not kNone.
  // `logprobs`: rows may want log-probabilities. What the bodies refer to must outlive the graphs.
  // Errors: those of capture_graph().
  static Result<std::unique_ptr<StepGraphs>> capture(Stream& stream, const StepLimits& limits, GraphMode mode,
                                                     bool logprobs, const Bodies& bodies);

  // Whether there are graphs to run such a step in such a way. Whole ones are of decodes alone.
  bool holds(const LaunchShape& shape, StepWay way) const;
  // The fewest graphs that it can be replayed from, or kEager.
  StepWay way_of(const LaunchShape& shape) const;
  // As it is launched in such a way: in its bucket, where graphs have one.
  LaunchShape launched(const LaunchShape& shape, StepWay way) const;
  // Precondition: holds(shape, way), which is not kEager.
  void replay(Stream& stream, const LaunchShape& shape, int32_t draft_passes, StepWay way) const;

  // Mode apart.
  const GraphReport& report() const { return report_; }

 private:
  StepGraphs(const StepLimits& limits, GraphMode mode, bool logprobs, const Bodies& bodies);
  Status capture_whole(Stream& stream);
  Status capture_drafts(Stream& stream);
  Status capture_pieces(Stream& stream);
  void replay_whole(Stream& stream, const LaunchShape& shape) const;
  void replay_pieces(Stream& stream, const LaunchShape& shape) const;
  void fill_report(double seconds);

  StepBuckets buckets_;
  bool whole_, pieces_;
  bool logprobs_;
  Bodies bodies_;
  GraphCache graphs_;
  GraphReport report_;
};

}  // namespace lantern
