// How many drafts a sequence asks for: pure functions of what was accepted so far and of the load.
#pragma once

#include <cstdint>
#include <span>

#include "engine/step_cost.h"

namespace lantern {

// What a sequence's drafts have come to. Fades, so that a change of subject shows within some tens of drafts.
class AcceptanceStats {
 public:
  // `accepted` of `drafted` drafts of a step were right. Drafts behind the first wrong one say nothing.
  void record(int32_t drafted, int32_t accepted);

  // Chance that a draft is accepted, given that all before it were.
  double rate() const { return accepted_ / checked_; }
  int64_t drafted() const { return total_drafted_; }
  int64_t accepted() const { return total_accepted_; }

 private:
  // One half of a draft each: an unknown sequence counts as accepting three of four.
  double accepted_ = 1.5;
  double checked_ = 2.0;
  int64_t total_drafted_ = 0;
  int64_t total_accepted_ = 0;
};

// 1 + r + r^2 + ... + r^k: tokens that a row with k drafts comes to.
double expected_tokens(double acceptance_rate, int32_t drafts);

// Time of a step of `num_decodes` rows that verify `num_tokens` tokens together, and of making as many drafts again in
// `draft_passes` passes: the first runs over all of the step's tokens, the others over one of each row. Without
// passes the drafter does not run.
double step_time(const StepCost& cost, int32_t num_decodes, int32_t num_tokens, int32_t draft_passes);

// times[k] = step_time() when each of `num_decodes` rows has k drafts.
void draft_times(const StepCost& cost, int32_t num_decodes, std::span<double> times);

// Drafts are made where they bring this much more: measured costs are not exact, and where they err nothing is lost.
constexpr double kWorthwhile = 1.05;

// The draft length with the most expected tokens per unit of time, in 0 .. times.size() - 1: the shortest of equals,
// and 0 unless the best is worthwhile.
int32_t best_draft_length(double acceptance_rate, std::span<const double> times);

// Where drafts do not pay for what a sequence was like, they are tried now and then, by all at once: a pass of the
// drafter that one row wants runs over all of them. A few steps before the drafter runs again, so that it knows the
// last tokens of the text; further back its entries are missing (CONTRACT.md, P6).
enum class DraftPhase : uint8_t { kUsual, kWarmUp, kTrial };
DraftPhase draft_phase(uint64_t step);
constexpr uint64_t kTrialInterval = 256;  // steps
constexpr uint64_t kWarmUpSteps = 4;
constexpr uint64_t kTrialSteps = 4;  // of one draft

}  // namespace lantern
