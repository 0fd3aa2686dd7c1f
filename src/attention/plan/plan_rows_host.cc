#include <algorithm>

#include "attention/plan/plan_host.h"
#include "attention/plan/plan_math.h"
#include "attention/plan/plan_outputs.h"

namespace lantern::plan {
namespace {

class ErrorList {
 public:
  explicit ErrorList(const StepPlanParams& p) : errors_(p.errors), capacity_(p.bucket.requests + kMostBatchErrors) {
    for (int32_t i = 0; i < capacity_; ++i) {
      errors_[2 * i] = -1;
      errors_[2 * i + 1] = static_cast<int32_t>(PlanFault::kNone);
    }
  }
  void add(int32_t request, PlanFault fault) {
    if (fault == PlanFault::kNone || count_ == capacity_) return;
    errors_[2 * count_] = request;
    errors_[2 * count_ + 1] = static_cast<int32_t>(fault);
    ++count_;
  }
  int32_t count() const { return count_; }

 private:
  DevPtr<int32_t> errors_;
  int32_t capacity_;
  int32_t count_ = 0;
};

PlanFault table_fault(const PlanGroupParams& g, int32_t request, int32_t seq_len) {
  const int32_t needed = ceil_div(seq_len, g.group.block_size);
  if (needed > g.group.max_blocks_per_request) return PlanFault::kTooFewBlocks;
  const int32_t* row = g.block_table.get() + int64_t{request} * g.group.block_table_stride;
  for (int32_t i = 0; i < needed; ++i) {
    const PlanFault fault = block_fault(row[i], g.group.num_blocks, kMissingBlock);
    if (fault != PlanFault::kNone) return fault;
  }
  return PlanFault::kNone;
}

PlanFault fault_of(const StepPlanParams& p, int32_t request, const RawRow& row, const RowLimits& limits) {
  PlanFault fault = row_fault(row, limits);
  for (int32_t g = 0; g < p.num_groups && fault == PlanFault::kNone; ++g) {
    fault = table_fault(p.groups[g], request, row.seq_len);
  }
  if (fault == PlanFault::kNone && p.accepted && !row.prefilling && row.end > row.start) {
    fault = accepted_fault(p.accepted[request], row.end - row.start);
  }
  return fault;
}

}  // namespace

void plan_rows(const StepPlanParams& p) {
  ErrorList errors(p);
  const int32_t requests = std::clamp(p.num_requests[0], 0, p.bucket.requests);
  const int32_t tokens = std::clamp(p.num_tokens[0], 0, p.bucket.tokens);
  if (p.num_requests[0] != requests) errors.add(-1, PlanFault::kNumRequests);
  if (p.num_tokens[0] != tokens) errors.add(-1, PlanFault::kNumTokens);
  const bool usable = ratios_divide(p);
  if (!usable) errors.add(-1, PlanFault::kCompressRatio);

  const RowLimits limits{tokens, p.max_query_len, p.bucket.query_width, p.max_model_len};
  int32_t counts[kNumCounts] = {};
  counts[kPrefillRequestBegin] = requests;
  counts[kPrefillTokenBegin] = tokens;
  RawRow row;
  if (usable && requests == 0) {  // no row is there to be at fault
    if (p.query_start_loc[0] != 0) {
      errors.add(-1, PlanFault::kQueryStart);
    } else if (tokens != 0) {
      errors.add(-1, PlanFault::kQueryEnd);
    }
  }
  for (int32_t b = 0; b < p.bucket.requests; ++b) {
    p.query_start[b] = p.query_len[b] = p.seq_len[b] = 0;
    if (b >= requests || !usable) continue;
    row.start = p.query_start_loc[b];
    row.end = p.query_start_loc[b + 1];
    row.seq_len = p.seq_lens[b];
    row.prefilling = p.prefilling[b] != 0;
    row.first = b == 0;
    row.last = b == requests - 1;
    if (row.start <= tokens) row.reach = std::max(row.reach, row.start);
    const PlanFault fault = fault_of(p, b, row, limits);
    errors.add(b, fault);
    if (row.prefilling && !is_padding(row)) row.after_prefill = true;
    const int32_t query_len = fault == PlanFault::kNone ? row.end - row.start : 0;
    if (!row.prefilling && query_len != p.bucket.query_width) counts[kRequiresPadding] = 1;
    if (fault != PlanFault::kNone || is_padding(row)) continue;
    p.query_start[b] = row.start;
    p.query_len[b] = query_len;
    p.seq_len[b] = row.seq_len;
    counts[row.prefilling ? kNumPrefills : kNumDecodes] += 1;
    counts[row.prefilling ? kNumPrefillTokens : kNumDecodeTokens] += query_len;
    if (row.prefilling && counts[kNumPrefills] == 1) {
      counts[kPrefillRequestBegin] = b;
      counts[kPrefillTokenBegin] = row.start;
    }
  }
  counts[kNumErrors] = errors.count();
  std::copy_n(counts, kNumCounts, p.counts.get());
}

}  // namespace lantern::plan
