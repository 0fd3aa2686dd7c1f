// Short ways to write a plan case and to run it on every implementation.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "attention/plan/plan_replay.h"

namespace lantern::test {

using Ints = std::vector<int32_t>;

// A batch of requests with these lengths and query lengths. Blocks of `block_size` are handed out from 1 on, request
// after request; rows have exactly the entries that the lengths need. Limits are as tight as the batch allows.
PlanCase make_case(const Ints& seq_lens, const Ints& query_lens, int32_t max_query_len, int32_t block_size = 64);

// What the host's plan says, after the CUDA kernels, emulated on the host in several orders and run on a GPU where
// there is one, have left the same in every word of the plan's memory. Throws std::runtime_error, which fails a test,
// where they have not; CHECKs that the case is one that can be planned.
PlanResult run_plan(const PlanCase& plan_case);

// The GPU that plans are compared with; null, said once on standard output, where there is none.
Device* gpu_device();

// As run_plan with everything beyond the counts and all scratch poisoned.
PlanResult run_poisoned(PlanCase plan_case);

// {request, fault} of every error, for comparison.
std::vector<std::pair<int32_t, PlanFault>> faults(const PlanResult& result);

}  // namespace lantern::test
