// One step, from decision to effect: planned -> reserved -> submitted -> completed -> committed. A step that could not
// be submitted is rolled back: the blocks that it reserved and the sequences that it admitted are as before (what it
// preempted waits, which is a change of its own). Two transactions may be under way: one runs while the next is
// planned.
//
// From reservation on a step needs nothing more: all blocks that it may write are leased. The sequences of a step in
// flight keep their blocks whatever happens to them (leave_step in lifecycle.h).
#pragma once

#include <cstdint>
#include <vector>

#include "engine/engine_state.h"
#include "engine/executor.h"
#include "engine/step_batch.h"

namespace lantern {

enum class StepStage : uint8_t { kIdle, kPlanned, kReserved, kSubmitted, kCompleted };

class StepTransaction {
 public:
  explicit StepTransaction(const EngineSettings& settings);

  StepStage stage() const { return stage_; }
  const StepSchedule& schedule() const { return schedule_; }
  const StepBatch& batch() const { return batch_; }
  const StepResults& results() const { return results_; }

  // kIdle -> kPlanned: the caller fills the schedule.
  StepSchedule& begin_plan();
  // Nothing is to be run. Preemptions and the like of the schedule are applied all the same.
  void apply_without_rows(EngineState& state);

  void drop_plan();  // kPlanned -> kIdle
  // kPlanned -> kReserved, to be launched in a shape that encloses shape_of(schedule()).
  void reserve(EngineState& state, const StepShape& shape);
  // kIdle -> kReserved: the dummy, which has no rows of the engine's and changes nothing.
  void reserve_dummy(EngineState& state, const StepShape& shape);
  Status submit(EngineState& state, Executor& executor);  // kReserved -> kSubmitted, or kReserved on an error
  void roll_back(EngineState& state);                     // kReserved -> kIdle
  Status complete(Executor& executor);                    // kSubmitted -> kCompleted
  // kCompleted -> kIdle: tokens, ends, published blocks. The step took `seconds`; 0: nobody knows.
  void commit(EngineState& state, double seconds = 0);
  // The step failed as a whole: its sequences end with kFailed. kSubmitted -> kIdle.
  void fail(EngineState& state);

 private:
  struct ReplacedBlock {  // by copy-on-write; leased until the copy has run
    SequenceId sequence = -1;
    int32_t index = 0;
    BlockLease lease;
  };

  void apply_decisions(EngineState& state);
  void reserve_row(EngineState& state, StepRow& row);
  void constrain_row(Sequence& sequence, StepRow& row);
  void trace_row(const EngineState& state, StepRow& row);
  static void score_row(const Sequence& sequence, StepRow& row);
  void commit_row(EngineState& state, int32_t r);
  void check_scores(Sequence& sequence, const StepRow& row, int32_t first_score) const;
  void hand_out_scores(EngineState& state, const StepRow& row, int32_t first_score);
  void accept_tokens(EngineState& state, int32_t r);
  void tell_of_drafts(EngineState& state, double seconds, int64_t tokens_out) const;

  StepStage stage_ = StepStage::kIdle;
  StepSchedule schedule_;
  StepBatch batch_;
  StepResults results_;
  std::vector<ReplacedBlock> replaced_;
  std::vector<int32_t> blocks_before_;  // by row: length of the sequence's table before the reservation
  int32_t scores_before_ = 0;           // in the results, of the rows that were committed
  int32_t num_accepted_ = 0;            // rows whose tokens were taken
};

}  // namespace lantern
