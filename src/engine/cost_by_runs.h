// The cost of steps by their size, from runs that somebody times.
#pragma once

#include <cstdint>
#include <functional>

#include "engine/step_cost.h"

namespace lantern {

// Of 1, 2, 4, ... tokens, up to `most_tokens`: `run` runs so many and says how many seconds it took. The shortest of
// some runs of each size; the first two sizes are measured however long they take, and a larger one that takes long is
// the last. What takes long is run once, but for one token, of which a run before counts for nothing.
TokenCost cost_by_runs(int32_t most_tokens, const std::function<double(int32_t tokens)>& run);

}  // namespace lantern
