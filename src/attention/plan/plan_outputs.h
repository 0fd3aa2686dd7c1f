// What the plan writes for one token and for one request, once it is known whom the token belongs to and what stands
// of the request. Shared by the host kernel and the CUDA kernels.
#pragma once

#include <algorithm>
#include <cstdint>

#include "attention/plan/plan_math.h"
#include "attention/plan/step_plan.h"

namespace lantern::plan {

// A request as planned: all 0 when it is padding or at fault.
struct PlannedRow {
  int32_t start = 0;
  int32_t query_len = 0;
  int32_t seq_len = 0;
};

LANTERN_HOST_DEVICE inline const int32_t* block_table_row(const PlanGroupParams& g, int32_t request) {
  return g.block_table.get() + int64_t{request} * g.group.block_table_stride;
}

// False: no slot of some cache can be named, and every request is padding.
inline bool ratios_divide(const StepPlanParams& p) {
  return std::all_of(p.groups, p.groups + p.num_groups,
                     [](const PlanGroupParams& g) { return g.group.block_size % g.group.compress_ratio == 0; });
}

// Entries that no length needs may hold anything; what is copied from here lies in the pool.
LANTERN_HOST_DEVICE constexpr int32_t block_in_pool(int32_t block, int32_t num_blocks) {
  return block >= 0 && block < num_blocks ? block : 0;
}

// Blocks that `seq_len` >= 0 keys need.
LANTERN_HOST_DEVICE inline int32_t blocks_of(const PlanGroupParams& g, int32_t seq_len) {
  return seq_len == 0 ? 0 : g.block_size.quotient(seq_len - 1) + 1;
}

// Everything per token but the expanded block table. A padded token has request -1 and length 0.
LANTERN_HOST_DEVICE inline void write_token(const StepPlanParams& p, int32_t token, int32_t request, int32_t len) {
  p.token_request[token] = request;
  p.token_context_len[token] = len;
  if (p.local_context_len) {
    p.local_context_len[token] = local_context_len(len, p.dcp.world, p.dcp.rank, p.dcp.interleave);
  }
  if (p.decode_lens) p.decode_lens[token] = 1;
  LANTERN_NO_UNROLL
  for (int32_t i = 0; i < p.num_groups; ++i) {
    const PlanGroupParams& g = p.groups[i];
    const CacheGroup& group = g.group;
    const int32_t position = len - 1;
    const bool stored = request >= 0 && len > 0 && (g.slot_mapping || g.compressed_slot_mapping);
    const int32_t entry = stored ? g.block_size.quotient(position) : 0;
    const int32_t block = stored ? block_table_row(g, request)[entry] : 0;
    if (g.slot_mapping) {
      g.slot_mapping[token] = slot_of(block, position - entry * group.block_size, group.block_size);
    }
    if (g.compressed_context_len) g.compressed_context_len[token] = len / group.compress_ratio;
    if (g.compressed_slot_mapping) {
      g.compressed_slot_mapping[token] = compressed_slot_of(block, position, group.block_size, group.compress_ratio);
    }
  }
}

// Column j of a request in the per-request view. Columns past a request's own tokens hold its full length: public
// kernels size their work by the last column.
LANTERN_HOST_DEVICE constexpr int32_t per_request_len(const PlannedRow& row, int32_t j) {
  return j < row.query_len ? context_len(row.seq_len, row.query_len, j) : row.seq_len;
}

// A draft may stand in a block that this step's length does not need yet; a table without it writes nowhere.
LANTERN_HOST_DEVICE inline int32_t draft_slot(const PlanGroupParams& g, int32_t request, int32_t position) {
  const int32_t entry = g.block_size.quotient(position);
  if (entry >= g.group.max_blocks_per_request) return -1;
  const int32_t block = block_table_row(g, request)[entry];
  if (block_fault(block, g.group.num_blocks, kMissingBlock) != PlanFault::kNone) return -1;
  return slot_of(block, position - entry * g.group.block_size, g.group.block_size);
}

// Drafts of a request's last step that were not accepted. A prefill has none.
LANTERN_HOST_DEVICE constexpr int32_t rejected_drafts(const PlannedRow& row, bool prefilling, int32_t accepted) {
  return row.query_len > 0 && !prefilling ? row.query_len - 1 - accepted : 0;
}
LANTERN_HOST_DEVICE constexpr int32_t draft_token_index(const PlannedRow& row, int32_t rejected) {
  return row.query_len > 0 ? row.start + row.query_len - 1 - rejected : -1;
}
// MTP step 1, 2, ... of a request.
LANTERN_HOST_DEVICE inline void write_draft(const StepPlanParams& p, int32_t request, const PlannedRow& row,
                                            int32_t rejected, int32_t step) {
  const int64_t at = int64_t{step - 1} * p.bucket.requests + request;
  DraftRow draft{0, 0, true};
  if (row.query_len > 0) draft = draft_row(row.seq_len, rejected, step, p.max_model_len);
  p.draft_positions[at] = draft.position;
  p.draft_seq_lens[at] = draft.seq_len;
  LANTERN_NO_UNROLL
  for (int32_t i = 0; i < p.num_groups; ++i) {
    const PlanGroupParams& g = p.groups[i];
    if (g.draft_slot_mapping) g.draft_slot_mapping[at] = draft.beyond ? -1 : draft_slot(g, request, draft.position);
  }
}

}  // namespace lantern::plan
