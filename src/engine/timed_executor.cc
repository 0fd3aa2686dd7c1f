#include "engine/timed_executor.h"

#include <time.h>

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace lantern {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMostProfiledSteps = 65'536;

}  // namespace

double thread_cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

template <class Call>
Status TimedExecutor::timed(double& seconds, Call&& call) {
  const Clock::time_point start = Clock::now();
  const double cpu = thread_cpu_seconds();
  Status status = call();
  cpu_seconds_ += thread_cpu_seconds() - cpu;
  const double took = std::chrono::duration<double>(Clock::now() - start).count();
  wall_seconds_ += took;
  seconds += took;
  return status;
}

// A step counts as in flight while it is submitted, where a device may hang too.
Status TimedExecutor::submit(const StepBatch& batch) {
  {
    const std::lock_guard lock(mutex_);
    CHECK(num_in_flight_ < in_flight_.size(), "{} steps are in flight already", num_in_flight_);
    in_flight_[num_in_flight_++] = {.step = {.number = batch.step,
                                             .decodes = batch.num_decodes,
                                             .prefills = static_cast<int32_t>(batch.rows.size()) - batch.num_decodes,
                                             .tokens = batch.num_tokens,
                                             .launched_tokens = batch.shape.bucket.tokens,
                                             .draft_passes = batch.shape.draft_passes},
                                    .submitted = Clock::now()};
  }
  double seconds = 0;
  Status status = timed(seconds, [&] { return executor_->submit(batch); });
  const std::lock_guard lock(mutex_);
  if (status.ok()) {
    in_flight_[num_in_flight_ - 1].executor_seconds = seconds;
  } else {
    --num_in_flight_;
  }
  return status;
}

Status TimedExecutor::wait(StepResults& results) {
  double seconds = 0;
  Status status = timed(seconds, [&] { return executor_->wait(results); });
  const std::lock_guard lock(mutex_);
  ProfiledStep& ended = in_flight_.front();
  if (profile_ && ended.submitted >= profile_->begun) {
    if (profile_->steps.size() < kMostProfiledSteps) {
      ended.ended = Clock::now();
      ended.executor_seconds += seconds;
      profile_->steps.push_back(ended);
    } else {
      ++profile_->steps_lost;
    }
  }
  std::shift_left(in_flight_.begin(), in_flight_.begin() + static_cast<std::ptrdiff_t>(num_in_flight_), 1);
  --num_in_flight_;
  return status;
}

std::vector<StepInFlight> TimedExecutor::steps_in_flight() const {
  std::vector<StepInFlight> steps;
  steps.reserve(in_flight_.size());
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < num_in_flight_; ++i) steps.push_back(in_flight_[i].step);
  return steps;
}

void TimedExecutor::start_profile() {
  EngineProfile profile;
  profile.steps.reserve(kMostProfiledSteps);  // steps allocate nothing
  profile.begun = Clock::now();
  const std::lock_guard lock(mutex_);
  profile_.emplace(std::move(profile));
}

std::optional<EngineProfile> TimedExecutor::stop_profile() {
  const std::lock_guard lock(mutex_);
  return std::exchange(profile_, std::nullopt);
}

}  // namespace lantern
