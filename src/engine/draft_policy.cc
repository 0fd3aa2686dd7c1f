#include "engine/draft_policy.h"

#include <algorithm>

namespace lantern {
namespace {

// Weight that a check keeps when the next is made: the memory is about 32 checks long.
constexpr double kMemory = 1.0 - 1.0 / 32;

}  // namespace

void AcceptanceStats::record(int32_t drafted, int32_t accepted) {
  total_drafted_ += drafted;
  total_accepted_ += accepted;
  const int32_t checked = std::min(drafted, accepted + 1);
  for (int32_t i = 0; i < checked; ++i) {
    accepted_ = accepted_ * kMemory + (i < accepted ? 1.0 : 0.0);
    checked_ = checked_ * kMemory + 1.0;
  }
}

double expected_tokens(double acceptance_rate, int32_t drafts) {
  double tokens = 1;
  double chance = 1;  // that the k-th draft is reached and right
  for (int32_t k = 0; k < drafts; ++k) {
    chance *= acceptance_rate;
    tokens += chance;
  }
  return tokens;
}

double step_time(const StepCost& cost, int32_t num_decodes, int32_t num_tokens, int32_t draft_passes) {
  const double verify = cost.step.at(num_tokens);
  if (draft_passes == 0) return verify;
  return verify + cost.draft_layer.at(num_tokens) + (draft_passes - 1) * cost.draft_layer.at(num_decodes) +
         draft_passes * cost.draft_head.at(num_decodes);
}

void draft_times(const StepCost& cost, int32_t num_decodes, std::span<double> times) {
  for (size_t k = 0; k < times.size(); ++k) {
    const auto drafts = static_cast<int32_t>(k);
    times[k] = step_time(cost, num_decodes, num_decodes * (1 + drafts), drafts);
  }
}

int32_t best_draft_length(double acceptance_rate, std::span<const double> times) {
  size_t best = 0;
  double best_speed = 0;
  double least = 0;  // speed that drafts must reach
  double tokens = 0;
  double chance = 1;  // that the k-th token is reached
  for (size_t k = 0; k < times.size(); ++k) {
    tokens += chance;
    chance *= acceptance_rate;
    const double speed = tokens / std::max(times[k], 1e-12);
    if (k == 0) least = kWorthwhile * speed;
    if (k == 0 || speed > best_speed * (1 + 1e-9)) {
      best = k;
      best_speed = speed;
    }
  }
  if (best_speed < least) return 0;
  return static_cast<int32_t>(best);
}

DraftPhase draft_phase(uint64_t step) {
  const uint64_t place = step % kTrialInterval;
  if (place < kTrialInterval - kWarmUpSteps - kTrialSteps) return DraftPhase::kUsual;
  return place < kTrialInterval - kTrialSteps ? DraftPhase::kWarmUp : DraftPhase::kTrial;
}

}  // namespace lantern
