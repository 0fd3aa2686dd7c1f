// CONTRACT.md, checked: pure functions of state, for every simulated step and for checked builds. The first violation
// found is returned as "B2: block 7 has 2 references and 1 lease"; nothing is returned where all is well. Cost: linear
// in blocks, sequences and tokens.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "engine/engine_core.h"

namespace lantern {

using Violation = std::optional<std::string>;

// B1 to B5, X1 to X4, S1 to S7. Between any two calls of the engine.
Violation find_violation(const EngineCore& engine);

// P1 to P4, F2 and F3 of a schedule that was just made from `state`.
Violation find_violation(const EngineState& state, const StepSchedule& schedule, const StepBudget& budget);

// D1 and D3 of a step that is submitted: its shape has room for its rows, or it is the dummy as that has to be.
Violation find_violation(const StepBatch& batch, const EngineSettings& settings);
// D2 and D4, between two agreements of ranks in step.
Violation find_disagreement(std::span<const EngineCore* const> ranks);

// F4, when the engine is idle.
Violation find_leak(const EngineState& state);

}  // namespace lantern
