#include <algorithm>

#include "attention/step_plan.h"

namespace lantern {
namespace {

int32_t slot_of(const StepPlanParams& p, int32_t request, int32_t position) {
  const int32_t entry = position / p.block_size;
  if (entry >= p.block_table_stride) return -1;
  const int32_t block = p.block_table[int64_t{request} * p.block_table_stride + entry];
  return block == 0 ? -1 : block * p.block_size + position % p.block_size;
}

void plan_step_kernel(const StepPlanParams& p, HostContext&) {
  std::fill_n(p.token_request.get(), p.tokens, -1);
  std::fill_n(p.token_context_len.get(), p.tokens, 0);
  std::fill_n(p.slot_mapping.get(), p.tokens, -1);
  const int32_t requests = std::min(p.num_requests[0], p.requests);
  const int32_t tokens = std::min(p.num_tokens[0], p.tokens);
  for (int32_t b = 0; b < requests; ++b) {
    const int32_t begin = p.query_start_loc[b];
    const int32_t query_len = p.query_start_loc[b + 1] - begin;
    for (int32_t j = 0; j < query_len; ++j) {
      const int32_t t = begin + j;
      if (t < 0 || t >= tokens) continue;
      const int32_t context_len = std::max(0, p.seq_lens[b] - query_len + 1 + j);
      p.token_request[t] = b;
      p.token_context_len[t] = context_len;
      p.slot_mapping[t] = context_len > 0 ? slot_of(p, b, context_len - 1) : -1;
    }
  }
}

}  // namespace

void plan_step(Stream& stream, const StepPlanParams& params) { stream.launch("plan_step", &plan_step_kernel, params); }

}  // namespace lantern
