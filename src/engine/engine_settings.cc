#include "engine/engine_settings.h"

#include <fmt/format.h>

#include <cmath>

#include "ops/sampling_settings.h"

namespace lantern {
namespace {

// Every sequence that may wait has its record from the start, of about half a kilobyte.
constexpr int32_t kMostQueued = 1'000'000;

Status at_least(const char* name, int64_t value, int64_t lowest) {
  if (value >= lowest) return {};
  return Error(ErrorCode::kInvalidArgument, fmt::format("{} is {}; set it to at least {}", name, value, lowest));
}

Status check_cost(const char* name, const TokenCost& cost) {
  double before = 0;
  for (const double value : cost.powers()) {
    if (!std::isfinite(value) || value < before) {
      return Error(ErrorCode::kInvalidArgument,
                   fmt::format("step_cost.{} holds {} behind {}; costs are 0 or more, and more tokens cost no less",
                               name, value, before));
    }
    before = value;
  }
  return {};
}

}  // namespace

Result<EngineSettings> EngineSettings::checked(const EngineSettings& settings) {
  EngineSettings result = settings;
  ASSIGN_OR_RETURN(result.limits, StepLimits::checked(settings.limits));
  const StepLimits& limits = result.limits;
  RETURN_IF_ERROR(at_least("num_blocks", limits.num_blocks, 2));
  RETURN_IF_ERROR(
      at_least("max_blocks_per_request", limits.max_blocks_per_request, result.blocks_for(limits.max_model_len)));
  RETURN_IF_ERROR(at_least("max_model_len", limits.max_model_len, 2));
  RETURN_IF_ERROR(at_least("max_queued", result.max_queued, 1));
  if (result.max_queued > kMostQueued) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("max_queued is {}; set it to at most {}", result.max_queued, kMostQueued));
  }
  RETURN_IF_ERROR(at_least("max_partial_prefills", result.max_partial_prefills, 1));
  RETURN_IF_ERROR(at_least("watermark_blocks", result.watermark_blocks, 0));
  RETURN_IF_ERROR(at_least("max_preemptions", result.max_preemptions, 0));
  RETURN_IF_ERROR(at_least("max_overtakes", result.max_overtakes, 0));
  RETURN_IF_ERROR(at_least("priority_step", result.priority_step.count(), 0));
  RETURN_IF_ERROR(at_least("deadline_slack", result.deadline_slack.count(), 0));
  RETURN_IF_ERROR(at_least("vocab_size", result.vocab_size, 0));
  if (result.max_logprobs < -1 || result.max_logprobs > kMaxLogprobs) {
    return Error(ErrorCode::kInvalidArgument, fmt::format("max_logprobs is {}; it is -1 (no log-probabilities) to {}",
                                                          result.max_logprobs, kMaxLogprobs));
  }
  if (result.max_traced_rows != 0 && result.max_traced_rows < limits.max_query_len) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("max_traced_rows is {}, and one sequence with its drafts has {} in a step; set it to at "
                             "least as many, or to 0 to trace none",
                             result.max_traced_rows, limits.max_query_len));
  }
  if (result.max_traced_rows > 0 && limits.index_topk == 0) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("max_traced_rows is {}, and where nothing is selected nothing can be traced; set it to 0 "
                             "or limits.index_topk to what the model selects",
                             result.max_traced_rows));
  }
  if (result.max_steps_in_flight != 1 && result.max_steps_in_flight != 2) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("max_steps_in_flight is {}; it is 1 (steps strictly in turn) or 2 (planning overlaps)",
                             result.max_steps_in_flight));
  }
  if (!(result.decode_share >= 0 && result.decode_share < 1)) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("decode_share is {}; it is a share from 0 to below 1", result.decode_share));
  }
  RETURN_IF_ERROR(check_cost("step", result.step_cost.step));
  RETURN_IF_ERROR(check_cost("draft_layer", result.step_cost.draft_layer));
  RETURN_IF_ERROR(check_cost("draft_head", result.step_cost.draft_head));
  return result;
}

}  // namespace lantern
