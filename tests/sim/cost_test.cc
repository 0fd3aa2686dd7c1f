// What a step costs on the host: no allocation once the engine is warm, and no more time with 10,000 requests in the
// queue than with none.
#include <gtest/gtest.h>
#include <time.h>

#include <vector>

#include "engine/engine_core.h"
#include "null_executor.h"
#include "thread_allocations.h"

namespace lantern {
namespace {

EngineSettings settings_of(int32_t num_seqs, int32_t num_blocks) {
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

std::shared_ptr<const Request> request_of(int32_t prompt_len, int32_t max_tokens, int32_t first_token) {
  auto request = std::make_shared<Request>();
  for (int32_t i = 0; i < prompt_len; ++i) request->prompt.push_back(first_token + i % 50);
  request->max_tokens = max_tokens;
  return request;
}

double thread_microseconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) * 1e-3;
}

void turn(EngineCore& engine, EngineTime now) {
  while (engine.begin_step(now) == StepStart::kStarted) {
  }
  if (engine.steps_in_flight() == 0) return;
  ASSERT_TRUE(engine.finish_step().ok());
}

// Admissions, prompts in chunks, decodes with drafts, hits, preemptions, copies, ends: none of it allocates. Submitting
// does, and is no part of a step.
TEST(StepCost, NoAllocationOnceWarm) {
  const EngineSettings settings = EngineSettings::checked(settings_of(16, 90)).value();
  NullExecutor executor(settings, 2);
  EngineCore engine(settings, HashKey::from_seed(1), executor, nullptr);
  const auto submit_many = [&] {
    for (int32_t i = 0; i < 60; ++i) {
      auto request = std::make_shared<Request>(*request_of(100 + 37 * (i % 20), 40 + 17 * (i % 30), 1 + i % 3));
      request->n = i % 10 == 0 ? 3 : 1;
      ASSERT_TRUE(engine.submit(request, EngineTime(i)).ok());
    }
  };
  submit_many();
  const int64_t before = thread_allocations();
  int64_t steps = 0;
  while (!engine.idle()) {
    turn(engine, EngineTime(1000 + steps++));
  }
  EXPECT_EQ(thread_allocations() - before, 0) << "in " << steps << " turns";
  const EngineStats& stats = engine.state().stats;
  EXPECT_GT(stats.preemptions, 0);
  EXPECT_GT(stats.prompt_tokens_cached, 0);
  EXPECT_GT(stats.forks, 0);
  EXPECT_GT(engine.state().index.stats().evicted_blocks, 0);
}

enum class WaitFor : uint8_t { kSlot, kBlocks };

// Microseconds of the engine thread for one step of 64 decoding sequences with `queued` behind them. Nobody ends while
// it is measured.
double step_microseconds(int32_t queued, WaitFor wait_for) {
  constexpr int32_t kRunning = 64;
  EngineSettings settings = settings_of(wait_for == WaitFor::kSlot ? kRunning : 2 * kRunning, 1 + kRunning * 16);
  if (wait_for == WaitFor::kBlocks) settings.watermark_blocks = settings.limits.num_blocks;
  settings = EngineSettings::checked(settings).value();
  NullExecutor executor(settings, 1);
  EngineCore engine(settings, HashKey::from_seed(1), executor, nullptr);
  for (int32_t i = 0; i < kRunning; ++i) EXPECT_TRUE(engine.submit(request_of(8, 4000, i), EngineTime(0)).ok());
  for (int32_t i = 0; i < 40; ++i) turn(engine, EngineTime(1));
  for (int32_t i = 0; i < queued; ++i) EXPECT_TRUE(engine.submit(request_of(64, 500, i), EngineTime(2 + i % 97)).ok());
  double best = 1e9;
  for (int32_t round = 0; round < 10; ++round) {
    constexpr int32_t kTurns = 20;
    const double begin = thread_microseconds();
    for (int32_t i = 0; i < kTurns; ++i) turn(engine, EngineTime(100));
    best = std::min(best, (thread_microseconds() - begin) / kTurns);
  }
  EXPECT_EQ(engine.state().running.size(), static_cast<size_t>(kRunning));
  EXPECT_EQ(engine.state().num_queued, queued);
  return best;
}

TEST(StepCost, DoesNotGrowWithTheQueue) {
  for (const WaitFor wait_for : {WaitFor::kSlot, WaitFor::kBlocks}) {
    // The first hundred may be looked at, the others not.
    const double hundred = step_microseconds(100, wait_for);
    std::printf("64 running, waiting for %s: none queued %.1f us a step, 100 queued %.1f us",
                wait_for == WaitFor::kSlot ? "a slot" : "blocks", step_microseconds(0, wait_for), hundred);
    for (const int32_t queued : {1000, 10000}) {
      const double time = step_microseconds(queued, wait_for);
      std::printf(", %d queued %.1f us", queued, time);
      EXPECT_LT(time, 2 * hundred + 2) << queued << " queued";
    }
    std::printf("\n");
  }
}

// Ends and admissions: the cost of a change grows with the logarithm of the queue at most.
TEST(StepCost, ServesALongQueueInLinearTime) {
  const auto microseconds_per_request = [](int32_t queued) {
    const EngineSettings settings = EngineSettings::checked(settings_of(64, 2000)).value();
    NullExecutor executor(settings, 1);
    EngineCore engine(settings, HashKey::from_seed(1), executor, nullptr);
    for (int32_t i = 0; i < queued; ++i) EXPECT_TRUE(engine.submit(request_of(64, 8, i), EngineTime(i % 97)).ok());
    const double begin = thread_microseconds();
    while (!engine.idle()) turn(engine, EngineTime(100));
    return (thread_microseconds() - begin) / queued;
  };
  const double few = microseconds_per_request(1000);
  const double many = microseconds_per_request(16000);
  std::printf("1000 requests: %.2f us each; 16000: %.2f us each\n", few, many);
  EXPECT_LT(many, 3 * few);
}

}  // namespace
}  // namespace lantern
