// The engine with a real model: once it is warm a step takes nothing from the heap on the engine's thread, whatever the
// requests want.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>

#include "engine/load_engine.h"
#include "engine_run.h"
#include "thread_allocations.h"

namespace lantern {
namespace {

// Notes how often the engine's thread went to the heap until each step.
class CountingExecutor final : public Executor {
 public:
  CountingExecutor(std::unique_ptr<Executor> executor, std::vector<int64_t>* seen)
      : executor_(std::move(executor)), seen_(seen) {}
  Status submit(const StepBatch& batch) override {
    if (seen_->size() < seen_->capacity()) seen_->push_back(thread_allocations());
    return executor_->submit(batch);
  }
  bool ready() const override { return executor_->ready(); }
  Status wait(StepResults& results) override { return executor_->wait(results); }

 private:
  std::unique_ptr<Executor> executor_;
  std::vector<int64_t>* seen_;
};

// Where the delivery thread falls behind, its queue grows by doubling: some steps allocate then, and no more.
constexpr int64_t kStepsThatMayAllocate = 20;

TEST(EngineAllocations, AStepAllocatesNothingOnceWarm) {
  struct Case {
    int32_t drafts;
    const char* graphs;
  };
  for (const auto& [drafts, graphs] : {Case{0, "none"}, Case{2, "none"}, Case{2, "piecewise"}}) {
    std::vector<int64_t> seen;
    seen.reserve(20000);
    EngineOptions options;
    options.model_dir = tiny_model();
    options.device = "cpu";
    options.threads = 2;
    options.max_num_seqs = 6;
    options.max_num_batched_tokens = 64;
    options.num_draft_tokens = drafts;
    options.graphs = graphs;
    options.kv_cache_bytes = int64_t{64} << 20;
    options.max_traced_rows = 8;
    options.hooks.push_back({.wrap = [&](std::unique_ptr<Executor> executor) {
      return std::make_unique<CountingExecutor>(std::move(executor), &seen);
    }});
    const LoadedEngine loaded = load_engine(options).value();
    // Prompts of all lengths come and go while others decode; six run at a time.
    std::vector<TokenStream> streams;
    std::vector<Request> requests = mixed_requests(40, 48, 200);
    for (size_t i = 0; i < requests.size(); ++i) {
      EngineRequest request;
      request.request = requests[i];
      request.request.n = i % 7 == 3 ? 3 : 1;
      request.request.logprobs = static_cast<int32_t>(i % 4) * 5 - 1;
      if (i % 5 == 0) request.request.prompt_logprobs = 3;
      if (i % 3 != 0) request.stop = {"neither of these two", "comes up in any text ever"};
      request.request.trace_selections = i % 2 == 1;
      request.ignore_eos = i % 2 == 0;
      streams.push_back(loaded.engine->submit(std::move(request)).value());
    }
    ASSERT_TRUE(loaded.engine->drain());
    ASSERT_GT(seen.size(), 100u);
    constexpr size_t kWarm = 30;
    int64_t steps = 0;
    for (size_t i = kWarm; i < seen.size(); ++i) steps += seen[i] > seen[i - 1] ? 1 : 0;
    EXPECT_LE(steps, kStepsThatMayAllocate) << seen.back() - seen[kWarm] << " allocations in " << seen.size() - kWarm
                                            << " steps, with " << drafts << " drafts, graphs " << graphs;
    RecordProperty("steps_that_allocate", static_cast<int>(steps));
    std::printf("%d drafts, graphs %s: %lld of %zu steps allocate\n", drafts, graphs, static_cast<long long>(steps),
                seen.size() - kWarm);
  }
}

}  // namespace
}  // namespace lantern
