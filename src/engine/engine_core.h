// The engine without threads, clocks and devices: requests go in, steps are started and finished, tokens go to the
// sink. Whoever owns it calls begin_step() while that starts something, and finish_step() when there is nothing to
// start or a result is ready. One thread; a step allocates nothing once the engine is warm.
#pragma once

#include <array>
#include <memory>

#include "engine/engine_state.h"
#include "engine/executor.h"
#include "engine/scheduler.h"
#include "engine/step_transaction.h"

namespace lantern {

enum class StepStart : uint8_t {
  kStarted,
  kIdle,         // no sequence needs a step
  kWaiting,      // the next decision needs the results of a step in flight: finish_step()
  kNotAccepted,  // the executor refused the step, which was rolled back; last_error() says why. It may be tried again
  kFailed,       // the device was lost: every sequence has ended with kFailed, and none is accepted any more
};

enum class StepPlan : uint8_t {
  kReady,    // there are rows to run
  kIdle,     // as StepStart has it, and the next two
  kWaiting,  // for the results of a step in flight
  kFailed,
};

class EngineCore {
 public:
  // `executor` and `sink` (which may be null) must outlive the engine. Precondition: the settings are checked.
  EngineCore(const EngineSettings& settings, const HashKey& key, Executor& executor, OutputSink* sink);
  // Steps in flight are waited for, and all that lives is ended as cancelled.
  ~EngineCore();
  EngineCore(const EngineCore&) = delete;
  EngineCore& operator=(const EngineCore&) = delete;

  // Errors: those of submit_request; unsupported while draining or after the device was lost.
  Result<RequestId> submit(const std::shared_ptr<const Request>& request, EngineTime now);
  // False where no such request lives (any more).
  bool cancel(RequestId id);
  // The prefix index forgets all blocks that no sequence holds.
  void forget_prefixes() { state_.stats.blocks_flushed += state_.pool.free_cached(); }
  // No request is accepted from now on; those that are in are served to their end.
  void drain() { draining_ = true; }

  StepStart begin_step(EngineTime now) { return begin_step(now, Scheduler::full_budget(state_.settings)); }
  StepStart begin_step(EngineTime now, const StepBudget& budget);

  // The same in two halves, for ranks that agree in between on what they launch. Between the two nothing else is
  // called but submit().
  StepPlan plan_step(EngineTime now, const StepBudget& budget);
  // What the planned step needs; where none is planned, what the dummy does.
  StepShape planned_shape() const;
  bool can_submit_step() const { return num_in_flight_ < state_.settings.max_steps_in_flight; }
  // Submits what is planned, or else the dummy (StepBatch::make_dummy), in launches of `shape`, which encloses
  // planned_shape(). kStarted, or kNotAccepted: then the same step may be submitted again, or dropped. Precondition:
  // can_submit_step().
  StepStart submit_step(const StepShape& shape);
  // Forgets what was planned and not submitted.
  void drop_step();

  // Waits for the oldest step in flight and commits it. Precondition: steps_in_flight() > 0. Errors: the device was
  // lost.
  Status finish_step();
  // The same in two halves, for who looks at a clock in between: steps are learnt from (draft_control.h) where `now`,
  // when the results of this one were there, is not kNever.
  Status complete_step();
  void commit_step(EngineTime now);
  // Ends everything with kFailed, as when the device is lost: other ranks that the steps need are.
  void fail(Error error);

  int32_t steps_in_flight() const { return num_in_flight_; }
  // Of the shapes of all steps that were submitted: equal on ranks that have launched alike so far.
  uint64_t launches_digest() const { return launches_digest_; }
  bool idle() const { return state_.idle(); }
  const EngineState& state() const { return state_; }
  const Status& last_error() const { return last_error_; }
  // Steps in flight, the oldest first.
  const StepTransaction& in_flight(int32_t i) const { return steps_[static_cast<size_t>((oldest_ + i) % kMaxSteps)]; }

 private:
  static constexpr int32_t kMaxSteps = 2;

  StepTransaction& next_step() { return steps_[static_cast<size_t>((oldest_ + num_in_flight_) % kMaxSteps)]; }
  const StepTransaction& next_step() const {
    return steps_[static_cast<size_t>((oldest_ + num_in_flight_) % kMaxSteps)];
  }

  EngineState state_;
  Executor& executor_;
  Scheduler scheduler_;
  std::array<StepTransaction, kMaxSteps> steps_;
  int32_t oldest_ = 0;
  int32_t num_in_flight_ = 0;
  std::array<EngineTime, kMaxSteps> planned_at_{};
  EngineTime last_end_ = EngineTime::min();
  uint64_t launches_digest_ = 0;
  bool draining_ = false;
  bool failed_ = false;
  Status last_error_;
};

}  // namespace lantern
