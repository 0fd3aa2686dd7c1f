#include <algorithm>

#include "attention/plan/plan_host.h"
#include "attention/plan/plan_math.h"

namespace lantern::plan {
namespace {

// A draft may stand in a block that this step's length does not need yet; a table without it writes nowhere.
int32_t draft_slot(const PlanGroupParams& g, int32_t request, int32_t position) {
  const int32_t entry = position / g.group.block_size;
  if (entry >= g.group.max_blocks_per_request) return -1;
  const int32_t block = g.block_table[int64_t{request} * g.group.block_table_stride + entry];
  if (block_fault(block, g.group.num_blocks, kMissingBlock) != PlanFault::kNone) return -1;
  return slot_of(block, position, g.group.block_size);
}

}  // namespace

void plan_drafts(const StepPlanParams& p) {
  if (!p.accepted || !p.draft_query_start_loc) return;
  const int32_t requests = std::clamp(p.num_requests[0], 0, p.bucket.requests);
  for (int32_t b = 0; b <= p.bucket.requests; ++b) p.draft_query_start_loc[b] = std::min(b, requests);
  for (int32_t b = 0; b < p.bucket.requests; ++b) {
    const int32_t query_len = p.query_len[b];
    // A prefill has no drafts that could have been rejected.
    const int32_t rejected = query_len > 0 && p.prefilling[b] == 0 ? query_len - 1 - p.accepted[b] : 0;
    p.draft_token_indices[b] = query_len > 0 ? p.query_start[b] + query_len - 1 - rejected : -1;
    for (int32_t s = 0; s < p.draft_steps; ++s) {
      const int64_t at = int64_t{s} * p.bucket.requests + b;
      DraftRow row{0, 0, true};
      if (query_len > 0) row = draft_row(p.seq_len[b], rejected, s + 1, p.max_model_len);
      p.draft_positions[at] = row.position;
      p.draft_seq_lens[at] = row.seq_len;
      for (int32_t g = 0; g < p.num_groups; ++g) {
        if (!p.groups[g].draft_slot_mapping) continue;
        p.groups[g].draft_slot_mapping[at] = row.beyond ? -1 : draft_slot(p.groups[g], b, row.position);
      }
    }
  }
}

}  // namespace lantern::plan
