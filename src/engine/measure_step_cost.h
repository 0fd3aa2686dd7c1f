// What steps cost on this machine, found out by running some before the engine starts.
#pragma once

#include "engine/engine_settings.h"
#include "model/model.h"

namespace lantern {

// Runs decodes of 1, 2, 4, ... tokens, up to one of every sample row or until that takes long (then sizes beyond are
// taken to follow the line), all on the null block: caches stay as they are. The drafter's cost is that of the MTP
// layer, or none where `mtp` is false. Takes some runs of each size, of at most a tenth of a second, beside the first
// two sizes and the last. Before the device is sealed. Errors: out_of_memory with numbers.
Result<StepCost> measure_step_cost(Device& device, const Model& model, const EngineSettings& settings, bool mtp);

}  // namespace lantern
