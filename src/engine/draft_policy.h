// How many drafts a sequence asks for: pure functions of what was accepted so far and of the load.
#pragma once

#include <cstdint>

#include "engine/engine_settings.h"

namespace lantern {

// What a sequence's drafts have come to. Fades, so that a change of subject shows within some tens of drafts.
class AcceptanceStats {
 public:
  // `accepted` of `drafted` drafts of a step were right. Drafts behind the first wrong one say nothing.
  void record(int32_t drafted, int32_t accepted);

  // Chance that a draft is accepted, given that all before it were.
  double rate() const { return accepted_ / checked_; }
  // Steps since one had drafts.
  int32_t steps_without_drafts() const { return steps_without_drafts_; }
  int64_t drafted() const { return total_drafted_; }
  int64_t accepted() const { return total_accepted_; }

 private:
  // One half of a draft each: an unknown sequence counts as accepting three of four.
  double accepted_ = 1.5;
  double checked_ = 2.0;
  int64_t total_drafted_ = 0;
  int64_t total_accepted_ = 0;
  int32_t steps_without_drafts_ = 0;
};

// The draft length with the most expected tokens per unit of time when `num_decodes` sequences decode together and each
// does as this one: (1 + r + r^2 + ... + r^k) / cost(k), for k in 0 .. max_drafts; the shortest of equals.
int32_t best_draft_length(double acceptance_rate, int32_t num_decodes, int32_t max_drafts, const StepCost& cost);

// As above, and now and then one draft where none would pay, so that a sequence which has become easy is noticed.
int32_t choose_draft_length(const AcceptanceStats& stats, int32_t num_decodes, int32_t max_drafts,
                            const StepCost& cost);
constexpr int32_t kDraftProbeInterval = 64;  // steps without drafts between two such drafts

}  // namespace lantern
