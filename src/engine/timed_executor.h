#pragma once

#include <array>
#include <mutex>
#include <optional>
#include <vector>

#include "engine/engine.h"
#include "engine/executor.h"

namespace lantern {

// Processor time of the calling thread.
double thread_cpu_seconds();

// Times the calls of another executor, knows what is in flight, and records what has ended. The engine thread's, but
// for steps_in_flight() and profiles.
class TimedExecutor final : public Executor {
 public:
  explicit TimedExecutor(std::unique_ptr<Executor> executor) : executor_(std::move(executor)) {}
  Status submit(const StepBatch& batch) override;
  bool ready() const override { return executor_->ready(); }
  Status wait(StepResults& results) override;

  std::vector<StepInFlight> steps_in_flight() const;
  void start_profile();
  std::optional<EngineProfile> stop_profile();
  double wall_seconds() const { return wall_seconds_; }
  double cpu_seconds() const { return cpu_seconds_; }

 private:
  // Adds the call's time to `seconds` also.
  template <class Call>
  Status timed(double& seconds, Call&& call);

  std::unique_ptr<Executor> executor_;
  double wall_seconds_ = 0;
  double cpu_seconds_ = 0;    // of the calling thread
  mutable std::mutex mutex_;  // of what follows
  std::array<ProfiledStep, kMostStepsInFlight> in_flight_;
  size_t num_in_flight_ = 0;
  std::optional<EngineProfile> profile_;
};

}  // namespace lantern
