// The plan by brute force, straight from its definition: every token, unit and block is enumerated, nothing is shared
// with the implementation but the types of input and output. Slow and obvious on purpose.
#pragma once

#include "attention/plan/plan_replay.h"

namespace lantern::test {

// For a case with one or more cache groups given in its config.
PlanResult oracle_plan(const PlanCase& plan_case);

// The differences between two plans, one line per output that differs; empty when they are equal.
std::string differences(const PlanResult& got, const PlanResult& want);

}  // namespace lantern::test
