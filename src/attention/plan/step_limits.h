// The one struct of upper bounds that sizes every persistent buffer of a step. Four bounds and no others: tokens,
// requests, sampled rows, scratch bytes. The block geometry beside them is that of the first cache group.
#pragma once

#include <cstdint>

#include "base/result.h"

namespace lantern {

struct StepLimits {
  int32_t max_tokens = 0;
  int32_t max_requests = 0;
  int32_t max_query_len = 1;  // tokens of one decoding request: 1 + draft tokens
  int64_t scratch_bytes = 0;  // of tiled scratch; 0 where the plan alone is used

  int32_t max_blocks_per_request = 0;
  int32_t block_size = 64;  // tokens
  int32_t num_blocks = 0;   // of the pool, the null block included
  int32_t index_topk = 0;   // keys that a sparse layer selects; 0: no sparse layer
  int32_t max_model_len = 0;

  int64_t max_sample_rows() const { return int64_t{max_requests} * max_query_len; }

  // The same limits if they agree with each other: every count at least 1, max_tokens at least max_sample_rows() (a
  // decode of every request must fit a step), slots that int32 can number. invalid_argument names the field otherwise.
  static Result<StepLimits> checked(const StepLimits& limits);
};

}  // namespace lantern
