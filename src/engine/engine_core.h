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
  // No request is accepted from now on; those that are in are served to their end.
  void drain() { draining_ = true; }

  StepStart begin_step(EngineTime now) { return begin_step(now, Scheduler::full_budget(state_.settings)); }
  StepStart begin_step(EngineTime now, const StepBudget& budget);
  // Waits for the oldest step in flight and commits it. Precondition: steps_in_flight() > 0. Errors: the device was
  // lost.
  Status finish_step();

  int32_t steps_in_flight() const { return num_in_flight_; }
  bool idle() const { return state_.idle(); }
  const EngineState& state() const { return state_; }
  const Status& last_error() const { return last_error_; }
  // Steps in flight, the oldest first.
  const StepTransaction& in_flight(int32_t i) const { return steps_[static_cast<size_t>((oldest_ + i) % kMaxSteps)]; }

 private:
  static constexpr int32_t kMaxSteps = 2;

  void lose_device(Error error);

  EngineState state_;
  Executor& executor_;
  Scheduler scheduler_;
  std::array<StepTransaction, kMaxSteps> steps_;
  int32_t oldest_ = 0;
  int32_t num_in_flight_ = 0;
  bool draining_ = false;
  bool failed_ = false;
  Status last_error_;
};

}  // namespace lantern
