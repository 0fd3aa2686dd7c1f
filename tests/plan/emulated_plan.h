// The CUDA kernels of the plan, run block by block on the host.
#pragma once

#include "attention/plan/step_plan.h"
#include "host_block.h"

namespace lantern::test {

// Shared memory is poisoned before each block. `order` is that of the blocks, and of the threads within one.
void emulate_plan_kernels(const StepPlanParams& params, BlockOrder order);

}  // namespace lantern::test
