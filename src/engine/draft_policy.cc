#include "engine/draft_policy.h"

#include <algorithm>

namespace lantern {
void AcceptanceStats::record(int32_t drafted, int32_t accepted) {
  total_drafted_ += drafted;
  total_accepted_ += accepted;
  const int32_t checked = std::min(drafted, accepted + 1);
  for (int32_t i = 0; i < checked; ++i) {
    accepted_ = accepted_ * keep_ + (i < accepted ? 1.0 : 0.0);
    checked_ = checked_ * keep_ + 1.0;
    unknown_ *= keep_;
  }
}

void draft_times(const StepTimes& step_times, int32_t num_decodes, std::span<double> times) {
  for (size_t k = 0; k < times.size(); ++k) {
    const auto drafts = static_cast<int32_t>(k);
    times[k] = step_times.at(num_decodes, num_decodes * (1 + drafts), drafts);
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

DraftWishes::DraftWishes(int32_t max_drafts)
    : gains_(static_cast<size_t>(max_drafts) + 1), rows_(static_cast<size_t>(max_drafts) + 1) {}

void DraftWishes::restart() {
  num_rows_ = 0;
  std::ranges::fill(gains_, 0);
  std::ranges::fill(rows_, 0);
}

void DraftWishes::add(double acceptance_rate, int32_t drafts) {
  ++num_rows_;
  double chance = 1;  // that the k-th draft is reached and right
  for (size_t k = 1; k <= static_cast<size_t>(drafts); ++k) {
    chance *= acceptance_rate;
    gains_[k] += chance;
    ++rows_[k];
  }
}

int32_t DraftWishes::best_passes(const StepTimes& step_times) const {
  if (num_rows_ == 0) return 0;
  double outputs = num_rows_;
  int32_t tokens = num_rows_;
  double best_speed = kWorthwhile * outputs / std::max(step_times.at(num_rows_, num_rows_, 0), 1e-12);
  int32_t best = 0;
  for (size_t k = 1; k < gains_.size() && rows_[k] > 0; ++k) {
    outputs += gains_[k];
    tokens += rows_[k];
    const auto passes = static_cast<int32_t>(k);
    const double speed = outputs / std::max(step_times.at(num_rows_, tokens, passes), 1e-12);
    if (speed > best_speed * (1 + 1e-9)) {
      best_speed = speed;
      best = passes;
    }
  }
  return best;
}

}  // namespace lantern
