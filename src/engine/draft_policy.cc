#include "engine/draft_policy.h"

#include <algorithm>

namespace lantern {
namespace {

// Weight that a check keeps when the next is made: the memory is about 32 checks long.
constexpr double kMemory = 1.0 - 1.0 / 32;

}  // namespace

void AcceptanceStats::record(int32_t drafted, int32_t accepted) {
  steps_without_drafts_ = drafted > 0 ? 0 : steps_without_drafts_ + 1;
  total_drafted_ += drafted;
  total_accepted_ += accepted;
  const int32_t checked = std::min(drafted, accepted + 1);
  for (int32_t i = 0; i < checked; ++i) {
    accepted_ = accepted_ * kMemory + (i < accepted ? 1.0 : 0.0);
    checked_ = checked_ * kMemory + 1.0;
  }
}

int32_t best_draft_length(double acceptance_rate, int32_t num_decodes, int32_t max_drafts, const StepCost& cost) {
  const double rows = std::max(num_decodes, 1);
  int32_t best = 0;
  double best_speed = 0;
  double tokens = 0;
  double chance = 1;  // that the k-th token is reached
  for (int32_t k = 0; k <= max_drafts; ++k) {
    tokens += chance;
    chance *= acceptance_rate;
    const double time =
        cost.fixed + cost.per_token * rows * (1 + k) + k * (cost.draft_pass + cost.draft_per_row * rows);
    const double speed = tokens / std::max(time, 1e-12);
    if (k == 0 || speed > best_speed * (1 + 1e-9)) {
      best = k;
      best_speed = speed;
    }
  }
  return best;
}

int32_t choose_draft_length(const AcceptanceStats& stats, int32_t num_decodes, int32_t max_drafts,
                            const StepCost& cost) {
  if (max_drafts <= 0) return 0;
  const int32_t best = best_draft_length(stats.rate(), num_decodes, max_drafts, cost);
  return best == 0 && stats.steps_without_drafts() >= kDraftProbeInterval ? 1 : best;
}

}  // namespace lantern
