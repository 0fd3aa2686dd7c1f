// What a step costs on the host: no allocation once the engine is warm, and no more time with 10,000 requests in the
// queue than with none.
#include <gtest/gtest.h>

#include "core_cost.h"
#include "thread_allocations.h"

namespace lantern {
namespace {

// Admissions, prompts in chunks, decodes with drafts, hits, preemptions, copies, ends: none of it allocates. Submitting
// does, and is no part of a step.
TEST(StepCost, NoAllocationOnceWarm) {
  const EngineSettings settings = EngineSettings::checked(cost_settings(16, 90)).value();
  NullExecutor executor(settings, 2);
  EngineCore engine(settings, HashKey::from_seed(1), executor, nullptr);
  const auto submit_many = [&] {
    for (int32_t i = 0; i < 60; ++i) {
      auto request = std::make_shared<Request>(*cost_request(100 + 37 * (i % 20), 40 + 17 * (i % 30), 1 + i % 3));
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

// Nobody ends while it is measured.
double step_microseconds(int32_t queued, WaitFor wait_for) {
  QueuedCore core(queued, wait_for);
  double best = 1e9;
  for (int32_t round = 0; round < 10; ++round) best = std::min(best, core.microseconds(20));
  EXPECT_EQ(core.state().running.size(), static_cast<size_t>(QueuedCore::kRunning));
  EXPECT_EQ(core.state().num_queued, queued);
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
  const double few = microseconds_per_request(1000);
  const double many = microseconds_per_request(16000);
  std::printf("1000 requests: %.2f us each; 16000: %.2f us each\n", few, many);
  EXPECT_LT(many, 3 * few);
}

}  // namespace
}  // namespace lantern
