#include "engine/sequence.h"

#include <algorithm>

#include "ops/philox.h"

namespace lantern {

ServiceKey service_key(const Request& request, EngineTime now, uint64_t order, const EngineSettings& settings) {
  // Saturating: a priority of any size is the end of the line, not an overflow.
  const int64_t most = (kNever - now) / std::max<EngineTime>(settings.priority_step, EngineTime(1));
  EngineTime come = request.priority >= most ? kNever : now + settings.priority_step * request.priority;
  if (request.deadline != kNever) come = std::min(come, std::max(now, request.deadline - settings.deadline_slack));
  return {come, order};
}

uint64_t Sequence::seed() const {
  if (choice == 0) return request->sampling.seed;
  const auto words = philox_block(request->sampling.seed, static_cast<uint64_t>(choice));
  return uint64_t{words[0]} << 32 | words[1];
}

StepRules step_rules(const Request& request) {
  StepRules rules{.constrained = request.constraint != nullptr,
                  .logprobs = request.logprobs >= 0,
                  .traced = request.trace_selections,
                  .min_tokens = request.min_tokens};
  if (request.ignore_stop_tokens) return rules;
  rules.stops_fit = request.stop_token_ids.size() <= rules.stops.size();
  if (!rules.stops_fit) return rules;
  rules.num_stops = static_cast<int8_t>(request.stop_token_ids.size());
  std::ranges::copy(request.stop_token_ids, rules.stops.begin());
  return rules;
}

}  // namespace lantern
