// What must hold of every plan, whatever the batch: pure validators over plain data, run by tests and by checked builds
// on each replayed plan. Numbers in the messages are those of docs/plan.md.
#pragma once

#include <string>
#include <vector>

#include "attention/plan/plan_replay.h"

namespace lantern {

// One sentence per violation; empty when all is well. `plan_case` is what `result` was made from, its groups spelt out.
std::vector<std::string> plan_violations(const PlanCase& plan_case, const PlanResult& result);

// A decode graph may replay a batch only when nobody in it is prefilling.
inline bool may_replay_decode_graph(const PlanResult& result) { return result.counts[kNumPrefills] == 0; }

}  // namespace lantern
