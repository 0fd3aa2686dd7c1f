// What a plan is made for: limits, cache groups, and which outputs are wanted. Chosen once, before any buffer exists.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "attention/plan/step_limits.h"
#include "base/result.h"

namespace lantern {

constexpr int32_t kMaxCacheGroups = 4;

// A block-table entry that says "this request has no such block": a length that needs it is too long for its table.
constexpr int32_t kMissingBlock = INT32_MIN;

// Layers that share one block table.
struct CacheGroup {
  int32_t block_size = 64;  // tokens
  int32_t compress_ratio = 1;
  int32_t num_blocks = 0;              // of the pool, the null block included
  int32_t max_blocks_per_request = 0;  // entries of a block-table row that may be read
  int32_t block_table_stride = 0;      // entries from row to row; 0: max_blocks_per_request
};

// One rank's share of each context: runs of `interleave` tokens go round the ranks.
struct ContextShard {
  int32_t world = 1;
  int32_t rank = 0;
  int32_t interleave = 1;
};

constexpr int32_t kMostMlaParts = 1024;  // a part is for a multiprocessor or two

// How FlashMLA's tile scheduler is to divide requests among parts.
struct MlaTiles {
  int32_t parts = 0;                  // at most kMostMlaParts
  int32_t fixed_overhead_blocks = 5;  // what starting on a request costs, in blocks of 64 keys
  int32_t topk = 0;                   // sparse: no request has more keys than that; 0: dense
};

struct PrefillBudget {
  int32_t workspace_tokens = 0;  // gathered keys of one chunk
  int64_t logits_bytes = 0;      // float32 scores of one chunk
};

struct StepPlanConfig {
  StepLimits limits;
  std::vector<CacheGroup> groups;  // 1 to kMaxCacheGroups
  std::optional<ContextShard> dcp;
  bool flattened = false;    // expanded block tables
  bool per_request = false;  // context lengths [requests][query_width]
  int32_t workers = 0;       // of the paged MQA kernels; 0: no schedules
  std::optional<MlaTiles> mla;
  std::optional<PrefillBudget> prefill;
  bool drafts = false;  // plans of MTP steps 1 .. max_query_len - 2

  // One group with the geometry of the limits.
  static CacheGroup group_of(const StepLimits& limits);
  // invalid_argument with the field's name. A compress_ratio that does not divide its block size is left to the plan,
  // which reports it.
  Status check() const;
  int32_t draft_steps() const;
};

// The launch shape of a step.
struct BucketShape {
  int32_t tokens = 0;
  int32_t requests = 0;
  int32_t query_width = 1;
};
Status check_bucket(const BucketShape& bucket, const StepLimits& limits);

}  // namespace lantern
