#include "engine/engine_core.h"

#include <algorithm>

#include "base/check.h"
#include "engine/lifecycle.h"

namespace lantern {

EngineCore::EngineCore(const EngineSettings& settings, const HashKey& key, Executor& executor, OutputSink* sink)
    : state_(settings, key, sink),
      executor_(executor),
      scheduler_(settings),
      steps_{StepTransaction(settings), StepTransaction(settings)} {}

EngineCore::~EngineCore() {
  while (num_in_flight_ > 0 && finish_step().ok()) {
  }
  for (SequenceId id = 0; id < static_cast<SequenceId>(state_.sequences.size()); ++id) {
    if (state_.at(id).phase != SequencePhase::kUnused)
      end_request(state_, state_.at(id).request_id, EndReason::kCancelled);
  }
}

Result<RequestId> EngineCore::submit(const std::shared_ptr<const Request>& request, EngineTime now) {
  if (failed_) {
    return Error(ErrorCode::kUnsupported,
                 "the engine has lost its device (" + last_error_.error().message() + "); restart the server");
  }
  if (draining_) return Error(ErrorCode::kUnsupported, "the engine is shutting down and takes no more requests");
  return submit_request(state_, request, now);
}

bool EngineCore::cancel(RequestId id) { return end_request(state_, id, EndReason::kCancelled); }

StepStart EngineCore::begin_step(EngineTime now, const StepBudget& budget) {
  switch (plan_step(now, budget)) {
    case StepPlan::kIdle: return StepStart::kIdle;
    case StepPlan::kWaiting: return StepStart::kWaiting;
    case StepPlan::kFailed: return StepStart::kFailed;
    case StepPlan::kReady: break;
  }
  const StepStart start = submit_step(planned_shape());
  if (start == StepStart::kNotAccepted) drop_step();
  return start;
}

StepPlan EngineCore::plan_step(EngineTime now, const StepBudget& budget) {
  if (failed_) return StepPlan::kFailed;
  end_expired_requests(state_, now);
  if (!can_submit_step()) return StepPlan::kWaiting;
  // What came of a constrained row decides which tokens may follow: such a step is not overlapped.
  if (num_in_flight_ > 0 && in_flight(num_in_flight_ - 1).batch().num_masks > 0) return StepPlan::kWaiting;

  StepTransaction& step = next_step();
  planned_at_[static_cast<size_t>((oldest_ + num_in_flight_) % kMaxSteps)] = now;
  scheduler_.plan(state_, budget, now, step.begin_plan());
  if (step.schedule().rows.empty()) {
    const bool changes = !step.schedule().preempted.empty();
    step.apply_without_rows(state_);
    if (num_in_flight_ > 0) return StepPlan::kWaiting;
    if (state_.idle()) return StepPlan::kIdle;
    // What was preempted has given its blocks back: the next plan has rows (CONTRACT.md, F1).
    CHECK(changes, "sequences live, no step is in flight, and none can be planned");
    scheduler_.plan(state_, budget, now, step.begin_plan());
    CHECK(!step.schedule().rows.empty(), "preemption made no room");
  }
  return StepPlan::kReady;
}

StepShape EngineCore::planned_shape() const {
  const StepTransaction& step = next_step();
  return step.stage() == StepStage::kPlanned ? shape_of(step.schedule(), state_.settings)
                                             : dummy_shape(state_.settings);
}

StepStart EngineCore::submit_step(const StepShape& shape) {
  CHECK(can_submit_step(), "{} steps are in flight", num_in_flight_);
  StepTransaction& step = next_step();
  if (step.stage() == StepStage::kPlanned) step.reserve(state_, shape);
  if (step.stage() == StepStage::kIdle) step.reserve_dummy(state_, shape);
  if (Status submitted = step.submit(state_, executor_); !submitted.ok()) {
    last_error_ = std::move(submitted);
    return StepStart::kNotAccepted;
  }
  launches_digest_ = shape.digest_after(launches_digest_);
  ++num_in_flight_;
  return StepStart::kStarted;
}

void EngineCore::drop_step() {
  StepTransaction& step = next_step();
  if (step.stage() == StepStage::kPlanned) step.drop_plan();
  if (step.stage() == StepStage::kReserved) step.roll_back(state_);
}

Status EngineCore::finish_step() {
  RETURN_IF_ERROR(complete_step());
  commit_step(kNever);
  return {};
}

Status EngineCore::complete_step() {
  CHECK(num_in_flight_ > 0, "no step is in flight");
  StepTransaction& step = steps_[static_cast<size_t>(oldest_)];
  if (Status completed = step.complete(executor_); !completed.ok()) {
    fail(completed.error());
    return completed;
  }
  return {};
}

void EngineCore::commit_step(EngineTime now) {
  StepTransaction& step = steps_[static_cast<size_t>(oldest_)];
  double seconds = 0;
  if (now != kNever) {
    // While the step before ran this one waited.
    const EngineTime begin = std::max(planned_at_[static_cast<size_t>(oldest_)], last_end_);
    seconds = std::chrono::duration<double>(now - begin).count();
    last_end_ = now;
  }
  step.commit(state_, seconds);
  oldest_ = (oldest_ + 1) % kMaxSteps;
  --num_in_flight_;
}

void EngineCore::fail(Error error) {
  drop_step();
  failed_ = true;
  last_error_ = std::move(error);
  for (; num_in_flight_ > 0; --num_in_flight_) {
    steps_[static_cast<size_t>(oldest_)].fail(state_);
    oldest_ = (oldest_ + 1) % kMaxSteps;
  }
  for (SequenceId id = 0; id < static_cast<SequenceId>(state_.sequences.size()); ++id) {
    if (state_.at(id).phase != SequencePhase::kUnused)
      end_request(state_, state_.at(id).request_id, EndReason::kFailed);
  }
}

}  // namespace lantern
