// Whether an engine drafts at all, from what came of the steps so far: state that the scheduler reads and that moves on
// with each step, by times that come as values.
//
// Drafts must cost next to nothing where they do not pay, whatever was measured at the start, and however costs and
// texts change. An account in units of plain steps sees to that: a step with drafts adds what its tokens are worth in
// steps without and takes off what it took, and plain steps add a small allowance. Without credit nobody drafts. So
// what is ever lost to drafts is at most that allowance of the plain steps, the first credit, and what one attempt
// loses before its times are known.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "engine/draft_policy.h"
#include "engine/step_times.h"

namespace lantern {

enum class DraftPhase : uint8_t {
  kUsual,
  // Where drafts do not pay they are tried now and then, by all rows at once, since a pass of the drafter runs over all
  // of them. Before that the drafter runs for a few steps, so that it knows the last tokens of the text; further back
  // its entries are missing (CONTRACT.md, P6).
  kWarmUp,
  kTrial,  // of one draft
  // Where drafts pay, some steps without them tell what those take now.
  kPlain,
};

// A step of decodes alone that was committed.
struct DraftedStep {
  int32_t num_decodes = 0;   // of its shape, as what follows
  int32_t num_tokens = 0;    // run
  int32_t draft_passes = 0;  // made behind it
  bool drafter_runs = false;
  bool wanted = false;     // some row of its own has to do with drafts: verifies some, or wants some made
  int32_t rows = 0;        // whose results counted,
  int32_t tokens_out = 0;  // and the tokens that they came to
  double time = 0;         // that it took, as StepTimes has it; 0: not known
};

class DraftControl {
 public:
  explicit DraftControl(const StepCost& measured) : times_(measured) {}

  static constexpr int32_t kWarmUpSteps = 4;
  static constexpr int32_t kTrialSteps = 4;
  static constexpr int32_t kPlainSteps = 4;       // the first still verifies drafts
  static constexpr int32_t kTrialInterval = 256;  // steps without drafts before a trial; doubled by each in vain
  static constexpr int32_t kPlainInterval = 32;   // steps with drafts before plain ones; doubled each time
  // Before anything is drafted so many plain steps are timed, where some are without prompts.
  static constexpr int32_t kFirstPlain = 3;
  static constexpr double kAllowance = 0.015;  // of plain steps
  static constexpr double kFirstCredit = 4;    // plain steps, as the next
  static constexpr double kMostCredit = 16;
  static constexpr double kRetryCredit = 2;  // after the credit was used up

  const StepTimes& times() const { return times_; }
  // What a sequence of which nothing is known is taken for.
  double acceptance() const { return acceptance_.rate(kUnknownAcceptance); }
  DraftPhase phase() const { return phase_; }
  bool may_draft() const {
    if (phase_ != DraftPhase::kUsual) return phase_ != DraftPhase::kPlain;
    return !blocked_ && (!timed_ || times_.num_plain() >= kFirstPlain || held_back_ >= kMostHeldBack);
  }
  // Before it is known what drafts take beside what was measured, one is enough.
  int32_t most_drafts(int32_t num_decodes) const;
  // Trials apart.
  bool drafted_lately() const { return lately_ > 0; }
  double credit() const { return credit_; }

  void record_acceptance(int32_t drafted, int32_t accepted);
  // A step with `num_decodes` sampling rows was submitted, behind which the drafter makes `draft_passes` passes;
  // `may_pay`: if all drafts were right they would.
  void on_submit(int32_t num_decodes, int32_t draft_passes, bool may_pay);
  void on_commit(const DraftedStep& step);
  // Somebody reads a clock: times of steps come.
  void expect_times() { timed_ = true; }

 private:
  static constexpr int32_t kLongestTrialInterval = 4096;
  static constexpr int32_t kLongestPlainInterval = 1024;
  static constexpr int32_t kMostHeldBack = 32;      // steps
  static constexpr int32_t kFirstDrafts = 8;        // steps of a size whose first drafts were not timed
  static constexpr int32_t kMostTrialSteps = 64;    // of one that goes well
  static constexpr int32_t kLately = 16;            // steps
  static constexpr double kAcceptanceMemory = 512;  // checks, of all sequences

  struct Waits {                     // by size class
    int32_t trial = kTrialInterval;  // steps
    int32_t plain = kPlainInterval;  // steps
    int32_t drafted = 0;             // steps with drafts since a plain one was timed
  };
  void begin(DraftPhase phase, int32_t steps);
  // Whether the trial's drafts, as far as they are known, pay.
  bool trial_goes_well(int32_t num_decodes) const;
  // What a trial is expected to lose, in plain steps.
  double trial_cost(int32_t num_decodes) const;

  StepTimes times_;
  AcceptanceStats acceptance_{kAcceptanceMemory};
  DraftPhase phase_ = DraftPhase::kUsual;
  int32_t steps_left_ = 0;      // of another phase
  int32_t trial_steps_ = 0;     // so far, of the last trial,
  int32_t trial_checked_ = 0;   // and drafts that were checked since it began,
  int32_t trial_accepted_ = 0;  // and were right
  int32_t lately_ = 0;          // steps for which it counts that some were drafted
  int32_t held_back_ = 0;       // steps for want of plain ones
  bool timed_ = false;
  int32_t without_drafts_ = 0;  // steps in a row
  std::array<Waits, StepTimes::kSizes> waits_{};
  double credit_ = kFirstCredit;
  bool blocked_ = false;  // the credit was used up, and no trial has begun since
};

}  // namespace lantern
