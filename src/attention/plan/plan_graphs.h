// The step plan of many buckets as captured graphs over one set of buffers, and the same plan made eagerly from scratch
// to compare with. For `lantern doctor --check-graphs` and for tests; the engine captures whole steps.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "attention/plan/step_image.h"
#include "attention/plan/step_plan_buffers.h"
#include "device/graph_cache.h"
#include "device/stream.h"
#include "device/workspace.h"

namespace lantern {

BucketShape shape_of(const BucketKey& bucket);

class PlanGraphs {
 public:
  using Step = std::function<void(Stream&, const StepPlanParams&)>;

  // Captures the plan of each bucket; the inputs hold poison meanwhile, or `at_capture`. `step` makes the plan: tests
  // give wrong ones. Errors: the config; buckets beyond the limits; no memory.
  static Result<std::unique_ptr<PlanGraphs>> capture(Device& device, const StepPlanConfig& config,
                                                     std::span<const BucketKey> buckets, const Step& step = &plan_step,
                                                     const StepImage* at_capture = nullptr);

  // Copies the inputs in, poisons outputs and workspace, replays the bucket's graph and returns all output memory.
  // Nothing but device memory changes from replay to replay.
  std::vector<int32_t> replay(const BucketKey& bucket, const StepImage& image);

  const StepInputs& inputs() const { return inputs_; }
  const StepPlanBuffers& buffers() const { return buffers_; }
  const GraphCache& graphs() const { return graphs_; }
  StepImage blank_image() const { return StepImage(inputs_, static_cast<int32_t>(buffers_.config().groups.size())); }

 private:
  PlanGraphs(Device& device, Workspace workspace)
      : device_(device), stream_(device), workspace_(std::move(workspace)) {}

  Device& device_;
  Stream stream_;
  Workspace workspace_;  // the plan uses none: it is poisoned all the same
  StepInputs inputs_;
  StepPlanBuffers buffers_;
  GraphCache graphs_;
};

// The plan of these inputs in buffers made for it alone, without a graph; all output memory, as PlanGraphs::replay.
Result<std::vector<int32_t>> plan_from_scratch(Device& device, const StepPlanConfig& config, const BucketKey& bucket,
                                               const StepImage& image);

// Which output of a plan's memory a word belongs to is told by its place; "" when the two are equal.
std::string first_difference(std::span<const int32_t> got, std::span<const int32_t> want);

// Random steps for a bucket: valid ones with lengths at the edges, and among them steps with stale tails, contradictory
// rows and counts that lie.
class RandomSteps {
 public:
  RandomSteps(const PlanGraphs& graphs, uint64_t seed);
  const StepImage& next(const BucketKey& bucket);

 private:
  int32_t pick(int32_t lowest, int32_t highest);
  int32_t edge(int32_t lowest, int32_t highest);  // one of the ends, often
  void fill_request(const BucketKey& bucket, int32_t request, int32_t& token, bool prefilling);
  void spoil(const BucketKey& bucket);

  StepPlanConfig config_;
  StepImage blank_;
  StepImage image_;
  std::mt19937_64 random_;
};

struct PlanGraphReport {
  int64_t buckets = 0;
  int64_t replays = 0;
  int64_t mismatches = 0;
  size_t graph_bytes = 0;
  double capture_seconds = 0;
  double seconds = 0;  // of everything
  std::string first_mismatch;
};
// Captures a set of buckets on the device, replays them in random order on poisoned memory and compares each plan, bit
// by bit, with one made from scratch.
Result<PlanGraphReport> check_plan_graphs(Device& device, int64_t replays, uint64_t seed,
                                          const PlanGraphs::Step& step = &plan_step);

}  // namespace lantern
