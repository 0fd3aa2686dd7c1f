// What both kernels of a plan need that follows from bucket and configuration: computed once on the host, because a
// division in a kernel costs as much as a read of memory.
#pragma once

#include <cstdint>

#include "attention/plan/plan_outputs.h"
#include "attention/plan/plan_schedule_math.h"
#include "attention/plan/step_plan.h"

namespace lantern::plan {

constexpr int32_t kMostRowBlocks = 512;
constexpr int32_t kMostTileBlocks = 1024;
constexpr int32_t kTileTokens = 32;

// Blocks of plan_rows: rows first, then tiles of tokens.
struct RowsGrid {
  int32_t row_blocks;
  int32_t rows_per_block;
  int32_t tile_blocks;
  int32_t tile_tokens;
};
constexpr RowsGrid rows_grid(const BucketShape& bucket) {
  const int32_t rows = max_of(1, bucket.requests);
  const int32_t rows_per_block = ceil_div(rows, kMostRowBlocks);
  const int32_t tile_tokens = kTileTokens * max_of(1, ceil_div(ceil_div(bucket.tokens, kTileTokens), kMostTileBlocks));
  return {ceil_div(rows, rows_per_block), rows_per_block, ceil_div(bucket.tokens, tile_tokens), tile_tokens};
}

// Blocks of plan_schedules: one for each wanted list.
enum class PlanList : uint8_t { kSummary, kMqaSm90, kMqaSm100, kMlaTiles, kPrefillChunks, kNumLists };

// Whether all that the schedules add up stays below 2^30 for any batch of the bucket: then 32 bits do, which halves the
// instructions.
constexpr bool schedules_fit_int32(const StepPlanParams& p) {
  constexpr int64_t kMost = int64_t{1} << 30;
  constexpr int64_t kMostPacked = 1 << 15;  // two counts in one word, see SchedulesKernel::mla_piece
  const int64_t rows = int64_t{p.bucket.requests} * p.bucket.query_width;
  const int64_t splits = ceil_div(p.max_model_len, kMqaSplitKeys);
  const int64_t mla = mla_blocks(mla_keys(p.max_model_len, p.mla.topk)) + int64_t{p.mla.fixed_overhead_blocks};
  return splits * (p.bucket.tokens + rows + 2) + p.workers < kMost && mla * (p.bucket.requests + 2) < kMost &&
         p.bucket.requests < kMostPacked && p.mla.parts < kMostPacked;
}

struct PlanLaunch {
  RowsGrid rows;
  bool usable;  // see ratios_divide()
  bool int32_schedules;
  int8_t num_lists = 0;
  PlanList lists[static_cast<int>(PlanList::kNumLists)] = {};
  Divider mla_parts;

  explicit PlanLaunch(const StepPlanParams& p)
      : rows(rows_grid(p.bucket)),
        usable(ratios_divide(p)),
        int32_schedules(schedules_fit_int32(p)),
        mla_parts(max_of(1, p.mla.parts)) {
    const auto add = [this](PlanList list, bool wanted) {
      if (wanted) lists[num_lists++] = list;
    };
    // The longest first.
    add(PlanList::kMlaTiles, p.mla_tiles && p.mla_num_splits);
    add(PlanList::kMqaSm90, static_cast<bool>(p.paged_mqa_sm90));
    add(PlanList::kMqaSm100, static_cast<bool>(p.paged_mqa_sm100));
    add(PlanList::kPrefillChunks, static_cast<bool>(p.prefill_chunks));
    add(PlanList::kSummary, true);
  }
};

}  // namespace lantern::plan
