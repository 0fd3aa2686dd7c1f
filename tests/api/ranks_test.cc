// Engines in step, a thread each, over fake executors: what their users see, and what every rank launches.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <thread>

#include "api_requests.h"
#include "engine/engine.h"
#include "fake_executor.h"
#include "gated_executor.h"
#include "process_time.h"

namespace lantern {
namespace {

using std::chrono::milliseconds;

EngineSettings rank_settings() {
  EngineSettings settings;
  settings.limits.block_size = 16;
  settings.limits.max_requests = 8;
  settings.limits.max_query_len = 4;
  settings.limits.max_tokens = 64;
  settings.limits.max_model_len = 256;
  settings.limits.max_blocks_per_request = 16;
  settings.limits.num_blocks = 60;
  return settings;
}

// What a rank's executor was told to run, read while it runs.
struct RankLog {
  std::mutex mutex;
  std::vector<StepShape> shapes;
  int64_t dummies = 0;
  std::optional<std::string> fault;
};

class LoggedExecutor final : public Executor {
 public:
  LoggedExecutor(const EngineSettings& settings, const FakeExecutor::Options& options, std::shared_ptr<RankLog> log)
      : executor_(settings, options), log_(std::move(log)) {}

  Status submit(const StepBatch& batch) override {
    RETURN_IF_ERROR(executor_.submit(batch));
    const std::lock_guard lock(log_->mutex);
    log_->shapes.push_back(batch.shape);
    log_->dummies += batch.rows.front().sequence < 0 ? 1 : 0;
    return {};
  }
  bool ready() const override { return executor_.ready(); }
  Status wait(StepResults& results) override {
    RETURN_IF_ERROR(executor_.wait(results));
    const std::lock_guard lock(log_->mutex);
    if (executor_.fault() && !log_->fault) log_->fault = executor_.fault();
    return {};
  }

 private:
  FakeExecutor executor_;
  std::shared_ptr<RankLog> log_;
};

struct RankedEngine {
  std::vector<std::shared_ptr<Gate>> gates;
  std::vector<std::shared_ptr<RankLog>> logs;
  std::unique_ptr<Engine> engine;

  explicit RankedEngine(int32_t ranks, const EngineSettings& settings = rank_settings()) {
    const EngineSettings checked = EngineSettings::checked(settings).value();
    std::vector<Engine::Parts> parts(static_cast<size_t>(ranks));
    for (size_t rank = 0; rank < parts.size(); ++rank) {
      gates.push_back(std::make_shared<Gate>());
      logs.push_back(std::make_shared<RankLog>());
      // Drafts are right more often on some ranks than on others, so that wishes differ.
      const FakeExecutor::Options options{
          .vocab = kVocab, .acceptance = static_cast<double>(rank % 4) / 3, .seed = rank};
      parts[rank].settings = settings;
      parts[rank].executor = std::make_unique<GatedExecutor>(
          std::make_unique<LoggedExecutor>(checked, options, logs.back()), gates.back());
      parts[rank].vocab_size = kVocab;
    }
    engine = Engine::create(std::move(parts)).value();
  }
  // To be asked when the engine sleeps or is gone.
  void expect_alike() const {
    for (size_t rank = 0; rank < logs.size(); ++rank) {
      const std::scoped_lock lock(logs[rank]->mutex);
      EXPECT_FALSE(logs[rank]->fault) << *logs[rank]->fault;
      EXPECT_EQ(logs[rank]->shapes.size(), logs[0]->shapes.size()) << "rank " << rank;
      EXPECT_TRUE(logs[rank]->shapes == logs[0]->shapes) << "rank " << rank;
    }
  }
  size_t steps() const {
    const std::scoped_lock lock(logs[0]->mutex);
    return logs[0]->shapes.size();
  }
  int64_t dummies(size_t rank) const {
    const std::scoped_lock lock(logs[rank]->mutex);
    return logs[rank]->dummies;
  }
};

struct Ended {
  std::vector<int32_t> tokens;
  EndReason reason = EndReason::kNone;
  std::string error;
};
Ended read_all(TokenStream& stream) {
  Ended ended;
  Output output;
  while (stream.next(output)) {
    ended.tokens.insert(ended.tokens.end(), output.tokens.begin(), output.tokens.end());
    if (output.ended()) ended.reason = output.end_reason;
    if (!output.error.empty()) ended.error = output.error;
  }
  return ended;
}

// Waits until steps stop coming.
void wait_for_sleep(const RankedEngine& ranks) {
  for (size_t before = ranks.steps();;) {
    std::this_thread::sleep_for(milliseconds(20));
    const size_t now = ranks.steps();
    const EngineReport report = ranks.engine->report();
    if (now == before && report.num_running == 0 && report.num_waiting == 0) return;
    before = now;
  }
}

TEST(Ranks, OneRequestForFourRanks) {
  RankedEngine ranks(4);
  const std::vector<int32_t> prompt = {3, 1, 4, 1, 5};
  TokenStream stream = ranks.engine->submit(request_of(prompt, 100)).value();
  const Ended ended = read_all(stream);
  EXPECT_EQ(ended.tokens, expected_tokens(prompt, 100, 1, kVocab));
  wait_for_sleep(ranks);
  ranks.expect_alike();
  EXPECT_EQ(ranks.dummies(0), 0);
  for (const size_t idle : {1u, 2u, 3u}) EXPECT_EQ(ranks.dummies(idle), static_cast<int64_t>(ranks.steps()));
  const std::vector<EngineReport> reports = ranks.engine->rank_reports();
  EXPECT_EQ(reports[0].output_tokens, 100);
  EXPECT_EQ(reports[3].dummy_steps, static_cast<int64_t>(ranks.steps()));
  EXPECT_EQ(reports[3].steps, 0);
  EXPECT_EQ(ranks.engine->report().dummy_steps, 3 * static_cast<int64_t>(ranks.steps()));
  EXPECT_EQ(ranks.engine->report().num_blocks, 4 * 59);
}

// Nobody looks for work over and over, and any submission wakes all.
TEST(Ranks, SleepTogetherAndWakeTogether) {
  RankedEngine ranks(4);
  std::mt19937_64 random(3);
  for (int32_t i = 0; i < 300; ++i) {
    const std::vector<int32_t> prompt = {i, i + 1};
    const int32_t length = 1 + static_cast<int32_t>(random() % 4);
    TokenStream stream = ranks.engine->submit(request_of(prompt, length)).value();
    ASSERT_EQ(read_all(stream).tokens, expected_tokens(prompt, length, 1, kVocab));
    if (i % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 500));
  }
  wait_for_sleep(ranks);
  const size_t steps = ranks.steps();
  const double cpu = process_cpu_seconds();
  std::this_thread::sleep_for(milliseconds(400));
  EXPECT_LT(process_cpu_seconds() - cpu, 0.1);
  EXPECT_EQ(ranks.steps(), steps);
  ranks.expect_alike();
}

TEST(Ranks, PauseTogetherAndGoOn) {
  RankedEngine ranks(4);
  std::vector<TokenStream> streams;
  std::vector<std::vector<int32_t>> prompts;
  for (int32_t i = 0; i < 6; ++i) {
    if (i == 3) ranks.engine->pause();  // some run, some wait to
    prompts.push_back({i, i + 1});
    streams.push_back(ranks.engine->submit(request_of(prompts.back(), 200)).value());
  }
  std::this_thread::sleep_for(milliseconds(100));  // far more than agreeing takes
  const size_t steps = ranks.steps();
  const double cpu = process_cpu_seconds();
  std::this_thread::sleep_for(milliseconds(300));
  EXPECT_EQ(ranks.steps(), steps);
  EXPECT_LT(process_cpu_seconds() - cpu, 0.1);
  EXPECT_GE(ranks.engine->report().num_running + ranks.engine->report().num_waiting, 3) << "those that came later";
  ranks.engine->resume();
  for (size_t i = 0; i < streams.size(); ++i)
    EXPECT_EQ(read_all(streams[i]).tokens, expected_tokens(prompts[i], 200, 1, kVocab));
  wait_for_sleep(ranks);
  ranks.expect_alike();
}

TEST(Ranks, RequestsEndAtDifferentSteps) {
  RankedEngine ranks(4);
  for (const auto& gate : ranks.gates) gate->set_open(false);
  std::vector<TokenStream> streams;
  streams.reserve(16);
  for (int32_t i = 0; i < 16; ++i) {
    streams.push_back(ranks.engine->submit(request_of({i, 2 * i}, 5 + 11 * i, static_cast<uint64_t>(i))).value());
  }
  for (const auto& gate : ranks.gates) gate->set_open(true);
  for (int32_t i = 0; i < 16; ++i) {
    EXPECT_EQ(read_all(streams[static_cast<size_t>(i)]).tokens,
              expected_tokens({i, 2 * i}, 5 + 11 * i, static_cast<uint64_t>(i), kVocab));
  }
  wait_for_sleep(ranks);
  ranks.expect_alike();
  for (const EngineReport& report : ranks.engine->rank_reports()) {
    EXPECT_GE(report.choices_submitted, 2) << "requests are spread over the ranks";
    EXPECT_GT(report.steps, 0);
  }
}

// With three drafts the last positions of a context have use for fewer, and the rank still runs the drafter as often as
// the others.
TEST(Ranks, TheEndOfTheContextOnOneRank) {
  EngineSettings settings = rank_settings();
  settings.adaptive_drafts = false;
  RankedEngine ranks(2, settings);
  for (const auto& gate : ranks.gates) gate->set_open(false);
  const std::vector<int32_t> long_prompt(240, 7);
  TokenStream at_end = ranks.engine->submit(request_of(long_prompt, 1000)).value();
  TokenStream other = ranks.engine->submit(request_of({1, 2, 3}, 120)).value();
  for (const auto& gate : ranks.gates) gate->set_open(true);
  const Ended ended = read_all(at_end);
  EXPECT_EQ(ended.reason, EndReason::kLength);
  EXPECT_EQ(ended.tokens, expected_tokens(long_prompt, 16, 1, kVocab));
  EXPECT_EQ(read_all(other).tokens, expected_tokens({1, 2, 3}, 120, 1, kVocab));
  wait_for_sleep(ranks);
  ranks.expect_alike();
}

TEST(Ranks, ManyThreadsGetTheirOwnTokens) {
  RankedEngine ranks(4);
  std::atomic<int32_t> wrong{0};
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int32_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int32_t i = 0; i < 50; ++i) {
        std::vector<int32_t> prompt;
        prompt.reserve(100);
        for (int32_t p = 0; p < 1 + (i * 7 + t) % 90; ++p) prompt.push_back((p * 3 + i % 5) % kVocab);
        const int32_t length = 1 + (i * 13) % 70;
        Result<TokenStream> stream = ranks.engine->submit(request_of(prompt, length, static_cast<uint64_t>(i)));
        if (!stream.ok() ||
            read_all(*stream).tokens != expected_tokens(prompt, length, static_cast<uint64_t>(i), kVocab)) {
          ++wrong;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  wait_for_sleep(ranks);
  ranks.expect_alike();
  const EngineReport report = ranks.engine->report();
  EXPECT_EQ(report.choices_submitted, 200);
  EXPECT_EQ(report.num_free_blocks + report.num_cached_blocks, report.num_blocks);
  EXPECT_GT(report.prompt_tokens_cached, 0);
}

TEST(Ranks, DrainServesAllAndLeavesTogether) {
  RankedEngine ranks(4);
  std::vector<TokenStream> streams;
  streams.reserve(40);
  for (int32_t i = 0; i < 40; ++i) {
    streams.push_back(ranks.engine->submit(request_of({i}, 10 + i, static_cast<uint64_t>(i))).value());
  }
  EXPECT_TRUE(ranks.engine->drain());
  for (int32_t i = 0; i < 40; ++i) {
    EXPECT_EQ(read_all(streams[static_cast<size_t>(i)]).tokens,
              expected_tokens({i}, 10 + i, static_cast<uint64_t>(i), kVocab));
  }
  const Result<TokenStream> refused = ranks.engine->submit(request_of({1}, 1));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message(), "the engine is shutting down and takes no more requests");
  ranks.engine.reset();
  ranks.expect_alike();
}

TEST(Ranks, AnEngineThatIsDestroyedLeavesInOneStep) {
  for (int32_t i = 0; i < 30; ++i) {
    RankedEngine ranks(3);
    for (const auto& gate : ranks.gates) gate->delay_us = 50;
    std::vector<TokenStream> streams;
    streams.reserve(7);
    for (int32_t r = 0; r < 7; ++r) streams.push_back(ranks.engine->submit(request_of({r, i}, 200)).value());
    std::this_thread::sleep_for(std::chrono::microseconds(i * 100));
    ranks.engine.reset();
    ranks.expect_alike();
    for (TokenStream& stream : streams) {
      const Ended ended = read_all(stream);
      EXPECT_TRUE(ended.reason == EndReason::kCancelled || ended.reason == EndReason::kLength)
          << to_string(ended.reason) << ended.error;
    }
  }
}

TEST(Ranks, AStormOfCancels) {
  RankedEngine ranks(4);
  std::atomic<int32_t> wrong{0};
  std::vector<std::thread> threads;
  threads.reserve(3);
  for (uint64_t t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 random(t);
      for (int32_t i = 0; i < 400; ++i) {
        const std::vector<int32_t> prompt(1 + random() % 60, static_cast<int32_t>(i));
        Result<TokenStream> stream = ranks.engine->submit(request_of(prompt, 60, random() % 5));
        if (!stream.ok()) {
          ++wrong;
          continue;
        }
        Output output;
        for (uint64_t outputs = random() % 4; outputs > 0; --outputs) (void)stream->next(output);
        if (random() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
        if (random() % 2 == 0) stream->cancel();  // else the stream's end does it
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_TRUE(ranks.engine->drain(milliseconds(60'000)));
  wait_for_sleep(ranks);
  ranks.expect_alike();
  for (const EngineReport& report : ranks.engine->rank_reports()) {
    EXPECT_EQ(report.num_free_blocks + report.num_cached_blocks, report.num_blocks);
    EXPECT_GT(report.choices_ended[static_cast<size_t>(EndReason::kCancelled)], 20);
  }
}

TEST(Ranks, ADeviceThatIsLostEndsAll) {
  RankedEngine ranks(4);
  for (const auto& gate : ranks.gates) gate->delay_us = 200;
  std::vector<TokenStream> streams;
  streams.reserve(12);
  for (int32_t i = 0; i < 12; ++i) streams.push_back(ranks.engine->submit(request_of({i}, 200)).value());
  Output output;
  for (TokenStream& stream : streams) ASSERT_TRUE(stream.next(output));
  ranks.gates[2]->lost = true;
  const std::string why = "rank 2 of the engine has lost its device (the cable was pulled); make a new engine";
  for (TokenStream& stream : streams) {
    const Ended ended = read_all(stream);
    EXPECT_EQ(ended.reason, EndReason::kFailed);
    EXPECT_EQ(ended.error, why);
  }
  // The other ranks learn of it on their threads.
  for (int32_t i = 0; i < 12; ++i) {
    const Result<TokenStream> refused = ranks.engine->submit(request_of({i}, 1));
    if (refused.ok()) continue;
    EXPECT_EQ(refused.error().message(), why);
  }
  ASSERT_TRUE(ranks.engine->lost().has_value());
  EXPECT_EQ(ranks.engine->lost()->message(), why);
  EXPECT_TRUE(ranks.engine->drain(milliseconds(60'000)));
}

// A device that is busy takes the agreed step later; until then all wait, and nothing is lost.
TEST(Ranks, ARefusedStepIsRunByTheOthersAndByTheDummy) {
  RankedEngine ranks(3);
  std::vector<TokenStream> streams;
  streams.reserve(9);
  for (int32_t i = 0; i < 9; ++i) streams.push_back(ranks.engine->submit(request_of({i}, 60)).value());
  for (int32_t i = 0; i < 5; ++i) {
    ranks.gates[static_cast<size_t>(i % 3)]->refusals = 1 + i % 2;
    std::this_thread::sleep_for(milliseconds(1));
  }
  for (int32_t i = 0; i < 9; ++i) {
    EXPECT_EQ(read_all(streams[static_cast<size_t>(i)]).tokens, expected_tokens({i}, 60, 1, kVocab));
  }
  wait_for_sleep(ranks);
  ranks.expect_alike();
}

TEST(Ranks, AnEngineWhoseDeviceRefusesForeverCanBeDestroyed) {
  RankedEngine ranks(3);
  ranks.gates[1]->refusals = 1'000'000'000;
  std::vector<TokenStream> streams;
  streams.reserve(6);
  for (int32_t i = 0; i < 6; ++i) streams.push_back(ranks.engine->submit(request_of({i}, 60)).value());
  std::this_thread::sleep_for(milliseconds(5));
  EXPECT_FALSE(ranks.engine->drain(milliseconds(30)));
  ranks.engine.reset();
  for (TokenStream& stream : streams) EXPECT_NE(read_all(stream).reason, EndReason::kNone);
}

TEST(Ranks, AFullQueueIsThatOfAllRanks) {
  EngineSettings settings = rank_settings();
  settings.max_queued = 3;
  RankedEngine ranks(2, settings);
  for (const auto& gate : ranks.gates) gate->set_open(false);
  std::vector<TokenStream> streams;
  Result<TokenStream> last = ranks.engine->submit(request_of({1}, 2));
  while (last.ok()) {
    streams.push_back(std::move(*last));
    last = ranks.engine->submit(request_of({static_cast<int32_t>(streams.size())}, 2));
    ASSERT_LT(streams.size(), 100u);
  }
  EXPECT_EQ(last.error().code(), ErrorCode::kOutOfMemory);
  EXPECT_GE(streams.size(), 6u);
  for (const auto& gate : ranks.gates) gate->set_open(true);
  for (TokenStream& stream : streams) EXPECT_EQ(read_all(stream).reason, EndReason::kLength);
}

TEST(Ranks, RanksThatDoNotFitAreRefused) {
  EXPECT_FALSE(Engine::create(std::vector<Engine::Parts>()).ok());
  std::vector<Engine::Parts> parts(2);
  for (Engine::Parts& rank : parts) {
    rank.settings = rank_settings();
    rank.executor =
        std::make_unique<FakeExecutor>(EngineSettings::checked(rank.settings).value(), FakeExecutor::Options{});
  }
  parts[1].settings.limits.max_tokens = 128;
  const Result<std::unique_ptr<Engine>> engine = Engine::create(std::move(parts));
  ASSERT_FALSE(engine.ok());
  EXPECT_EQ(engine.error().message(), "max_tokens is 64 on one rank and 128 on another; give all ranks the same");
}

}  // namespace
}  // namespace lantern
