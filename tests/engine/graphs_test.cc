// Steps replayed from captured graphs: the tokens and the bits of steps that run eagerly.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>

#include "engine/step_buckets.h"
#include "engine/step_verifier.h"
#include "engine_run.h"

namespace lantern {
namespace {

RunOptions options_with(GraphMode graphs, int32_t drafts) {
  RunOptions options;
  options.settings.limits.max_query_len = 1 + drafts;
  options.settings.limits.max_requests = 24;
  options.settings.limits.max_tokens = 256;
  options.settings.limits.num_blocks = 1 + 24 * 32;
  options.executor.graphs = graphs;
  return options;
}

// Requests come in and leave at random, so that steps have any number of rows; some steps have prompts between.
void run_in_waves(EngineRun& run, const std::vector<Request>& requests) {
  std::mt19937_64 random(3);
  size_t next = 0;
  bool busy = true;
  while (busy || next < requests.size()) {
    if (next < requests.size() && random() % 3 == 0) run.submit(requests[next++]);
    busy = run.step();
  }
}

class EngineGraphs : public testing::TestWithParam<std::tuple<GraphMode, int32_t>> {};
TEST_P(EngineGraphs, ReplaysGiveTheTokensOfEagerSteps) {
  const auto [graphs, drafts] = GetParam();
  const RunOptions options = options_with(graphs, drafts);
  const std::vector<Request> requests = mixed_requests(30, 24, 80);
  const auto run = EngineRun::create(options);
  run_in_waves(*run, requests);
  EXPECT_EQ(differences(*run, outputs_alone(options, requests)), "");
  // In pieces steps with prompts are replayed, too.
  if (captures_pieces(graphs)) {
    EXPECT_EQ(run->stats().steps_replayed, run->steps());
  } else {
    EXPECT_GT(run->stats().steps_replayed, run->steps() / 3);
    EXPECT_LT(run->stats().steps_replayed, run->steps());
  }
}
INSTANTIATE_TEST_SUITE_P(All, EngineGraphs,
                         testing::Combine(testing::Values(GraphMode::kPiecewise, GraphMode::kFull,
                                                          GraphMode::kFullAndPiecewise, GraphMode::kVerify),
                                          testing::Values(0, 1, 3)));

TEST(EngineGraphs, DraftsFromNgrams) {
  RunOptions options = options_with(GraphMode::kVerify, 4);
  options.executor.drafter = Drafter::kNgram;
  const std::vector<Request> requests = mixed_requests(16, 40, 100);
  const auto run = EngineRun::create(options);
  run_in_waves(*run, requests);
  EXPECT_EQ(differences(*run, outputs_alone(options, requests)), "");
  EXPECT_GT(run->stats().drafts_accepted[0], 10);
}

// Adaptive drafts change the tokens of a row and the drafter's passes from step to step.
TEST(EngineGraphs, AdaptiveDrafts) {
  RunOptions options = options_with(GraphMode::kVerify, 3);
  options.settings.adaptive_drafts = true;
  options.settings.max_steps_in_flight = 1;
  const std::vector<Request> requests = mixed_requests(16, 24, 80);
  const auto run = EngineRun::create(options);
  run_in_waves(*run, requests);
  EXPECT_EQ(differences(*run, outputs_alone(options, requests)), "");
}

TEST(EngineGraphs, EachBucketIsCapturedOnceAtTheStart) {
  // 1, 2, 4, then every 8 to 96 tokens: 15 steps, and as many passes that fill or clear the drafter's cache. 1, 2, 4,
  // 8, 16, 24 requests: as many times 3 passes.
  constexpr int32_t kWhole = 3 * 15 + 6 * 3;
  // 1, 2, 4, every 8 to 64, 16 to 128, 32 to 256: 19 times a piece before the first of 5 layers, behind each, and the 2
  // of the drafter's.
  constexpr int32_t kPieces = 19 * (1 + 5 + 2);
  for (const auto& [graphs, count] : {std::pair(GraphMode::kFull, kWhole), std::pair(GraphMode::kPiecewise, kPieces),
                                      std::pair(GraphMode::kFullAndPiecewise, kWhole + kPieces)}) {
    const auto run = EngineRun::create(options_with(graphs, 3));
    EXPECT_EQ(run->graphs().num_graphs, count) << to_string(graphs);
    if (run->device().kind() == DeviceKind::kCpu) {
      EXPECT_GT(run->graphs().bytes, 0);  // a driver takes memory in large pieces, for several graphs at once
    }
    EXPECT_TRUE(run->device().sealed());
  }
}

// Steps of the scheduler with prompts, decodes and drafts of all sizes in random order on one workspace, each poisoned
// before it is replayed: verify mode ends the process where a bit differs from the step that ran eagerly in its own
// size. What a step counts of experts is compared with the rest.
void replay_all_buckets_of_pieces(int32_t drafts, MlaForm mla_form, const char* kv_cache_dtype) {
  RunOptions options = options_with(GraphMode::kVerify, drafts);
  options.mla_form = mla_form;
  options.kv_cache_dtype = kv_cache_dtype;
  options.settings.max_steps_in_flight = 1;
  options.executor.count_experts = true;
  const StepBuckets buckets(options.settings.limits, drafts);
  const std::vector<int32_t>& sizes = buckets.piece_tokens();
  // First prompts alone that just fit a bucket, or leave a token of it; then many together.
  std::vector<Request> requests;
  for (const int32_t size : sizes) {
    Request& request = requests.emplace_back();
    request.prompt = random_prompt(size > 8 ? size - size / 8 % 2 : size, static_cast<uint64_t>(size));
    request.max_tokens = 3;
    request.sampling.temperature = 0.0f;
  }
  std::ranges::move(mixed_requests(40, 12, 200), std::back_inserter(requests));
  const auto run = EngineRun::create(options);
  std::mt19937_64 random(23);
  std::set<int32_t> seen;
  for (size_t i = 0; i < requests.size(); ++i) {
    run->submit(requests[i]);
    if (i >= sizes.size() && i + 1 < requests.size()) continue;
    while (!run->core().idle()) {
      const int32_t prompt_tokens = i < sizes.size() ? 256 : sizes[random() % sizes.size()];
      ASSERT_EQ(run->core().plan_step(EngineTime(0), run->budget(prompt_tokens)), StepPlan::kReady);
      const StepShape shape = run->core().planned_shape();
      seen.insert(buckets.of_pieces(shape.bucket.tokens, StepKind::kPiece).tokens);
      ASSERT_EQ(run->core().submit_step(shape), StepStart::kStarted);
      const Status finished = run->core().finish_step();
      ASSERT_TRUE(finished.ok()) << finished.error().message();
    }
  }
  EXPECT_EQ(seen, std::set<int32_t>(sizes.begin(), sizes.end()));
  EXPECT_EQ(differences(*run, outputs_alone(options, requests)), "");
}
TEST(EngineGraphs, EveryBucketOfPiecesAsEager) { replay_all_buckets_of_pieces(0, MlaForm::kAuto, "bf16"); }
TEST(EngineGraphs, EveryBucketOfPiecesWithDraftsAsEager) { replay_all_buckets_of_pieces(3, MlaForm::kAbsorbed, "fp8"); }

TEST(EngineGraphs, PromptsAreScoredBehindPieces) {
  RunOptions options = options_with(GraphMode::kNone, 2);
  std::vector<Request> requests(6);
  for (size_t i = 0; i < requests.size(); ++i) {
    requests[i].prompt = random_prompt(static_cast<int32_t>(7 + 25 * i), i);
    requests[i].max_tokens = 12;
    requests[i].sampling.temperature = 0.0f;
    requests[i].prompt_logprobs = requests[i].logprobs = 3;
  }
  const auto eager = EngineRun::create(options);
  options.executor.graphs = GraphMode::kFullAndPiecewise;
  const auto replayed = EngineRun::create(options);
  for (EngineRun* run : {eager.get(), replayed.get()}) {
    for (const Request& request : requests) run->submit(request);
    run->run(50);
  }
  EXPECT_EQ(replayed->stats().steps_replayed, replayed->steps());
  for (int32_t i = 0; i < 6; ++i) {
    EXPECT_EQ(replayed->output(i), eager->output(i));
    EXPECT_EQ(replayed->logprobs(i).logprobs, eager->logprobs(i).logprobs);
    EXPECT_EQ(replayed->prompt_logprobs(i).logprobs, eager->prompt_logprobs(i).logprobs);
    EXPECT_EQ(replayed->prompt_logprobs(i).top_tokens, eager->prompt_logprobs(i).top_tokens);
    EXPECT_GT(replayed->prompt_logprobs(i).logprobs.size(), 4u);
  }
}

// Steps of decodes by hand, over slots whose caches hold what earlier ones wrote there.
class RandomDecodes {
 public:
  RandomDecodes(const EngineSettings& settings, uint64_t seed)
      : settings_(settings), batch_(settings), random_(seed), slots_(static_cast<size_t>(num_slots())) {}

  // So many rows that every bucket comes up as often as any other.
  const StepBatch& next() {
    batch_.clear();
    const int32_t rows = pick(0, 1) == 0 ? pick(1, num_slots()) : std::min(1 << pick(0, 4), num_slots());
    std::vector<int32_t> slots(slots_.size());
    std::iota(slots.begin(), slots.end(), 0);
    std::ranges::shuffle(slots, random_);
    slots.resize(static_cast<size_t>(rows));
    batch_.shape.draft_passes = pick(0, settings_.max_drafts());
    const bool widest = pick(0, 2) == 0;
    for (const int32_t slot : slots) add_row(slot, widest ? settings_.limits.max_query_len : 0);
    batch_.num_decodes = static_cast<int32_t>(batch_.rows.size());
    batch_.num_decode_tokens = batch_.num_tokens = batch_.query_start_loc.back();
    batch_.shape.bucket = {.tokens = batch_.num_tokens,
                           .requests = batch_.num_decodes,
                           .query_width = settings_.limits.max_query_len,
                           .kind = StepKind::kDecode};
    batch_.shape.sampling_rows = batch_.num_decodes;
    return batch_;
  }
  void commit(const StepResults& results) {
    for (size_t r = 0; r < batch_.rows.size(); ++r) {
      slots_[static_cast<size_t>(batch_.rows[r].slot)].length += results.num_tokens[r];
    }
  }

 private:
  struct Slot {
    int32_t length = -1;  // -1: not begun
    Sequence sequence;
  };
  int32_t num_slots() const { return settings_.limits.max_requests; }
  int32_t pick(int32_t from, int32_t to) { return std::uniform_int_distribution<int32_t>(from, to)(random_); }

  void add_row(int32_t slot, int32_t query_len) {
    Slot& s = slots_[static_cast<size_t>(slot)];
    const int32_t most = settings_.limits.max_query_len;
    if (s.length < 0 || s.length + 2 * most >= settings_.limits.max_model_len) begin_slot(slot);
    const StepRow row{.slot = slot,
                      .samples = true,
                      .query_len = query_len > 0 ? query_len : pick(1, most),
                      .begin_upper = s.length,
                      .next_drafts = pick(0, batch_.shape.draft_passes)};
    if (batch_.rows.empty()) batch_.query_start_loc.assign({0});
    batch_.rows.push_back(row);
    batch_.query_start_loc.push_back(batch_.query_start_loc.back() + row.query_len);
  }

  void begin_slot(int32_t slot) {
    Slot& s = slots_[static_cast<size_t>(slot)];
    auto request = std::make_shared<Request>();
    request->sampling.temperature = static_cast<float>(pick(0, 1));
    request->sampling.top_k = 50;
    request->sampling.repetition_penalty = 1.1f;
    s.length = pick(0, settings_.limits.max_model_len / 2);
    s.sequence.request = request;
    s.sequence.tokens = random_prompt(s.length + 1, random_());
    s.sequence.prompt_len = s.length / 2 + 1;
    batch_.slot_inits.push_back(
        {.slot = slot, .sequence = &s.sequence, .seq_len = s.length, .max_len = settings_.limits.max_model_len});
    const int32_t blocks = settings_.limits.max_blocks_per_request;
    for (int32_t i = 0; i < blocks; ++i) {
      batch_.table_entries.push_back({.slot = slot, .index = i, .block = 1 + slot * blocks + i});
    }
  }

  EngineSettings settings_;
  StepBatch batch_;
  std::mt19937_64 random_;
  std::vector<Slot> slots_;
};

// Every bucket in random order on one workspace, with everything poisoned that a step makes for itself: verify mode
// ends the process where a bit differs from the step that ran eagerly in its own size.
void replay_random_decodes(int32_t count) {
  RunOptions options = options_with(GraphMode::kVerify, 3);
  options.settings.limits.max_model_len = 256;
  options.settings.limits.max_blocks_per_request = 4;
  options.settings.limits.num_blocks = 1 + 24 * 4;
  const auto run = EngineRun::create(options);
  const EngineSettings& settings = run->core().state().settings;
  const StepBuckets buckets(settings.limits, settings.max_drafts());
  std::set<int32_t> seen;
  StepResults results(settings);
  RandomDecodes decodes(settings, 17);
  for (int32_t i = 0; i < count; ++i) {
    const StepBatch& batch = decodes.next();
    seen.insert(buckets.of_decodes(batch.num_tokens).tokens);
    const Status submitted = run->executor().submit(batch);
    ASSERT_TRUE(submitted.ok()) << submitted.error().message();
    const Status finished = run->executor().wait(results);
    ASSERT_TRUE(finished.ok()) << finished.error().message();
    ASSERT_TRUE(results.replayed);
    decodes.commit(results);
  }
  EXPECT_EQ(seen.size(), buckets.decodes().size());
}
TEST(EngineGraphs, RandomReplaysOverAllBuckets) { replay_random_decodes(200); }
TEST(EngineGraphsSlow, AThousandReplaysOverAllBuckets) { replay_random_decodes(1000); }

TEST(EngineGraphs, TheSnapshotNamesWhatDiffers) {
  const auto device = make_host_device(1);
  const auto first = PersistentBuffer<int32_t>::create(*device, "first", 4);
  const auto second = PersistentBuffer<int32_t>::create(*device, "second", 4);
  ASSERT_TRUE(first.ok() && second.ok());
  int32_t* const words = (*second)->fixed().data();
  const std::vector<NamedMemory> memory{{"the first", (*first)->fixed().data(), 16}, {"the second", words, 16}};
  const MemorySnapshot before(*device, memory);
  EXPECT_EQ(before.difference(MemorySnapshot(*device, memory)), "");
  words[2] = 1;
  const MemorySnapshot after(*device, memory);
  EXPECT_EQ(before.difference(after), "the second differs from byte 8 of 16 on");
  before.restore(*device);
  EXPECT_EQ(words[2], 0);
  EXPECT_EQ(before.difference(MemorySnapshot(*device, memory)), "");
}

}  // namespace
}  // namespace lantern
