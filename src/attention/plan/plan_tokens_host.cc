#include <algorithm>

#include "attention/plan/plan_host.h"
#include "attention/plan/plan_outputs.h"

namespace lantern::plan {
namespace {

PlannedRow row_of(const StepPlanParams& p, int32_t request) {
  return {p.query_start[request], p.query_len[request], p.seq_len[request]};
}

void expand_block_table(const PlanGroupParams& g, int32_t token, int32_t request) {
  const int64_t width = g.group.max_blocks_per_request;
  const int32_t* row = block_table_row(g, request);
  int32_t* expanded = g.expanded_block_table.get() + token * width;
  std::transform(row, row + width, expanded, [&](int32_t block) { return block_in_pool(block, g.group.num_blocks); });
}

}  // namespace

void plan_tokens(const StepPlanParams& p) {
  for (int32_t t = 0; t < p.bucket.tokens; ++t) write_token(p, t, -1, 0);
  for (int32_t i = 0; i < p.num_groups; ++i) {
    const PlanGroupParams& g = p.groups[i];
    if (g.expanded_block_table) {
      std::fill_n(g.expanded_block_table.get(), int64_t{p.bucket.tokens} * g.group.max_blocks_per_request, 0);
    }
  }
  for (int32_t b = 0; b < p.bucket.requests; ++b) {
    for (int32_t j = 0; j < p.query_len[b]; ++j) {
      const int32_t token = p.query_start[b] + j;
      write_token(p, token, b, context_len(p.seq_len[b], p.query_len[b], j));
      for (int32_t i = 0; i < p.num_groups; ++i) {
        if (p.groups[i].expanded_block_table) expand_block_table(p.groups[i], token, b);
      }
    }
  }
}

void plan_per_request(const StepPlanParams& p) {
  if (!p.per_request_context_lens) return;
  const int32_t width = p.bucket.query_width;
  for (int32_t b = 0; b < p.bucket.requests; ++b) {
    for (int32_t j = 0; j < width; ++j) {
      p.per_request_context_lens[int64_t{b} * width + j] = per_request_len(row_of(p, b), j);
    }
  }
}

void plan_drafts(const StepPlanParams& p) {
  if (!p.accepted || !p.draft_query_start_loc) return;
  const int32_t requests = std::clamp(p.num_requests[0], 0, p.bucket.requests);
  for (int32_t b = 0; b <= p.bucket.requests; ++b) p.draft_query_start_loc[b] = std::min(b, requests);
  for (int32_t b = 0; b < p.bucket.requests; ++b) {
    const PlannedRow row = row_of(p, b);
    const int32_t rejected = row.query_len > 0 ? rejected_drafts(row, p.prefilling[b] != 0, p.accepted[b]) : 0;
    p.draft_token_indices[b] = draft_token_index(row, rejected);
    for (int32_t step = 1; step <= p.draft_steps; ++step) write_draft(p, b, row, rejected, step);
  }
}

}  // namespace lantern::plan
