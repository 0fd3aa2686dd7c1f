#include "engine/engine_core.h"

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <vector>

#include "engine/invariants.h"

namespace lantern {
namespace {

// Answers with the tokens of a script, one for each sampling row; refuses or is lost when told.
class ScriptedExecutor final : public Executor {
 public:
  std::vector<int32_t> script = std::vector<int32_t>(64, 7);
  bool refuse = false;
  bool lost = false;
  RowStatus status = RowStatus::kOk;
  StepBatch last{EngineSettings{}};

  Status submit(const StepBatch& batch) override {
    if (refuse) return Error(ErrorCode::kIo, "no room in the ring");
    last = batch;
    in_flight_.push_back(batch);
    return {};
  }
  bool ready() const override { return !in_flight_.empty(); }
  Status wait(StepResults& results) override {
    if (lost) return Error(ErrorCode::kIo, "the device is gone");
    for (size_t r = 0; r < in_flight_.front().rows.size(); ++r) {
      const bool samples = in_flight_.front().rows[r].samples;
      results.num_tokens[r] = samples ? 1 : 0;
      results.status[r] = status;
      if (samples) results.row(static_cast<int32_t>(r))[0] = script[next_++];
    }
    in_flight_.pop_front();
    return {};
  }

 private:
  std::deque<StepBatch> in_flight_;
  size_t next_ = 0;
};

class RecordingSink final : public OutputSink {
 public:
  int32_t stop_at = -1;  // the reader ends the text before this token
  std::map<RequestId, std::vector<int32_t>> outputs;
  std::map<RequestId, std::vector<EndReason>> ends;

  Verdict on_tokens(const Sequence& sequence, int32_t count) override {
    std::vector<int32_t>& output = outputs[sequence.request_id];
    for (int32_t i = 0; i < count; ++i) {
      const int32_t token = sequence.tokens[static_cast<size_t>(sequence.num_tokens() - count + i)];
      if (token == stop_at) return {i, true};
      output.push_back(token);
    }
    return {count, false};
  }
  void on_end(const Sequence& sequence) override { ends[sequence.request_id].push_back(sequence.end_reason); }
};

class EngineCoreTest : public testing::Test {
 protected:
  static EngineSettings settings() {
    EngineSettings settings;
    settings.limits = {.max_tokens = 32,
                       .max_requests = 4,
                       .max_query_len = 1,
                       .max_blocks_per_request = 16,
                       .block_size = 4,
                       .num_blocks = 33,
                       .max_model_len = 64};
    return EngineSettings::checked(settings).value();
  }
  RequestId submit(int32_t max_tokens, const std::vector<int32_t>& stop_token_ids = {}) {
    Request request;
    request.prompt = {1, 2, 3, 4, 5};
    request.max_tokens = max_tokens;
    request.stop_token_ids = stop_token_ids;
    return engine_.submit(std::make_shared<const Request>(request), EngineTime(0)).value();
  }
  void expect_sound() {
    const Violation violation = find_violation(engine_);
    EXPECT_FALSE(violation) << *violation;
  }
  void run() {
    while (!engine_.idle()) {
      engine_.begin_step(EngineTime(0));
      if (engine_.steps_in_flight() > 0) {
        EXPECT_TRUE(engine_.finish_step().ok());
      }
      expect_sound();
    }
    const Violation leak = find_leak(engine_.state());
    EXPECT_FALSE(leak) << *leak;
  }

  ScriptedExecutor executor_;
  RecordingSink sink_;
  EngineCore engine_{settings(), HashKey::from_seed(1), executor_, &sink_};
};

TEST_F(EngineCoreTest, EndsAtAStopTokenWhichStaysInTheOutput) {
  executor_.script = {10, 11, 12, 13};
  const RequestId id = submit(10, {12});
  run();
  EXPECT_EQ(sink_.outputs[id], (std::vector<int32_t>{10, 11, 12}));
  EXPECT_EQ(sink_.ends[id], (std::vector<EndReason>{EndReason::kStop}));
}

TEST_F(EngineCoreTest, EndsWhereTheReaderSaysSo) {
  executor_.script = {10, 11, 12, 13};
  sink_.stop_at = 11;
  const RequestId id = submit(10);
  run();
  EXPECT_EQ(sink_.outputs[id], (std::vector<int32_t>{10}));
  EXPECT_EQ(sink_.ends[id], (std::vector<EndReason>{EndReason::kStop}));
}

TEST_F(EngineCoreTest, EndsAtTheLimit) {
  const RequestId id = submit(3);
  run();
  EXPECT_EQ(sink_.outputs[id].size(), 3u);
  EXPECT_EQ(sink_.ends[id], (std::vector<EndReason>{EndReason::kLength}));
}

TEST_F(EngineCoreTest, ACancelledRequestKeepsItsBlocksUntilItsStepsAreThrough) {
  const RequestId id = submit(20);
  ASSERT_EQ(engine_.begin_step(EngineTime(0)), StepStart::kStarted);
  ASSERT_EQ(engine_.begin_step(EngineTime(0)), StepStart::kStarted);
  const int32_t leased = engine_.state().pool.num_leased();
  ASSERT_GT(leased, 0);
  EXPECT_TRUE(engine_.cancel(id));
  EXPECT_EQ(sink_.ends[id], (std::vector<EndReason>{EndReason::kCancelled})) << "the user does not wait";
  EXPECT_EQ(engine_.state().pool.num_leased(), leased);
  ASSERT_TRUE(engine_.finish_step().ok());
  EXPECT_EQ(engine_.state().pool.num_leased(), leased);
  expect_sound();
  ASSERT_TRUE(engine_.finish_step().ok());
  EXPECT_EQ(engine_.state().pool.num_leased(), 0);
  EXPECT_TRUE(sink_.outputs[id].empty());
  EXPECT_FALSE(engine_.cancel(id)) << "it has gone";
  // Its record is used again under another name.
  const RequestId next = submit(1);
  EXPECT_NE(next, id);
  EXPECT_FALSE(engine_.cancel(id));
  EXPECT_TRUE(engine_.cancel(next));
}

TEST_F(EngineCoreTest, ARefusedStepLeavesNoTrace) {
  const RequestId id = submit(5);
  executor_.refuse = true;
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(engine_.begin_step(EngineTime(0)), StepStart::kNotAccepted);
    EXPECT_EQ(engine_.last_error().error().message(), "no room in the ring");
    expect_sound();
    EXPECT_EQ(engine_.state().pool.num_leased(), 0);
    EXPECT_EQ(engine_.state().num_queued, 1);
  }
  executor_.refuse = false;
  run();
  EXPECT_EQ(sink_.outputs[id].size(), 5u);
}

TEST_F(EngineCoreTest, LogitsThatAreNoNumbersFailTheirRequestAlone) {
  const RequestId bad = submit(5);
  ASSERT_EQ(engine_.begin_step(EngineTime(0)), StepStart::kStarted);
  executor_.status = RowStatus::kNotFinite;
  ASSERT_TRUE(engine_.finish_step().ok());
  executor_.status = RowStatus::kOk;
  const RequestId good = submit(5);
  run();
  EXPECT_EQ(sink_.ends[bad], (std::vector<EndReason>{EndReason::kFailed}));
  EXPECT_EQ(sink_.ends[good], (std::vector<EndReason>{EndReason::kLength}));
}

TEST_F(EngineCoreTest, ALostDeviceEndsEverythingAndIsSaid) {
  const RequestId running = submit(20);
  ASSERT_EQ(engine_.begin_step(EngineTime(0)), StepStart::kStarted);
  ASSERT_EQ(engine_.begin_step(EngineTime(0)), StepStart::kStarted);
  const RequestId waiting = submit(20);
  executor_.lost = true;
  EXPECT_FALSE(engine_.finish_step().ok());
  EXPECT_EQ(sink_.ends[running], (std::vector<EndReason>{EndReason::kFailed}));
  EXPECT_EQ(sink_.ends[waiting], (std::vector<EndReason>{EndReason::kFailed}));
  EXPECT_EQ(engine_.begin_step(EngineTime(0)), StepStart::kFailed);
  const Violation leak = find_leak(engine_.state());
  EXPECT_FALSE(leak) << *leak;
  Request request;
  request.prompt = {1};
  const auto refused = engine_.submit(std::make_shared<const Request>(request), EngineTime(0));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message(), "the engine has lost its device (the device is gone); restart the server");
}

TEST_F(EngineCoreTest, DrainServesWhatIsIn) {
  const RequestId id = submit(5);
  engine_.drain();
  run();
  EXPECT_EQ(sink_.outputs[id].size(), 5u);
  EXPECT_EQ(engine_.begin_step(EngineTime(0)), StepStart::kIdle);
}

}  // namespace
}  // namespace lantern
