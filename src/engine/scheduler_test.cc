#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "engine/engine_core.h"
#include "engine/invariants.h"

namespace lantern {
namespace {

// Yields token 7 for every sampling row, and says so of every draft: `accepted` of them are right.
class EchoExecutor final : public Executor {
 public:
  int32_t accepted = 0;
  std::map<SequenceId, int32_t> accepted_of;  // in place of `accepted`

  Status submit(const StepBatch& batch) override {
    batches.push_back(batch);
    return {};
  }
  bool ready() const override { return done_ < batches.size(); }
  Status wait(StepResults& results) override {
    const StepBatch& batch = batches[done_++];
    for (size_t r = 0; r < batch.rows.size(); ++r) {
      const StepRow& row = batch.rows[r];
      const auto own = accepted_of.find(row.sequence);
      const int32_t right = own == accepted_of.end() ? accepted : own->second;
      results.num_tokens[r] = row.samples ? 1 + std::min(row.num_drafts(), right) : 0;
      results.status[r] = RowStatus::kOk;
      std::ranges::fill(results.row(static_cast<int32_t>(r)), 7);
    }
    return {};
  }

  std::vector<StepBatch> batches;

 private:
  size_t done_ = 0;
};

class SchedulerTest : public testing::Test {
 protected:
  SchedulerTest() {
    settings_.limits = {.max_tokens = 64,
                        .max_requests = 8,
                        .max_query_len = 3,
                        .max_blocks_per_request = 64,
                        .block_size = 4,
                        .num_blocks = 201,
                        .max_model_len = 256};
    settings_.max_steps_in_flight = 1;
    settings_.adaptive_drafts = false;
  }

  void start() {
    engine_ = std::make_unique<EngineCore>(EngineSettings::checked(settings_).value(), HashKey::from_seed(1), executor_,
                                           nullptr);
  }
  RequestId submit(const Request& request, int64_t at = 0) {
    auto id = engine_->submit(std::make_shared<const Request>(request), EngineTime(at));
    EXPECT_TRUE(id.ok()) << id.error().message();
    return id.ok() ? *id : 0;
  }
  static Request request_of(int32_t prompt_len, int32_t max_tokens, int32_t first_token = 100) {
    Request request;
    for (int32_t i = 0; i < prompt_len; ++i) request.prompt.push_back(first_token + i);
    request.max_tokens = max_tokens;
    return request;
  }
  // Runs one step; its rows by request.
  std::map<RequestId, StepRow> step(int64_t at = 0) {
    std::map<RequestId, StepRow> rows;
    EXPECT_EQ(engine_->begin_step(EngineTime(at)), StepStart::kStarted);
    for (const StepRow& row : executor_.batches.back().rows) rows[engine_->state().at(row.sequence).request_id] = row;
    EXPECT_TRUE(engine_->finish_step().ok());
    const Violation violation = find_violation(*engine_);
    EXPECT_FALSE(violation) << *violation;
    return rows;
  }
  // Runs to the end; returns steps taken.
  int32_t finish(int64_t at = 0) {
    int32_t steps = 0;
    for (; !engine_->idle(); ++steps) {
      if (steps > 10000) {
        ADD_FAILURE() << "no end";
        break;
      }
      step(at);
    }
    return steps;
  }

  EngineSettings settings_;
  EchoExecutor executor_;
  std::unique_ptr<EngineCore> engine_;
};

TEST_F(SchedulerTest, PromptsRunInChunksBesideDecodes) {
  settings_.decode_share = 0.25;
  start();
  const RequestId first = submit(request_of(10, 50));
  auto rows = step();
  EXPECT_EQ(rows[first].query_len, 10);
  EXPECT_TRUE(rows[first].samples);
  EXPECT_EQ(rows[first].next_drafts, 2);

  const RequestId second = submit(request_of(200, 50, 500));
  rows = step();
  EXPECT_EQ(rows[first].query_len, 3) << "the last token and two drafts";
  EXPECT_EQ(rows[second].query_len, 48) << "3/4 of 64 tokens";
  EXPECT_FALSE(rows[second].samples);
  const StepBatch& batch = executor_.batches.back();
  EXPECT_EQ(batch.num_decodes, 1);
  EXPECT_EQ(batch.query_start_loc, (std::vector<int32_t>{0, 3, 51}));
  ASSERT_EQ(batch.prompt_tokens.size(), 48u);
  EXPECT_EQ(batch.prompt_tokens[5], 505);
  for (int i = 0; i < 3; ++i) rows = step();
  EXPECT_EQ(rows[second].query_len, 48);
  rows = step();
  EXPECT_EQ(rows[second].query_len, 8) << "what is left of 200";
  EXPECT_TRUE(rows[second].samples);
}

TEST_F(SchedulerTest, AnEmptyStepBelongsToPrompts) {
  start();
  const RequestId only = submit(request_of(200, 5));
  EXPECT_EQ(step()[only].query_len, 64);
}

TEST_F(SchedulerTest, AShortPromptDoesNotWaitBehindALongOne) {
  start();
  const RequestId long_one = submit(request_of(250, 5));
  step();
  const RequestId short_one = submit(request_of(6, 5, 500));
  const auto rows = step();
  EXPECT_EQ(rows.at(short_one).query_len, 6);
  EXPECT_TRUE(rows.at(short_one).samples);
  EXPECT_EQ(rows.at(long_one).query_len, 58) << "its half, and what the short one left";
}

TEST_F(SchedulerTest, ALongPromptMovesOnHoweverManyShortOnesCome) {
  settings_.prefix_caching = false;
  start();
  const RequestId long_one = submit(request_of(250, 1));
  int32_t steps = 0;
  for (bool done = false; !done; ++steps) {
    ASSERT_LT(steps, 10);
    for (int i = 0; i < 4; ++i) submit(request_of(30, 1, 1000 * steps + 100 * i));
    const auto rows = step();
    EXPECT_GE(rows.at(long_one).query_len, std::min(32, 250 - rows.at(long_one).begin_upper));
    done = rows.at(long_one).samples;
  }
  EXPECT_LE(steps, 8) << "250 tokens at 32 a step";
}

TEST_F(SchedulerTest, AHitCostsOneToken) {
  start();
  submit(request_of(16, 8));
  finish();
  // The whole prompt is known: its last token runs again and writes nothing.
  const RequestId same = submit(request_of(16, 8));
  StepRow row = step()[same];
  EXPECT_EQ(row.begin_upper, 15);
  EXPECT_EQ(row.query_len, 1);
  EXPECT_EQ(row.num_unwritten, 1);
  EXPECT_TRUE(row.samples);
  EXPECT_EQ(executor_.batches.back().slot_inits[0].seq_len, 15);
  EXPECT_EQ(engine_->state().at(row.sequence).num_cached, 16);
  finish();
  // A prefix is known: the last known token runs again before the new ones.
  const RequestId longer = submit(request_of(27, 8));
  row = step()[longer];
  const int32_t cached = engine_->state().at(row.sequence).num_cached;
  EXPECT_EQ(cached, 16);
  EXPECT_EQ(row.begin_upper, cached - 1);
  EXPECT_EQ(row.query_len, 27 - (cached - 1));
  EXPECT_EQ(row.num_unwritten, 1);
}

TEST_F(SchedulerTest, OutputsAreFoundByTheNextTurnOfAConversation) {
  start();
  submit(request_of(10, 12));
  finish();
  Request next = request_of(10, 5);
  next.prompt.insert(next.prompt.end(), 12, 7);  // what the first one said
  next.prompt.push_back(1);
  const RequestId id = submit(next);
  const StepRow row = step()[id];
  // 22 tokens, of which all but the last, which never ran, are in the caches: 5 full blocks of 4.
  EXPECT_EQ(engine_->state().at(row.sequence).num_cached, 20);
}

TEST_F(SchedulerTest, SaltsDoNotShare) {
  start();
  submit(request_of(16, 2));
  finish();
  Request other = request_of(16, 2);
  other.cache_salt = "tenant";
  const RequestId id = submit(other);
  EXPECT_EQ(step()[id].query_len, 16);
}

TEST_F(SchedulerTest, RejectedDraftsAreTakenOffTheBound) {
  start();
  executor_.accepted = 1;  // of two
  const RequestId id = submit(request_of(8, 40));
  step();
  for (int i = 0; i < 5; ++i) {
    const StepRow row = step()[id];
    EXPECT_EQ(row.begin_upper, 8 + 2 * i);
    EXPECT_EQ(row.query_len, 3);
  }
}

TEST_F(SchedulerTest, NoDraftReachesBeyondTheLimit) {
  start();
  executor_.accepted = 2;
  const RequestId id = submit(request_of(8, 5));
  EXPECT_EQ(step()[id].next_drafts, 2);
  EXPECT_EQ(step()[id].query_len, 3) << "tokens 2, 3 and 4 of 5";
  const StepRow last = step()[id];
  EXPECT_EQ(last.query_len, 1) << "the fifth needs no draft";
  EXPECT_TRUE(engine_->idle());
}

TEST_F(SchedulerTest, PriorityGoesFirstButNotForEver) {
  settings_.limits.max_requests = 1;
  settings_.priority_step = EngineTime(100);
  start();
  submit(request_of(4, 1, 0), 0);
  Request patient = request_of(4, 1, 100);
  patient.priority = 2;  // counts as come at 200
  const RequestId low = submit(patient, 0);
  const RequestId soon = submit(request_of(4, 1, 200), 150);
  const RequestId late = submit(request_of(4, 1, 300), 250);
  step();
  EXPECT_TRUE(step().contains(soon));
  EXPECT_TRUE(step().contains(low));
  EXPECT_TRUE(step().contains(late));
}

TEST_F(SchedulerTest, ADeadlineBringsForwardAndEnds) {
  settings_.limits.max_requests = 1;
  settings_.priority_step = EngineTime(1000);
  settings_.deadline_slack = EngineTime(20);
  start();
  Request urgent = request_of(4, 1, 100);
  urgent.priority = 5;
  urgent.deadline = EngineTime(60);  // counts as come at 40
  Request hopeless = request_of(4, 1, 200);
  hopeless.priority = 5;
  hopeless.deadline = EngineTime(70);
  submit(request_of(4, 1, 0), 0);
  const RequestId late = submit(request_of(4, 1, 300), 45);
  const RequestId first = submit(urgent, 10);
  submit(hopeless, 10);
  step(50);
  EXPECT_TRUE(step(55).contains(first));
  EXPECT_TRUE(step(75).contains(late)) << "the other's deadline has passed";
  EXPECT_TRUE(engine_->idle());
  EXPECT_EQ(engine_->state().stats.ended, 4);
}

TEST_F(SchedulerTest, WhoCameLastGivesWayAndLosesNothing) {
  settings_.limits.num_blocks = 13;  // 12 of 4 positions
  settings_.limits.max_model_len = 40;
  settings_.limits.max_query_len = 1;
  start();
  const RequestId first = submit(request_of(8, 24, 100));
  const RequestId second = submit(request_of(8, 24, 200));
  std::map<RequestId, StepRow> rows;
  int32_t steps = 0;
  for (; engine_->state().stats.preemptions == 0; ++steps) rows = step();
  EXPECT_TRUE(rows.contains(first));
  EXPECT_FALSE(rows.contains(second));
  const int32_t outputs_at_preemption = steps - 1;
  for (rows = step(); !rows.contains(second); rows = step()) ASSERT_LT(++steps, 100);
  // Its tokens are known; it finds those of its blocks that were not needed, and goes on where it was.
  EXPECT_TRUE(rows[second].prefilling);
  EXPECT_GE(rows[second].seq_len_upper(), 8 + outputs_at_preemption);
  finish();
  EXPECT_EQ(engine_->state().stats.tokens_out, 48);
  EXPECT_GT(engine_->state().stats.prompt_tokens_cached, 0);
}

TEST_F(SchedulerTest, PreemptionsAreBounded) {
  settings_.limits.num_blocks = 11;
  settings_.limits.max_model_len = 40;
  settings_.max_preemptions = 2;
  start();
  for (int i = 0; i < 8; ++i) submit(request_of(8, 30, 100 * i));
  while (!engine_->idle()) {
    step();
    for (const Sequence& sequence : engine_->state().sequences) EXPECT_LE(sequence.num_preemptions, 2);
  }
  EXPECT_GT(engine_->state().stats.preemptions, 0);
  EXPECT_EQ(engine_->state().stats.tokens_out, 8 * 30);
}

TEST_F(SchedulerTest, AdmissionCountsWholePrompts) {
  settings_.limits.num_blocks = 41;  // 160 positions
  settings_.limits.max_model_len = 150;
  settings_.max_overtakes = 3;
  start();
  const RequestId first = submit(request_of(120, 10, 0));
  const RequestId second = submit(request_of(120, 10, 1000));
  EXPECT_FALSE(step().contains(second)) << "a chunk of it would fit, all of it would not";
  // Short ones pass it, in three steps at most.
  std::vector<RequestId> passed;
  for (int i = 0; i < 6; ++i) {
    passed.push_back(submit(request_of(4, 1, 5000 + 10 * i)));
    step();
  }
  EXPECT_EQ(engine_->state().stats.overtakes, 3);
  EXPECT_EQ(engine_->state().num_queued, 1 + 3);
  static_cast<void>(first);
  finish();
}

TEST_F(SchedulerTest, ChoicesShareOnePassOverThePrompt) {
  start();
  Request request = request_of(10, 4);
  request.n = 3;
  submit(request);
  auto rows = step();
  EXPECT_EQ(rows.size(), 1u);
  EXPECT_EQ(engine_->state().stats.forks, 2);
  EXPECT_EQ(engine_->begin_step(EngineTime(0)), StepStart::kStarted);
  const StepBatch& batch = executor_.batches.back();
  ASSERT_EQ(batch.rows.size(), 3u);
  EXPECT_EQ(batch.num_decodes, 1);
  for (const size_t r : {size_t{1}, size_t{2}}) {
    EXPECT_EQ(batch.rows[r].query_len, 1) << "the last prompt token alone";
    EXPECT_EQ(batch.rows[r].begin_upper, 9);
    EXPECT_EQ(batch.rows[r].num_unwritten, 1);
  }
  // Two of three write their own copy of the block in which the prompt ends; the last to come may keep it.
  EXPECT_EQ(batch.copies.size(), 2u);
  EXPECT_TRUE(engine_->finish_step().ok());
  finish();
  EXPECT_EQ(engine_->state().stats.tokens_out, 12);
  EXPECT_EQ(engine_->state().stats.prompt_tokens, 10);
}

TEST_F(SchedulerTest, PlanningOverlapsTheRunningStep) {
  settings_.max_steps_in_flight = 2;
  start();
  executor_.accepted = 1;
  const RequestId id = submit(request_of(8, 40));
  ASSERT_EQ(engine_->begin_step(EngineTime(0)), StepStart::kStarted);
  ASSERT_EQ(engine_->begin_step(EngineTime(0)), StepStart::kStarted) << "before the first token is known";
  EXPECT_EQ(executor_.batches[1].rows[0].begin_upper, 8);
  EXPECT_EQ(executor_.batches[1].rows[0].query_len, 3);
  EXPECT_EQ(engine_->begin_step(EngineTime(0)), StepStart::kWaiting);
  ASSERT_TRUE(engine_->finish_step().ok());
  ASSERT_EQ(engine_->begin_step(EngineTime(0)), StepStart::kStarted);
  EXPECT_EQ(executor_.batches[2].rows[0].begin_upper, 11) << "as if both drafts in flight were accepted";
  ASSERT_TRUE(engine_->finish_step().ok());
  ASSERT_EQ(engine_->begin_step(EngineTime(0)), StepStart::kStarted);
  EXPECT_EQ(executor_.batches[3].rows[0].begin_upper, 13) << "one was not";
  static_cast<void>(id);
}

class AllowAll final : public TokenConstraint {
 public:
  Status allow(int32_t /*choice*/, std::span<const int32_t> output, std::span<uint32_t> mask) override {
    asked.push_back(static_cast<int32_t>(output.size()));
    std::ranges::fill(mask, ~0u);
    return {};
  }
  std::vector<int32_t> asked;  // lengths of outputs
};

// While a step with a constrained row runs none is begun, and such a row has no drafts; other steps overlap.
TEST_F(SchedulerTest, AStepWithAConstrainedRowIsNotOverlapped) {
  settings_.max_steps_in_flight = 2;
  settings_.limits.max_query_len = 3;
  settings_.vocab_size = 100;
  start();
  submit(request_of(8, 20));
  ASSERT_EQ(engine_->begin_step(EngineTime(0)), StepStart::kStarted);
  Request request = request_of(9, 4);
  const auto constraint = std::make_shared<AllowAll>();
  request.constraint = constraint;
  submit(request);
  ASSERT_EQ(engine_->begin_step(EngineTime(0)), StepStart::kStarted) << "a step without is in flight";
  ASSERT_TRUE(engine_->finish_step().ok());
  int32_t steps = 0;
  while (engine_->state().stats.ended == 0) {
    const StepBatch& batch = executor_.batches.back();
    ASSERT_EQ(engine_->steps_in_flight(), 1);
    ASSERT_EQ(batch.num_masks, 1);
    EXPECT_EQ(engine_->begin_step(EngineTime(0)), StepStart::kWaiting);
    for (const StepRow& row : batch.rows) {
      if (row.mask < 0) continue;
      EXPECT_EQ(row.next_drafts, 0);
      EXPECT_TRUE(row.prefilling || row.query_len == 1);
    }
    ASSERT_TRUE(engine_->finish_step().ok());
    ++steps;
    if (engine_->state().stats.ended > 0) break;
    ASSERT_EQ(engine_->begin_step(EngineTime(0)), StepStart::kStarted);
  }
  EXPECT_EQ(steps, 4);
  EXPECT_EQ(constraint->asked, (std::vector<int32_t>{0, 1, 2, 3}));
  ASSERT_EQ(engine_->begin_step(EngineTime(0)), StepStart::kStarted);
  EXPECT_EQ(engine_->begin_step(EngineTime(0)), StepStart::kStarted) << "nothing is constrained any more";
}

TEST_F(SchedulerTest, ASmallerBudgetIsKept) {
  start();
  for (int i = 0; i < 4; ++i) submit(request_of(8, 20, 100 * i));
  step();
  ASSERT_EQ(engine_->begin_step(EngineTime(0), {.max_tokens = 5, .max_drafts = 1}), StepStart::kStarted);
  const StepBatch& batch = executor_.batches.back();
  EXPECT_EQ(batch.num_tokens, 5);
  EXPECT_EQ(batch.shape.draft_passes, 1);
  for (const StepRow& row : batch.rows) EXPECT_LE(row.query_len, 2);
  EXPECT_TRUE(engine_->finish_step().ok());
  finish();
  EXPECT_EQ(engine_->state().stats.tokens_out, 80);
}

TEST_F(SchedulerTest, WhatCannotBeServedIsRefusedWithAReason) {
  settings_.limits.num_blocks = 11;
  settings_.max_queued = 2;
  start();
  const auto error_of = [&](const Request& request) {
    const auto result = engine_->submit(std::make_shared<const Request>(request), EngineTime(0));
    return result.ok() ? "" : result.error().message();
  };
  Request request = request_of(8, 10);
  request.prompt.clear();
  EXPECT_EQ(error_of(request), "the prompt is empty; give at least one token");
  EXPECT_EQ(error_of(request_of(256, 1)),
            "the prompt has 256 tokens and the context holds 256; shorten it or raise max_model_len");
  EXPECT_EQ(error_of(request_of(30, 20)),
            "prompt and output take up to 13 blocks of 4 tokens and the cache has 10; lower max_tokens or give the "
            "cache more memory");
  request = request_of(8, 10);
  request.n = 9;
  EXPECT_EQ(error_of(request), "n is 9 and 8 sequences run at a time; lower it or raise max_num_seqs");
  request.n = 3;
  EXPECT_EQ(error_of(request), "0 sequences wait and max_queued is 2; try again later or raise max_queued");
  request.n = 1;
  request.min_tokens = 11;
  EXPECT_EQ(error_of(request), "min_tokens is 11; it lies between 0 and max_tokens, which is 10");
  engine_->drain();
  EXPECT_EQ(error_of(request_of(8, 1)), "the engine is shutting down and takes no more requests");
}

TEST_F(SchedulerTest, SettingsThatDisagreeAreRefused) {
  const auto error_of = [](const EngineSettings& settings) {
    const auto result = EngineSettings::checked(settings);
    return result.ok() ? "" : result.error().message();
  };
  EXPECT_EQ(error_of(settings_), "");
  EngineSettings wrong = settings_;
  wrong.decode_share = 1;
  EXPECT_EQ(error_of(wrong), "decode_share is 1; it is a share from 0 to below 1");
  wrong = settings_;
  wrong.max_steps_in_flight = 3;
  EXPECT_EQ(error_of(wrong), "max_steps_in_flight is 3; it is 1 (steps strictly in turn) or 2 (planning overlaps)");
  wrong = settings_;
  wrong.limits.max_blocks_per_request = 63;
  EXPECT_EQ(error_of(wrong), "max_blocks_per_request is 63; set it to at least 64");
  wrong = settings_;
  wrong.limits.max_tokens = 23;
  EXPECT_NE(error_of(wrong).find("max_tokens is 23"), std::string::npos);
  wrong = settings_;
  wrong.max_queued = INT32_MAX;
  EXPECT_EQ(error_of(wrong), "max_queued is 2147483647; set it to at most 1000000");
}

// Drafts that pay for few rows, but not for eight.
StepCost cost_for_few_rows() {
  return {.step = TokenCost::linear(1, 0.12),
          .draft_layer = TokenCost::linear(0.05, 0.05),
          .draft_head = TokenCost::linear(0, 0.01)};
}

TEST_F(SchedulerTest, TheDrafterCostsNothingWhereDraftsDoNotPay) {
  settings_.adaptive_drafts = true;
  settings_.step_cost = cost_for_few_rows();
  executor_.accepted = 2;
  start();
  for (int32_t i = 0; i < 8; ++i) submit(request_of(20, i < 7 ? 30 : 200, 100 * i));
  // Over a trial's time too.
  while (engine_->state().running.size() + static_cast<size_t>(engine_->state().num_queued) == 8) {
    step();
    EXPECT_FALSE(executor_.batches.back().shape.drafter_runs) << "step " << executor_.batches.size();
    EXPECT_EQ(executor_.batches.back().shape.draft_passes, 0);
  }
  EXPECT_GE(executor_.batches.size(), 30u);
  while (engine_->state().running.size() > 1) step();
  // One is left, and then a newcomer beside it: its prompt fills the drafter's cache from its first token on.
  const RequestId late = submit(request_of(100, 20, 5000));
  auto rows = step();
  EXPECT_FALSE(rows[late].samples);
  EXPECT_TRUE(executor_.batches.back().shape.drafter_runs);
  while (!rows[late].samples) rows = step();
  EXPECT_EQ(rows[late].next_drafts, 2);
  rows = step();
  EXPECT_EQ(rows[late].query_len, 3);
  EXPECT_EQ(rows[late].next_drafts, 2);
}

// A pass for the sake of one row runs over all.
TEST_F(SchedulerTest, OneRowsDraftsMustPayForAll) {
  settings_.adaptive_drafts = true;
  settings_.limits.max_model_len = 4096;
  settings_.limits.max_blocks_per_request = 1024;
  settings_.limits.num_blocks = 8 * 1024 + 1;
  settings_.step_cost = {.step = TokenCost::linear(1, 0.01),
                         .draft_layer = TokenCost::linear(0.05, 0.03),
                         .draft_head = TokenCost::linear(0, 0)};
  start();
  for (int32_t i = 0; i < 8; ++i) submit(request_of(4, 4000, 100 * i));
  step();
  const SequenceId easy = engine_->state().running.back();
  executor_.accepted_of[easy] = 2;
  for (int32_t i = 0; i < 60; ++i) step();
  // By itself the easy one would go on: for one in eight, 1.25 times as long a step is too much.
  std::vector<double> times(3);
  draft_times(StepTimes(settings_.step_cost), 8, times);
  ASSERT_EQ(best_draft_length(engine_->state().at(easy).acceptance.rate(kUnknownAcceptance), times), 2);
  EXPECT_EQ(executor_.batches.back().shape.draft_passes, 0);
  EXPECT_FALSE(executor_.batches.back().shape.drafter_runs);
  // All are easy now: a trial finds out.
  executor_.accepted_of.clear();
  executor_.accepted = 2;
  for (int32_t i = 61; i < 3 * DraftControl::kTrialInterval; ++i) step();
  EXPECT_EQ(executor_.batches.back().shape.draft_passes, 2);
}

// Warm-up and trial after 256 steps without drafts, and after twice as many each time that it was in vain.
TEST_F(SchedulerTest, DraftsAreTriedNowAndThen) {
  settings_.adaptive_drafts = true;
  settings_.limits.max_model_len = 4096;
  settings_.limits.max_blocks_per_request = 1024;
  settings_.limits.num_blocks = 1025;
  start();
  submit(request_of(4, 4000));
  std::vector<int32_t> rests;  // steps without the drafter between those with it
  int32_t rest = 0;
  int32_t with_drafter = 0;
  int32_t drafted = 0;
  for (int32_t i = 0; i < 900; ++i) {
    step();
    const StepBatch& batch = executor_.batches.back();
    EXPECT_LE(batch.shape.draft_passes, i < 40 ? settings_.max_drafts() : 1) << "step " << i;
    if (!batch.shape.drafter_runs) {
      ++rest;
      continue;
    }
    if (rest > 0) rests.push_back(std::exchange(rest, 0));
    if (rests.empty()) continue;  // drafts were not wrong for long enough
    ++with_drafter;
    drafted += batch.shape.draft_passes;
  }
  EXPECT_EQ(rests, (std::vector<int32_t>{DraftControl::kTrialInterval, 2 * DraftControl::kTrialInterval}));
  EXPECT_EQ(with_drafter, 2 * (DraftControl::kWarmUpSteps + DraftControl::kTrialSteps));
  EXPECT_EQ(drafted, 2 * DraftControl::kTrialSteps);
}

}  // namespace
}  // namespace lantern
