#include "attention/plan/plan_host.h"
#include "attention/plan/step_plan.h"

namespace lantern {
namespace {

void plan_step_kernel(const StepPlanParams& p, HostContext&) {
  plan::plan_rows(p);
  plan::plan_tokens(p);
  plan::plan_per_request(p);
  plan::plan_schedules(p);
  plan::plan_prefill_chunks(p);
  plan::plan_drafts(p);
}

}  // namespace

void plan_step(Stream& stream, const StepPlanParams& params) { stream.launch("plan_step", &plan_step_kernel, params); }

}  // namespace lantern
