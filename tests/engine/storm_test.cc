// Users who leave: after any number of them every block is free and memory is where it was.
#include <gtest/gtest.h>
#include <malloc.h>

#include <random>

#include "engine_run.h"

namespace lantern {
namespace {

// Bytes that the program holds of the allocator.
size_t heap_in_use() { return mallinfo2().uordblks; }

void storm(int64_t cancels) {
  RunOptions options;
  options.settings.limits.max_query_len = 3;
  options.settings.limits.max_requests = 8;
  options.settings.limits.max_tokens = 64;
  options.settings.limits.block_size = 16;
  options.settings.limits.max_model_len = 160;
  options.settings.limits.max_blocks_per_request = 10;
  options.settings.limits.num_blocks = 48;
  options.settings.prefix_caching = true;
  const auto run = EngineRun::create(options);
  const std::vector<Request> requests = mixed_requests(24, 24, 100);
  std::mt19937_64 random(3);
  const auto pick = [&](size_t count) { return static_cast<size_t>(random() % count); };

  std::vector<int32_t> alive;
  int64_t cancelled = 0;
  size_t heap_after_warm_up = 0;
  while (cancelled < cancels) {
    while (alive.size() < 12) {
      Request request = requests[pick(requests.size())];
      request.n = 1 + static_cast<int32_t>(pick(3));
      alive.push_back(run->submit(std::move(request)));
    }
    // In any phase: waiting, in a prompt, decoding, with a step in flight or none.
    for (size_t steps = pick(4); steps > 0; --steps) run->step();
    const size_t victim = pick(alive.size());
    if (run->cancel(alive[victim])) ++cancelled;
    alive.erase(alive.begin() + static_cast<std::ptrdiff_t>(victim));
    std::erase_if(alive, [&](int32_t number) { return run->ended(number); });
    run->forget_outputs();
    if (cancelled == cancels / 4 && heap_after_warm_up == 0) heap_after_warm_up = heap_in_use();
  }
  const size_t heap_at_end = heap_in_use();
  run->run();
  const EngineState& state = run->core().state();
  // run() has checked that nothing is leased.
  EXPECT_TRUE(state.idle());
  EXPECT_EQ(state.pool.num_available(), options.settings.limits.num_blocks - 1);
  EXPECT_EQ(static_cast<int32_t>(state.free_slots.size()), options.settings.limits.max_requests);
  // Requests of different lengths are alive at the two moments: some tens of kilobytes.
  EXPECT_LT(heap_at_end, heap_after_warm_up + (1 << 20));
}

TEST(EngineStorm, CancelsLeaveNothingBehind) { storm(200); }
TEST(EngineStormSlow, TenThousandCancelsLeaveNothingBehind) { storm(10'000); }

}  // namespace
}  // namespace lantern
