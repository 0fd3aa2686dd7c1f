#include "plan_cases.h"

#include <algorithm>

#include "base/check.h"

namespace lantern::test {

PlanCase make_case(const Ints& seq_lens, const Ints& query_lens, int32_t max_query_len, int32_t block_size) {
  CHECK(seq_lens.size() == query_lens.size(), "{} lengths and {} query lengths", seq_lens.size(), query_lens.size());
  PlanCase c;
  c.num_requests = static_cast<int32_t>(seq_lens.size());
  c.query_start_loc = {0};
  c.seq_lens = seq_lens;
  c.block_table.emplace_back();
  int32_t block = 1, widest_row = 1, longest = 1;
  for (size_t b = 0; b < seq_lens.size(); ++b) {
    c.query_start_loc.push_back(c.query_start_loc.back() + query_lens[b]);
    Ints& row = c.block_table[0].emplace_back();
    for (int32_t at = 0; at < seq_lens[b]; at += block_size) row.push_back(block++);
    widest_row = std::max(widest_row, static_cast<int32_t>(row.size()));
    longest = std::max(longest, seq_lens[b]);
  }
  c.num_tokens = c.query_start_loc.back();
  StepLimits& limits = c.config.limits;
  limits.max_requests = std::max(c.num_requests, 1);
  limits.max_query_len = max_query_len;
  limits.max_tokens = std::max(c.num_tokens, limits.max_requests * max_query_len);
  limits.block_size = block_size;
  limits.max_blocks_per_request = widest_row;
  limits.num_blocks = block;
  limits.max_model_len = longest;
  return c;
}

PlanResult run_plan(const PlanCase& plan_case) {
  const std::unique_ptr<Device> device = make_host_device(1);
  Result<PlanResult> result = replay_plan(*device, plan_case);
  CHECK(result.ok(), "{}", result.error().message());
  return std::move(result).value();
}

PlanResult run_poisoned(PlanCase plan_case) {
  plan_case.poison = true;
  return run_plan(plan_case);
}

std::vector<std::pair<int32_t, PlanFault>> faults(const PlanResult& result) {
  std::vector<std::pair<int32_t, PlanFault>> list;
  for (const PlanResult::Fault& error : result.errors) list.emplace_back(error.request, error.fault);
  return list;
}

}  // namespace lantern::test
