// The parts of the host's plan kernel, in the order in which it runs them. Each reads what the ones before it wrote.
#pragma once

#include "attention/plan/step_plan.h"

namespace lantern::plan {

void plan_rows(const StepPlanParams& p);            // rows, counts and errors
void plan_tokens(const StepPlanParams& p);          // everything per token
void plan_per_request(const StepPlanParams& p);     // the per-request view
void plan_schedules(const StepPlanParams& p);       // paged MQA and MLA
void plan_prefill_chunks(const StepPlanParams& p);  // under the workspace and logits budgets
void plan_drafts(const StepPlanParams& p);          // MTP steps 1, 2, ...

void plan_step_on_host(const StepPlanParams& p);  // all of them

}  // namespace lantern::plan
