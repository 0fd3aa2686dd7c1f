#include "attention/plan/plan_host.h"

namespace lantern::plan {

void plan_step_on_host(const StepPlanParams& p) {
  plan_rows(p);
  plan_tokens(p);
  plan_per_request(p);
  plan_schedules(p);
  plan_prefill_chunks(p);
  plan_drafts(p);
}

}  // namespace lantern::plan
