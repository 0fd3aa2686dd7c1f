// Which sequences run in the next step, and with how many tokens. A pure function: the same state, budget and time give
// the same schedule on every rank; nothing is changed, no clock is read. The cost grows with the sequences that run and
// that are admitted, not with those that wait.
//
// Order of service is Sequence::key: first come first served, where a unit of priority counts as so much later a coming
// and a near deadline brings forward (engine_settings.h). Keys never change, so whoever waits is first some day.
//
//   1. Every running decode gets a row: its last token and its drafts.
//   2. Prompts share what is left of the step's tokens; while something decodes, (1 - decode_share) of them at most.
//   The
//      oldest prompt in work gets half (all when it is alone), the rest goes to the shortest first: a short prompt does
//      not wait behind a long one, and the long one moves on in every step.
//   3. Blocks are given in order of service. Where they do not suffice, the sequence served last gives way and
//   recomputes
//      later; but a sequence gives way max_preemptions times at most, after which it is admitted with all the blocks
//      that it can need, and keeps them.
//   4. Admission in order of service, by tokens: a prompt is admitted when blocks for all of it are there, beyond what
//      the prompts in work still need. One that finds no room may be passed in max_overtakes steps.
//
// Why the engine always moves on: the first in order among those that can be preempted may take the blocks of all the
// others; those that cannot be preempted need none. Nothing that was submitted needs more than the whole pool.
#pragma once

#include <vector>

#include "engine/engine_state.h"
#include "engine/step_batch.h"

namespace lantern {

// What one step may take; at most what the limits say. Ranks agree on it before they plan.
struct StepBudget {
  int32_t max_tokens = 0;
  int32_t max_drafts = 0;  // for each sequence, verified in the step and made after it
};

class Scheduler {
 public:
  explicit Scheduler(const EngineSettings& settings);

  static StepBudget full_budget(const EngineSettings& settings) {
    return {settings.limits.max_tokens, settings.max_drafts()};
  }

  // Const but for scratch that no result depends on.
  void plan(const EngineState& state, const StepBudget& budget, EngineTime now, StepSchedule& schedule);

 private:
  struct Candidate {  // what a running sequence would do in this step
    SequenceId sequence = -1;
    bool decode = false;
    bool preempted = false;
    int32_t tokens = 0;  // of its row; 0: none
  };

  void plan_decodes(const EngineState& state);
  void plan_prompts(const EngineState& state);
  void give_blocks(const EngineState& state);
  void admit(const EngineState& state, EngineTime now);
  void extend_oldest_prompt(const EngineState& state);
  void finish_rows(const EngineState& state);
  // How many drafts the sampling rows want made, and whether the drafter runs at all.
  void choose_drafts(const EngineState& state);

  // Makes room for `blocks` more at the cost of sequences behind `place` in order; whether there is room now.
  bool make_room(const EngineState& state, size_t place, int32_t blocks);
  // Blocks that the sequence has when it runs `tokens` more.
  int32_t blocks_after(const EngineState& state, const Sequence& sequence, int32_t tokens) const;

  StepSchedule* schedule_ = nullptr;
  StepBudget budget_;

  std::vector<Candidate> candidates_;  // as EngineState::running
  std::vector<StepRow> prompt_rows_;
  std::vector<double> draft_times_;  // [max_drafts + 1]
  DraftWishes wishes_;
  std::vector<SequenceId> passed_over_;  // waiting, without room, since the last admission of this step
  ServiceQueue<ServiceKey>::Walk waiting_;
  int32_t num_decoding_ = 0;
  int32_t tokens_left_ = 0;    // of the step
  int32_t prompt_tokens_ = 0;  // of these, for prompts
  int32_t blocks_left_ = 0;
  bool draining_ = false;  // blocks come back when steps in flight are through
  int32_t oldest_prompt_row_ = -1;
};

}  // namespace lantern
