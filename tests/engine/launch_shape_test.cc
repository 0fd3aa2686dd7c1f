// Steps launched larger than their rows need, and dummies between them, as ranks in step have them: padding changes no
// text and no byte of a cache.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "engine_run.h"

namespace lantern {
namespace {

RunOptions options_with_drafts() {
  RunOptions options;
  options.settings.limits.max_query_len = 4;
  options.settings.limits.max_requests = 16;
  options.settings.limits.max_tokens = 128;
  options.settings.limits.block_size = 16;
  options.settings.limits.max_blocks_per_request = 128;
  options.settings.limits.num_blocks = 257;
  return options;
}

// At least `needed`, anything up to the limits, and room for the dummy.
StepShape random_shape(std::mt19937_64& random, const StepShape& needed, const EngineSettings& settings) {
  const auto pick = [&](int32_t from, int32_t to) { return std::uniform_int_distribution<int32_t>(from, to)(random); };
  StepShape shape = enclosing(needed, dummy_shape(settings));
  shape.bucket.tokens = pick(shape.bucket.tokens, settings.limits.max_tokens);
  shape.bucket.requests = pick(shape.bucket.requests, settings.limits.max_requests);
  if (pick(0, 1) == 1) shape.bucket.kind = StepKind::kMixed;
  shape.sampling_rows = pick(shape.sampling_rows, shape.bucket.requests);
  shape.draft_passes = pick(shape.draft_passes, settings.max_drafts());
  return shape;
}

void finish(EngineRun& run) {
  const Status finished = run.core().finish_step();
  ASSERT_TRUE(finished.ok()) << finished.error().message();
}

void run_dummy(EngineRun& run, const StepShape& shape) {
  if (!run.core().can_submit_step()) finish(run);
  ASSERT_EQ(run.core().submit_step(shape), StepStart::kStarted);
  finish(run);
}

TEST(LaunchShape, PaddingAndDummiesChangeNoText) {
  const RunOptions options = options_with_drafts();
  const std::vector<Request> requests = mixed_requests(16, 24, 150);
  const auto run = EngineRun::create(options);
  const EngineSettings& settings = run->core().state().settings;
  for (const Request& request : requests) run->submit(request);
  std::mt19937_64 random(11);
  while (!run->core().idle() || run->core().steps_in_flight() > 0) {
    if (!run->core().can_submit_step()) finish(*run);
    const StepPlan plan = run->core().plan_step(EngineTime(0), Scheduler::full_budget(settings));
    if (plan != StepPlan::kReady) {
      if (run->core().steps_in_flight() > 0) finish(*run);
      continue;
    }
    ASSERT_EQ(run->core().submit_step(random_shape(random, run->core().planned_shape(), settings)),
              StepStart::kStarted);
    if (random() % 3 != 0) run_dummy(*run, random_shape(random, {}, settings));
  }
  EXPECT_GT(run->stats().dummy_steps, 5);
  EXPECT_GT(run->stats().drafts_accepted[0], 0);
  EXPECT_EQ(differences(*run, outputs_alone(options, requests)), "");
}

// What the last step left behind is no input of a dummy: not its tables, lengths, drafts or hidden states.
TEST(LaunchShape, ADummyWritesNoCacheAndReadsNothingStale) {
  for (const char* dtype : {"bf16", "fp8", "f32"}) {
    RunOptions options = options_with_drafts();
    options.kv_cache_dtype = dtype;
    const std::vector<Request> requests = mixed_requests(12, 24, 150);
    const auto run = EngineRun::create(options);
    const EngineSettings& settings = run->core().state().settings;
    for (const Request& request : requests) run->submit(request);
    // Some have ended, some are on their way.
    for (int32_t i = 0; i < 24; ++i) run->step();
    while (run->core().steps_in_flight() > 0) finish(*run);
    ASSERT_FALSE(run->core().idle());

    const std::vector<std::byte> before = cache_bytes(run->model());
    const int64_t null_block_row = run->model().cache().latent_row_bytes();
    for (int64_t i = 0; i < null_block_row; ++i) ASSERT_EQ(before[static_cast<size_t>(i)], std::byte{0});
    std::mt19937_64 random(5);
    StepShape widest = dummy_shape(settings);
    widest.bucket = {.tokens = 128, .requests = 16, .query_width = 4, .kind = StepKind::kMixed};
    widest.sampling_rows = 16;
    widest.draft_passes = 3;
    for (int32_t i = 0; i < 20; ++i) {
      const StepShape shape = i == 0 ? dummy_shape(settings) : i == 1 ? widest : random_shape(random, {}, settings);
      run_dummy(*run, shape);
      const std::vector<std::byte> after = cache_bytes(run->model());
      ASSERT_TRUE(before == after) << to_string(shape.bucket) << " wrote a cache (" << dtype << ")";
    }
    run->run();
    EXPECT_EQ(differences(*run, outputs_alone(options, requests)), "") << dtype;
  }
}

}  // namespace
}  // namespace lantern
