// The plan on a GPU.
#pragma once

#include "attention/plan/step_plan.h"
#include "base/result.h"

namespace lantern::plan {

// Loads the kernels' code for the current device, which a capture must not be the first to do. unsupported where this
// build has no CUDA, or with CUDA's own words where it refuses.
Status load_plan_kernels();
// Launches the kernels (plan_rows_kernel.h, plan_schedules_kernel.h) on a cudaStream_t of the current device.
Status launch_plan_kernels(void* cuda_stream, const StepPlanParams& params);

}  // namespace lantern::plan
