// An executor around another one that a test can hold, refuse, break, slow down and look into.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "engine/executor.h"

namespace lantern {

struct Gate {
  std::mutex mutex;
  std::condition_variable changed;
  bool open = true;
  std::atomic<int32_t> refusals{0};  // steps to refuse
  std::atomic<bool> lost{false};     // the next wait() fails
  std::atomic<int32_t> delay_us{0};  // of each step
  std::function<void()> on_step;     // on the engine thread

  void set_open(bool value) {
    {
      const std::lock_guard lock(mutex);
      open = value;
    }
    changed.notify_all();
  }
};

class GatedExecutor final : public Executor {
 public:
  GatedExecutor(std::unique_ptr<Executor> executor, std::shared_ptr<Gate> gate)
      : executor_(std::move(executor)), gate_(std::move(gate)) {}

  Status submit(const StepBatch& batch) override {
    {
      std::unique_lock lock(gate_->mutex);
      gate_->changed.wait(lock, [&] { return gate_->open; });
    }
    if (gate_->refusals > 0) {
      --gate_->refusals;
      return Error(ErrorCode::kIo, "the device is busy");
    }
    if (gate_->on_step) gate_->on_step();
    if (gate_->delay_us > 0) std::this_thread::sleep_for(std::chrono::microseconds(gate_->delay_us));
    return executor_->submit(batch);
  }
  bool ready() const override { return executor_->ready(); }
  Status wait(StepResults& results) override {
    if (gate_->lost) return Error(ErrorCode::kIo, "the cable was pulled");
    return executor_->wait(results);
  }

 private:
  std::unique_ptr<Executor> executor_;
  std::shared_ptr<Gate> gate_;
};

}  // namespace lantern
