#include "engine/draft_policy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace lantern {
namespace {

TEST(AcceptanceStats, FollowsWhatIsAccepted) {
  AcceptanceStats stats;
  for (int i = 0; i < 200; ++i) stats.record(3, 3);
  EXPECT_GT(stats.rate(), 0.97);
  for (int i = 0; i < 200; ++i) stats.record(3, 0);
  EXPECT_LT(stats.rate(), 0.03) << "only the first of three wrong drafts was checked, but it was wrong each time";
  EXPECT_EQ(stats.drafted(), 1200);
  EXPECT_EQ(stats.accepted(), 600);
  // One of two drafts: the first is right, the second wrong. Half of the checks succeed.
  AcceptanceStats half;
  for (int i = 0; i < 500; ++i) half.record(2, 1);
  EXPECT_NEAR(half.rate(), 0.5, 0.02);
}

StepCost linear_cost(double per_token, double draft_pass, double draft_per_row) {
  return {.step = TokenCost::linear(1, per_token),
          .draft_layer = TokenCost::linear(draft_pass, 0),
          .draft_head = TokenCost::linear(0, draft_per_row)};
}

int32_t best_of(double rate, int32_t decodes, int32_t most, const StepCost& cost) {
  std::vector<double> times(static_cast<size_t>(most) + 1);
  draft_times(cost, decodes, times);
  return best_draft_length(rate, times);
}

TEST(DraftPolicy, TakesTheFastestLength) {
  // Against the formula written out: tokens (1 - r^(k+1)) / (1 - r) over the cost of k.
  const StepCost cost = linear_cost(0.01, 0.1, 0.001);
  for (const double rate : {0.0, 0.3, 0.6, 0.9, 0.99}) {
    for (const int32_t decodes : {1, 4, 16, 64, 256}) {
      double best_speed = 0;
      int32_t best = 0;
      for (int32_t k = 0; k <= 5; ++k) {
        const double tokens = (1 - std::pow(rate, k + 1)) / (1 - rate);
        EXPECT_NEAR(expected_tokens(rate, k), tokens, 1e-12);
        const double time = 1 + 0.01 * decodes * (1 + k) + k * (0.1 + 0.001 * decodes);
        if (tokens / time > best_speed * (1 + 1e-9)) {
          best_speed = tokens / time;
          best = k;
        }
      }
      if (best_speed < 1.05 / (1 + 0.01 * decodes)) best = 0;
      EXPECT_EQ(best_of(rate, decodes, 5, cost), best) << rate << " " << decodes;
    }
  }
}

// The first pass runs over all tokens of the step, the others over one for each row.
TEST(DraftPolicy, CountsWhatThePassesRunOver) {
  const StepCost cost{.step = TokenCost::linear(0, 1),
                      .draft_layer = TokenCost::linear(0, 100),
                      .draft_head = TokenCost::linear(0, 10000)};
  EXPECT_DOUBLE_EQ(step_time(cost, 4, 4, 0), 4);
  EXPECT_DOUBLE_EQ(step_time(cost, 4, 8, 1), 8 + 800 + 40000);
  EXPECT_DOUBLE_EQ(step_time(cost, 4, 16, 3), 16 + 1600 + 2 * 400 + 3 * 40000);
}

TEST(DraftPolicy, TurnsItselfDownUnderLoadAndWithoutSuccess) {
  const StepCost cost = linear_cost(0.02, 0.05, 0.002);
  EXPECT_EQ(best_of(0.9, 1, 4, cost), 4);
  EXPECT_EQ(best_of(0.9, 2000, 4, cost), 0);
  EXPECT_EQ(best_of(0.0, 1, 4, cost), 0);
  EXPECT_EQ(best_of(0.9, 1, 0, cost), 0);
}

TEST(DraftPolicy, TriesAgainNowAndThen) {
  uint64_t counts[3] = {};
  DraftPhase before = draft_phase(0);
  for (uint64_t step = 0; step < 4 * kTrialInterval; ++step) {
    const DraftPhase phase = draft_phase(step);
    ++counts[static_cast<size_t>(phase)];
    EXPECT_TRUE(phase != DraftPhase::kTrial || before != DraftPhase::kUsual) << "the drafter did not run before";
    before = phase;
  }
  EXPECT_EQ(counts[static_cast<size_t>(DraftPhase::kWarmUp)], 4 * kWarmUpSteps);
  EXPECT_EQ(counts[static_cast<size_t>(DraftPhase::kTrial)], 4 * kTrialSteps);
  EXPECT_EQ(draft_phase(0), DraftPhase::kUsual);
}

}  // namespace
}  // namespace lantern
