#include <fmt/format.h>

#include <chrono>

#include "attention/plan/plan_graphs.h"

namespace lantern {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// Every output there is, small enough for a plan to take microseconds.
StepPlanConfig checked_config() {
  StepPlanConfig config;
  StepLimits& limits = config.limits;
  limits.max_tokens = 64;
  limits.max_requests = 8;
  limits.max_query_len = 4;
  limits.max_blocks_per_request = 9;
  limits.block_size = 64;
  limits.num_blocks = 80;
  limits.index_topk = 256;
  limits.max_model_len = 520;
  CacheGroup compressed = StepPlanConfig::group_of(limits);
  compressed.compress_ratio = 4;
  compressed.block_table_stride = 12;
  config.groups = {StepPlanConfig::group_of(limits), compressed};
  config.dcp = ContextShard{.world = 2, .rank = 1, .interleave = 16};
  config.flattened = true;
  config.per_request = true;
  config.workers = 7;
  config.mla = MlaTiles{.parts = 5, .fixed_overhead_blocks = 5, .topk = 256};
  config.prefill = PrefillBudget{.workspace_tokens = 600, .logits_bytes = 40000};
  config.drafts = true;
  return config;
}

std::vector<BucketKey> checked_buckets(const StepLimits& limits) {
  std::vector<BucketKey> buckets;
  for (const int32_t requests : {1, 2, 5, limits.max_requests}) {
    for (int32_t width = 1; width <= limits.max_query_len; ++width) {
      buckets.push_back({requests * width, requests, width, StepKind::kDecode});
    }
  }
  for (const int32_t tokens : {1, 16, limits.max_tokens}) {
    buckets.push_back({tokens, limits.max_requests, limits.max_query_len, StepKind::kMixed});
  }
  return buckets;
}

}  // namespace

Result<PlanGraphReport> check_plan_graphs(Device& device, int64_t replays, uint64_t seed,
                                          const PlanGraphs::Step& step) {
  const Clock::time_point start = Clock::now();
  const StepPlanConfig config = checked_config();
  const std::vector<BucketKey> buckets = checked_buckets(config.limits);
  ASSIGN_OR_RETURN(const std::unique_ptr<PlanGraphs> graphs, PlanGraphs::capture(device, config, buckets, step));
  PlanGraphReport report;
  report.buckets = static_cast<int64_t>(graphs->graphs().size());
  report.graph_bytes = graphs->graphs().bytes();
  report.capture_seconds = seconds_since(start);
  RandomSteps steps(*graphs, seed);
  std::mt19937_64 random(seed);
  for (; report.replays < replays; ++report.replays) {
    const BucketKey& bucket = buckets[random() % buckets.size()];
    const StepImage& image = steps.next(bucket);
    const std::vector<int32_t> replayed = graphs->replay(bucket, image);
    ASSIGN_OR_RETURN(const std::vector<int32_t> fresh, plan_from_scratch(device, config, bucket, image));
    const std::string difference = first_difference(replayed, fresh);
    if (difference.empty()) continue;
    if (report.mismatches++ == 0) {
      report.first_mismatch = fmt::format("replay {} of the {}: {}", report.replays, to_string(bucket), difference);
    }
  }
  report.seconds = seconds_since(start);
  return report;
}

}  // namespace lantern
