// What a step costs on the host, beside an executor that takes no time: for tests and benchmarks.
#pragma once

#include <time.h>

#include <algorithm>
#include <cstdint>
#include <memory>

#include "base/check.h"
#include "engine/engine_core.h"
#include "null_executor.h"

namespace lantern {

inline EngineSettings cost_settings(int32_t num_seqs, int32_t num_blocks) {
  EngineSettings settings;
  settings.limits.block_size = 64;
  settings.limits.max_requests = num_seqs;
  settings.limits.max_query_len = 4;
  settings.limits.max_tokens = num_seqs * 4 + 512;
  settings.limits.max_model_len = 4096;
  settings.limits.max_blocks_per_request = 64;
  settings.limits.num_blocks = num_blocks;
  settings.max_queued = 20000;
  return settings;
}

inline std::shared_ptr<const Request> cost_request(int32_t prompt_len, int32_t max_tokens, int32_t first_token) {
  auto request = std::make_shared<Request>();
  for (int32_t i = 0; i < prompt_len; ++i) request->prompt.push_back(first_token + i % 50);
  request->max_tokens = max_tokens;
  return request;
}

// Processor time of this thread: what counts on a machine shared with others.
inline double thread_microseconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) * 1e-3;
}

inline void turn(EngineCore& engine, EngineTime now) {
  while (engine.begin_step(now) == StepStart::kStarted) {
  }
  if (engine.steps_in_flight() > 0) CHECK(engine.finish_step().ok(), "the executor takes every step");
}

enum class WaitFor : uint8_t { kSlot, kBlocks };

// `kRunning` decoding sequences with `queued` behind them, of which none is ever admitted.
class QueuedCore {
 public:
  static constexpr int32_t kRunning = 64;

  QueuedCore(int32_t queued, WaitFor wait_for)
      : settings_(EngineSettings::checked(settings_of(wait_for)).value()),
        executor_(settings_, 1),
        engine_(settings_, HashKey::from_seed(1), executor_, nullptr) {
    for (int32_t i = 0; i < kRunning; ++i) submit(cost_request(8, 4000, i), EngineTime(0));
    for (int32_t i = 0; i < 40; ++i) turn(engine_, EngineTime(1));
    for (int32_t i = 0; i < queued; ++i) submit(cost_request(64, 500, i), EngineTime(2 + i % 97));
  }

  // Of one step, on average over `turns`.
  double microseconds(int32_t turns) {
    const double begin = thread_microseconds();
    for (int32_t i = 0; i < turns; ++i) turn(engine_, EngineTime(100));
    return (thread_microseconds() - begin) / turns;
  }

  const EngineState& state() const { return engine_.state(); }

 private:
  static EngineSettings settings_of(WaitFor wait_for) {
    EngineSettings settings = cost_settings(wait_for == WaitFor::kSlot ? kRunning : 2 * kRunning, 1 + kRunning * 16);
    if (wait_for == WaitFor::kBlocks) settings.watermark_blocks = settings.limits.num_blocks;
    return settings;
  }
  void submit(const std::shared_ptr<const Request>& request, EngineTime now) {
    CHECK(engine_.submit(request, now).ok(), "the queue has room");
  }

  EngineSettings settings_;
  NullExecutor executor_;
  EngineCore engine_;
};

// Of each of `queued` requests from admission to its end, when all came before the first step.
inline double microseconds_per_request(int32_t queued) {
  const EngineSettings settings = EngineSettings::checked(cost_settings(64, 2000)).value();
  NullExecutor executor(settings, 1);
  EngineCore engine(settings, HashKey::from_seed(1), executor, nullptr);
  for (int32_t i = 0; i < queued; ++i)
    CHECK(engine.submit(cost_request(64, 8, i), EngineTime(i % 97)).ok(), "the queue has room");
  const double begin = thread_microseconds();
  while (!engine.idle()) turn(engine, EngineTime(100));
  return (thread_microseconds() - begin) / queued;
}

}  // namespace lantern
