// The step plan: from the raw description of a batch, at fixed addresses, to what attention kernels read (StepView).
//
// Request b's j-th query token sees seq_lens[b] - query_len_b + 1 + j keys (clamped at 0), its own included, where
// query_len_b = query_start_loc[b + 1] - query_start_loc[b]. Its own key's position is one less; the key goes to the
// slot that the block table names, or nowhere (-1) where the table entry is 0, the null block.
#pragma once

#include <cstdint>

#include "device/fixed.h"
#include "device/stream.h"

namespace lantern {

// The upper bounds that size every persistent buffer of a step.
struct StepLimits {
  int32_t max_tokens = 0;
  int32_t max_requests = 0;
  int32_t max_query_len = 1;  // tokens of one decoding request: 1 + draft tokens
  int32_t max_blocks_per_request = 0;
  int32_t block_size = 64;
  int32_t num_blocks = 0;  // of the pool, the null block included
  int32_t max_model_len = 0;
};

struct StepPlanParams {
  // Launch shape (the bucket): host values.
  int32_t tokens = 0;    // of the outputs; tokens beyond num_tokens become padding
  int32_t requests = 0;  // rows of the inputs
  int32_t block_size = 64;
  int32_t block_table_stride = 0;  // entries per row

  DevPtr<const int32_t> num_requests;     // [1]; entries of the arrays below beyond it are never read
  DevPtr<const int32_t> num_tokens;       // [1]
  DevPtr<const int32_t> query_start_loc;  // [requests + 1]; first token of each request
  DevPtr<const int32_t> seq_lens;         // [requests]; keys of each request after this step
  DevPtr<const int32_t> block_table;      // [requests, block_table_stride]

  DevPtr<int32_t> token_request;      // [tokens]; -1: padding
  DevPtr<int32_t> token_context_len;  // [tokens]; 0 for padding
  DevPtr<int32_t> slot_mapping;       // [tokens]; -1 for padding and for the null block
};
void plan_step(Stream& stream, const StepPlanParams& params);

}  // namespace lantern
