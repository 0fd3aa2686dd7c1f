// Starting and finishing steps: alone, and in step with other ranks.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "engine/engine_loop.h"

namespace lantern {

StepStart EngineLoop::step_alone() {
  if (paused_) {
    if (core_->steps_in_flight() > 0) finish_step();
    return StepStart::kIdle;
  }
  const StepStart started = core_->begin_step(now());
  switch (started) {
    case StepStart::kStarted:
      refusals_ = 0;
      if (executor_.ready()) finish_step();
      break;
    case StepStart::kWaiting: finish_step(); break;
    case StepStart::kNotAccepted:
      note_refusal();
      if (core_->steps_in_flight() > 0) finish_step();
      break;
    case StepStart::kIdle:
    case StepStart::kFailed: break;
  }
  return started;
}

StepStart EngineLoop::step_together() {
  if (!core_->can_submit_step()) {
    finish_step();
    return StepStart::kWaiting;
  }
  StepWish wish;
  if (!paused_ && core_->plan_step(now(), Scheduler::full_budget(parts_.settings)) == StepPlan::kReady) {
    wish.shape = core_->planned_shape();
  }
  wish.busy = (!paused_ && !core_->idle()) || core_->steps_in_flight() > 0;
  wish.launches_digest = core_->launches_digest();
  {
    const std::lock_guard lock(mutex_);
    wish.stays = !closing_;
  }
  const Result<StepAgreement> agreed = agree(*rank_.communicator, wish, parts_.settings);
  ++agreements_;
  if (!agreed.ok()) {
    const size_t items = batch_.items.size();
    out_of_step_ = true;
    if (wish.stays) {
      core_->fail(agreed.error());
      lose(items, agreed.error());
    } else {
      core_->drop_step();
    }
    return StepStart::kFailed;
  }
  switch (agreed->move) {
    case RankMove::kStep:
      if (!submit_together(agreed->shape)) return StepStart::kFailed;
      if (executor_.ready()) finish_step();
      return StepStart::kStarted;
    case RankMove::kAgain:
      if (core_->steps_in_flight() > 0) finish_step();
      return StepStart::kWaiting;
    case RankMove::kSleep: asleep_ = true; return StepStart::kIdle;
    case RankMove::kLeave: break;
  }
  core_->drop_step();
  leaving_ = true;
  return StepStart::kIdle;
}

bool EngineLoop::submit_together(const StepShape& shape) {
  // The others launch this step whatever the device says here. Rows that were refused are planned anew after it; it is
  // the dummy, which needs nothing, that is tried until the device takes it.
  while (core_->submit_step(shape) == StepStart::kNotAccepted) {
    core_->drop_step();
    note_refusal();
    while (core_->steps_in_flight() > 0 && !out_of_step_) finish_step();
    if (!out_of_step_ && wait_before_next_try(false)) continue;
    // Ranks close together: those that wait for this step leave with an error that nobody is told of.
    if (!out_of_step_) rank_.communicator->abort(engine_closes());
    out_of_step_ = true;
    return false;
  }
  refusals_ = 0;
  return true;
}

void EngineLoop::note_refusal() {
  ++counts_.steps_refused;
  if (refusals_ == 0) log_warning("a step was refused: {}", core_->last_error().error().message());
}

void EngineLoop::finish_step() {
  const size_t items = batch_.items.size();
  const StepSchedule& schedule = core_->in_flight(0).schedule();
  const bool dummy = schedule.rows.empty();
  const int32_t tokens = schedule.num_tokens;
  const Status finished = core_->complete_step();
  if (finished.ok()) {
    core_->commit_step(now());
    if (!dummy) counts_.add_step(tokens);
    return;
  }
  const std::string& reason = finished.error().message();
  log_warning("the device is lost: {}", reason);
  const std::string who = in_step() ? fmt::format("rank {} of the engine", rank_.communicator->rank()) : "the engine";
  const Error lost(ErrorCode::kUnsupported, fmt::format("{} has lost its device ({}); make a new engine", who, reason));
  if (in_step()) rank_.communicator->abort(lost);
  out_of_step_ = true;
  lose(items, lost);
}

void EngineLoop::lose(size_t first_item, const Error& why) {
  batch_.errors.push_back(why.message());
  for (size_t i = first_item; i < batch_.items.size(); ++i) {
    if (batch_.items[i].end_reason == EndReason::kFailed)
      batch_.items[i].error = static_cast<int32_t>(batch_.errors.size()) - 1;
  }
  const std::lock_guard lock(mutex_);
  lost_ = why;
}

// A device that is busy takes a step later.
bool EngineLoop::wait_before_next_try(bool until_commands) {
  constexpr std::chrono::milliseconds kFirstWait{1};
  constexpr int32_t kMostDoublings = 7;  // 128 ms
  std::unique_lock lock(mutex_);
  engine_waits_ = true;
  const bool woken = something_to_do_.wait_for(lock, kFirstWait * (1 << std::min(refusals_, kMostDoublings)),
                                               [&] { return closing_ || (until_commands && !commands_.empty()); });
  engine_waits_ = false;
  ++refusals_;
  return !woken;
}

}  // namespace lantern
