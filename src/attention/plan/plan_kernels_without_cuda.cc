// Stands in for the plan's CUDA kernels where they are not built.
#include "attention/plan/plan_cuda.h"

namespace lantern::plan {

namespace {

Status no_cuda() {
  return Error(ErrorCode::kUnsupported,
               "this build plans on the CPU only: nvcc was not found when it was configured; use the CPU device");
}

}  // namespace

Status load_plan_kernels() { return no_cuda(); }
Status launch_plan_kernels(void* /*cuda_stream*/, const StepPlanParams& /*params*/) { return no_cuda(); }

}  // namespace lantern::plan
