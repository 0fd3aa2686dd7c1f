#include "engine/draft_control.h"

#include <algorithm>
#include <cstdint>

namespace lantern {
namespace {

// A step that takes so many times what such steps took lately was held up by something else.
constexpr double kOutlier = 4;
// And nothing is known of steps that took more, in plain steps.
constexpr double kMostLoss = 64;

}  // namespace

void DraftControl::begin(DraftPhase phase, int32_t steps) {
  phase_ = phase;
  steps_left_ = steps;
  without_drafts_ = 0;
}

void DraftControl::record_acceptance(int32_t drafted, int32_t accepted) {
  acceptance_.record(drafted, accepted);
  trial_checked_ += std::min(drafted, accepted + 1);
  trial_accepted_ += accepted;
}

int32_t DraftControl::most_drafts(int32_t num_decodes) const {
  const Waits& waits = waits_[static_cast<size_t>(StepTimes::size_class(num_decodes))];
  const bool unknown = timed_ && !times_.drafts_recorded(num_decodes) && waits.drafted < kFirstDrafts;
  return unknown ? 1 : INT32_MAX;
}

double DraftControl::trial_cost(int32_t num_decodes) const {
  const double plain = times_.at(num_decodes, num_decodes, 0);
  const double drafted = times_.at(num_decodes, 2 * num_decodes, 1);
  if (!(plain > 0)) return 0;
  // Nothing is hoped for of the drafts; warming up takes less than drafts do. With all the credit that there can be
  // they are tried whatever they took.
  return std::clamp((drafted / plain - 1) * (kWarmUpSteps + kTrialSteps), 0.0, kMostCredit - kAllowance);
}

bool DraftControl::trial_goes_well(int32_t num_decodes) const {
  if (blocked_ || trial_checked_ == 0 || trial_steps_ >= kMostTrialSteps) return false;
  const double outputs = 1 + static_cast<double>(trial_accepted_) / trial_checked_;
  return outputs * times_.at(num_decodes, num_decodes, 0) > kWorthwhile * times_.at(num_decodes, 2 * num_decodes, 1);
}

void DraftControl::on_submit(int32_t num_decodes, int32_t draft_passes, bool may_pay) {
  if (num_decodes == 0) return;
  if (phase_ != DraftPhase::kUsual) {
    if (phase_ == DraftPhase::kTrial) ++trial_steps_;
    if (--steps_left_ > 0) return;
    if (phase_ == DraftPhase::kWarmUp) {
      trial_steps_ = trial_checked_ = trial_accepted_ = 0;
      begin(DraftPhase::kTrial, kTrialSteps);
    } else if (phase_ == DraftPhase::kTrial && trial_goes_well(num_decodes)) {
      // Sequences that were hard must be seen to be easy now, each by itself.
      steps_left_ = kTrialSteps;
    } else {
      begin(DraftPhase::kUsual, 0);
    }
    return;
  }
  Waits& waits = waits_[static_cast<size_t>(StepTimes::size_class(num_decodes))];
  if (draft_passes > 0) {
    without_drafts_ = 0;
    lately_ = kLately;
    waits.trial = kTrialInterval;
    if (timed_ && ++waits.drafted >= waits.plain) {
      waits.drafted = 0;
      waits.plain = std::min(2 * waits.plain, kLongestPlainInterval);
      begin(DraftPhase::kPlain, kPlainSteps);
    }
    return;
  }
  ++without_drafts_;
  if (lately_ > 0) --lately_;
  if (held_back_ < kMostHeldBack) ++held_back_;
  // Where all drafts being right would not pay, only the times of drafts could be news.
  if (!may_pay && !timed_) return;
  const bool due = blocked_ ? credit_ >= kRetryCredit : without_drafts_ >= waits.trial;
  if (!due || (timed_ && credit_ < trial_cost(num_decodes))) return;
  waits.trial = std::min(2 * waits.trial, kLongestTrialInterval);
  blocked_ = false;
  begin(DraftPhase::kWarmUp, kWarmUpSteps);
}

void DraftControl::on_commit(const DraftedStep& step) {
  if (!(step.time > 0) || step.rows == 0) return;
  timed_ = true;
  const double expected = times_.at(step.num_decodes, step.num_tokens, step.draft_passes);
  const bool verifies = step.num_tokens > step.num_decodes;
  const bool plain = !verifies && step.draft_passes == 0 && !step.drafter_runs;
  const bool drafts_as_before = verifies && step.draft_passes > 0;
  const bool known = drafts_as_before && times_.num_recorded(step.num_decodes, step.draft_passes) >= 3;
  if (plain || drafts_as_before) {
    times_.record(step.num_decodes, step.num_tokens, step.draft_passes, step.time);
  }
  if (plain) {
    waits_[static_cast<size_t>(StepTimes::size_class(step.num_decodes))].drafted = 0;
    credit_ = std::min(credit_ + kAllowance, kMostCredit);
    return;
  }
  // What other ranks make this one run is no matter of its drafts.
  if (!step.wanted) return;
  const double plain_time = times_.at(step.num_decodes, step.num_decodes, 0);
  if (!(plain_time > 0)) return;
  const double took = known ? std::min(step.time, kOutlier * expected) : step.time;
  const double worth = static_cast<double>(step.tokens_out) / step.rows;
  credit_ = std::min(credit_ + worth - std::min(took / plain_time, worth + kMostLoss), kMostCredit);
  if (credit_ >= 0) return;
  blocked_ = true;
  if (phase_ == DraftPhase::kWarmUp || phase_ == DraftPhase::kTrial) begin(DraftPhase::kUsual, 0);
}

}  // namespace lantern
