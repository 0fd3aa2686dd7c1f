// The step plan: from the raw description of a batch, at fixed addresses, to everything that attention kernels read.
//
// Request b's j-th query token sees seq_lens[b] - query_len_b + 1 + j keys (clamped at 0), its own included, where
// query_len_b = query_start_loc[b + 1] - query_start_loc[b]. Its own key's position is one less; the key goes to the
// slot that the block table names, or nowhere (-1) where the table entry is 0, the null block.
//
// Entries of the inputs beyond num_requests and num_tokens are never read. A row that contradicts itself or the limits
// (plan_faults.h) is reported in `errors` and planned as padding: query length 0, length 0, its tokens request -1,
// length 0, slot -1.
#pragma once

#include <cstdint>

#include "attention/plan/plan_config.h"
#include "attention/plan/plan_math.h"
#include "device/fixed.h"
#include "device/stream.h"

namespace lantern {

// Places in StepPlanParams::counts.
enum PlanCount : int32_t {
  kNumDecodes,  // requests that are not padding and not prefilling
  kNumPrefills,
  kNumDecodeTokens,
  kNumPrefillTokens,
  kPrefillRequestBegin,  // the first prefilling request, or num_requests; decodes lie before it, prefills from it on
  kPrefillTokenBegin,    // and its first token, or num_tokens
  kRequiresPadding,      // 1: some decode has other than query_width tokens, so that queries must be packed for the
                         // per-request view
  kNumPrefillChunks,
  kNumErrors,
  kNumCounts,
};

constexpr int32_t kMostBatchErrors = 3;      // beside one per request
constexpr int32_t kPrefillChunkInts = 4;     // first and end request, first and end token: positions in the batch
constexpr int32_t kMlaTileScheduleInts = 8;  // see plan_schedule_math.h

struct PlanGroupParams {
  CacheGroup group;                         // block_table_stride is filled in
  plan::Divider block_size;                 // by group.block_size, filled in likewise
  DevPtr<const int32_t> block_table;        // [requests][stride]
  DevPtr<int32_t> slot_mapping;             // [tokens]; -1 for padding and for the null block
  DevPtr<int32_t> compressed_context_len;   // [tokens]; token_context_len / compress_ratio
  DevPtr<int32_t> compressed_slot_mapping;  // [tokens]; slots of block_size / compress_ratio entries a block, -1
                                            // where no window ends
  DevPtr<int32_t> expanded_block_table;     // [tokens][max_blocks_per_request]; 0 on padding and outside the pool
  DevPtr<int32_t> draft_slot_mapping;       // [draft_steps][requests]
};

// Launch shape and configuration are host values; lengths reach the plan through device memory only. Outputs whose
// pointer is null are not wanted.
struct StepPlanParams {
  BucketShape bucket;
  int32_t max_query_len = 1;
  int32_t max_model_len = 0;
  int32_t num_groups = 1;
  int32_t workers = 0;  // of the paged MQA schedules
  int32_t draft_steps = 0;
  ContextShard dcp;
  MlaTiles mla;
  PrefillBudget prefill;

  // Inputs.
  DevPtr<const int32_t> num_requests;     // [1]
  DevPtr<const int32_t> num_tokens;       // [1]
  DevPtr<const int32_t> query_start_loc;  // [requests + 1]; first token of each request
  DevPtr<const int32_t> seq_lens;         // [requests]; keys of each request after this step
  DevPtr<const int32_t> prefilling;       // [requests]; not 0: its prompt is not finished before this step
  DevPtr<const int32_t> accepted;         // [requests]; accepted drafts; null: none are checked or planned for
  PlanGroupParams groups[kMaxCacheGroups];

  // Always written.
  DevPtr<int32_t> query_start;        // [requests]; first token; 0 for padding
  DevPtr<int32_t> query_len;          // [requests]; 0 for padding
  DevPtr<int32_t> seq_len;            // [requests]; 0 for padding
  DevPtr<int32_t> counts;             // [kNumCounts]
  DevPtr<int32_t> errors;             // [requests + kMostBatchErrors][2]: request or -1, PlanFault; then {-1, 0}
  DevPtr<int32_t> token_request;      // [tokens]; -1: padding. Also the row ids of the flattened view
  DevPtr<int32_t> token_context_len;  // [tokens]; 0 for padding. Also the lengths of the flattened view

  // On request.
  DevPtr<int32_t> local_context_len;         // [tokens]; this rank's share of token_context_len
  DevPtr<int32_t> decode_lens;               // [tokens]; 1 everywhere: a row of the flattened view is one query
  DevPtr<int32_t> per_request_context_lens;  // [requests][query_width], contiguous
  DevPtr<int32_t> paged_mqa_sm90;            // [workers + 1][2] over the per-request view
  DevPtr<int32_t> paged_mqa_sm100;           // [workers + 1][2] over the flattened view
  DevPtr<int32_t> mla_tiles;                 // [parts][8]
  DevPtr<int32_t> mla_num_splits;            // [requests + 1]
  DevPtr<int32_t> prefill_chunks;            // [tokens][4]; counts[kNumPrefillChunks] of them, then 0
  DevPtr<int32_t> draft_query_start_loc;     // [requests + 1]; request b's draft token is token b of each draft step
  DevPtr<int32_t> draft_seq_lens;            // [draft_steps][requests]
  DevPtr<int32_t> draft_positions;           // [draft_steps][requests]
  DevPtr<int32_t> draft_token_indices;       // [requests]; the last accepted token of this step; -1 for padding
};
void plan_step(Stream& stream, const StepPlanParams& params);

}  // namespace lantern
