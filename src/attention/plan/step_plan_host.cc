#include "attention/plan/plan_cuda.h"
#include "attention/plan/plan_host.h"
#include "attention/plan/step_plan.h"
#include "base/check.h"

namespace lantern {
namespace {

void plan_step_kernel(const StepPlanParams& p, HostContext&) { plan::plan_step_on_host(p); }

}  // namespace

void plan_step(Stream& stream, const StepPlanParams& params) {
  if (stream.device().kind() == DeviceKind::kCpu) {
    stream.launch("plan_step", &plan_step_kernel, params);
    return;
  }
  stream.note_launch("plan_step", &params, sizeof(params));
  const Status launched = plan::launch_plan_kernels(stream.native_handle(), params);
  CHECK(launched.ok(), "{}", launched.error().message());
}

}  // namespace lantern
