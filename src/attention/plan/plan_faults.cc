#include "attention/plan/plan_faults.h"

namespace lantern {
namespace {

constexpr PlanFaultName kNames[] = {
    {PlanFault::kNone, "none", "nothing is wrong"},
    {PlanFault::kNumRequests, "num_requests_outside_bucket",
     "num_requests must lie between 0 and the requests of the bucket"},
    {PlanFault::kNumTokens, "num_tokens_outside_bucket", "num_tokens must lie between 0 and the tokens of the bucket"},
    {PlanFault::kCompressRatio, "compress_ratio_does_not_divide_block_size",
     "compress_ratio must divide block_size, so that no window crosses a block"},
    {PlanFault::kQueryStart, "query_start_loc_not_zero", "query_start_loc must start at 0"},
    {PlanFault::kQueryDecreases, "query_start_loc_decreases",
     "query_start_loc must not decrease: a request starts where the one before it ends"},
    {PlanFault::kQueryEnd, "query_start_loc_end", "query_start_loc must end at num_tokens"},
    {PlanFault::kDecodeAfterPrefill, "decode_after_prefill", "decodes must come before prefills"},
    {PlanFault::kQueryTooLong, "decode_too_wide", "a decode must have at most max_query_len tokens"},
    {PlanFault::kQueryWiderThanBucket, "decode_wider_than_bucket",
     "a decode must have at most the tokens of the bucket's query_width"},
    {PlanFault::kSeqLenTooLong, "seq_len_above_max_model_len", "a length must be at most max_model_len"},
    {PlanFault::kSeqLenTooShort, "seq_len_below_query_len",
     "a length counts the keys of this step too, so that it is at least the request's query length"},
    {PlanFault::kTooFewBlocks, "too_few_blocks", "the block table must have an entry for every block of the length"},
    {PlanFault::kBlockOutsidePool, "block_outside_pool", "a used block id must lie in [0, num_blocks)"},
    {PlanFault::kAccepted, "accepted_outside_query",
     "accepted must lie between 0 and the drafts of the request, its query length less one"},
};

}  // namespace

std::span<const PlanFaultName> plan_fault_names() { return kNames; }

const PlanFaultName& plan_fault_name(PlanFault fault) {
  for (const PlanFaultName& row : kNames) {
    if (row.fault == fault) return row;
  }
  return kNames[0];
}

}  // namespace lantern
