#include "engine/draft_policy.h"

#include <gtest/gtest.h>

#include <cmath>

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

TEST(DraftPolicy, TakesTheFastestLength) {
  // Against the formula written out: tokens (1 - r^(k+1)) / (1 - r) over the cost of k.
  const StepCost cost{.fixed = 1, .per_token = 0.01, .draft_pass = 0.1, .draft_per_row = 0.001};
  for (const double rate : {0.0, 0.3, 0.6, 0.9, 0.99}) {
    for (const int32_t decodes : {1, 4, 16, 64, 256}) {
      double best_speed = 0;
      int32_t best = 0;
      for (int32_t k = 0; k <= 5; ++k) {
        const double tokens = (1 - std::pow(rate, k + 1)) / (1 - rate);
        const double time = 1 + 0.01 * decodes * (1 + k) + k * (0.1 + 0.001 * decodes);
        if (tokens / time > best_speed * (1 + 1e-9)) {
          best_speed = tokens / time;
          best = k;
        }
      }
      EXPECT_EQ(best_draft_length(rate, decodes, 5, cost), best) << rate << " " << decodes;
    }
  }
}

TEST(DraftPolicy, TurnsItselfDownUnderLoadAndWithoutSuccess) {
  const StepCost cost{.fixed = 1, .per_token = 0.02, .draft_pass = 0.05, .draft_per_row = 0.002};
  EXPECT_EQ(best_draft_length(0.9, 1, 4, cost), 4);
  EXPECT_EQ(best_draft_length(0.9, 2000, 4, cost), 0);
  EXPECT_EQ(best_draft_length(0.0, 1, 4, cost), 0);
  EXPECT_EQ(best_draft_length(0.9, 1, 0, cost), 0);
}

TEST(DraftPolicy, TriesAgainNowAndThen) {
  const StepCost cost;
  AcceptanceStats stats;
  for (int i = 0; i < 100; ++i) stats.record(1, 0);
  ASSERT_EQ(choose_draft_length(stats, 1, 4, cost), 0);
  for (int i = 0; i < kDraftProbeInterval; ++i) stats.record(0, 0);
  EXPECT_EQ(choose_draft_length(stats, 1, 4, cost), 1);
  EXPECT_EQ(choose_draft_length(stats, 1, 0, cost), 0);
  stats.record(1, 0);
  EXPECT_EQ(choose_draft_length(stats, 1, 4, cost), 0);
}

}  // namespace
}  // namespace lantern
