#include "engine/draft_policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace lantern {
namespace {

TEST(AcceptanceStats, FollowsWhatIsAccepted) {
  AcceptanceStats stats;
  for (int i = 0; i < 200; ++i) stats.record(3, 3);
  EXPECT_GT(stats.rate(0), 0.97);
  for (int i = 0; i < 200; ++i) stats.record(3, 0);
  EXPECT_LT(stats.rate(1), 0.03) << "only the first of three wrong drafts was checked, but it was wrong each time";
  EXPECT_EQ(stats.drafted(), 1200);
  EXPECT_EQ(stats.accepted(), 600);
  // One of two drafts: the first is right, the second wrong. Half of the checks succeed.
  AcceptanceStats half;
  for (int i = 0; i < 500; ++i) half.record(2, 1);
  EXPECT_NEAR(half.rate(0.75), 0.5, 0.02);
  // What is usual counts as two checks.
  AcceptanceStats unknown;
  EXPECT_EQ(unknown.rate(0.75), 0.75);
  EXPECT_EQ(unknown.rate(0.1), 0.1);
  unknown.record(2, 2);
  EXPECT_NEAR(unknown.rate(0.5), 0.75, 0.02);
}

StepCost linear_cost(double per_token, double draft_pass, double draft_per_row) {
  return {.step = TokenCost::linear(1, per_token),
          .draft_layer = TokenCost::linear(draft_pass, 0),
          .draft_head = TokenCost::linear(0, draft_per_row)};
}

int32_t best_of(double rate, int32_t decodes, int32_t most, const StepCost& cost) {
  std::vector<double> times(static_cast<size_t>(most) + 1);
  draft_times(StepTimes(cost), decodes, times);
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

// Each number of passes against the sums written out.
TEST(DraftWishes, ThePassesThatPayForAllRowsTogether) {
  const StepCost cost = linear_cost(0.05, 0.3, 0.01);
  const StepTimes times(cost);
  const std::vector<std::pair<double, int32_t>> rows = {{0.95, 4}, {0.9, 4}, {0.6, 2}, {0.5, 1}, {0.1, 0}};
  DraftWishes wishes(4);
  for (int32_t round = 0; round < 2; ++round) {
    wishes.restart();
    for (size_t count = 1; count <= rows.size(); ++count) {
      wishes.add(rows[count - 1].first, rows[count - 1].second);
      int32_t best = 0;
      double best_speed = 0;
      for (int32_t passes = 0; passes <= 4; ++passes) {
        double outputs = 0;
        int32_t tokens = 0;
        for (size_t r = 0; r < count; ++r) {
          const int32_t k = std::min(rows[r].second, passes);
          outputs += (1 - std::pow(rows[r].first, k + 1)) / (1 - rows[r].first);
          tokens += 1 + k;
        }
        const double speed = outputs / step_time(cost, static_cast<int32_t>(count), tokens, passes);
        if (speed > best_speed) {
          best = passes;
          best_speed = passes == 0 ? kWorthwhile * speed : speed;
        }
      }
      EXPECT_EQ(wishes.best_passes(times), best) << count << " rows";
    }
    EXPECT_GT(wishes.best_passes(times), 0);
  }
  EXPECT_EQ(DraftWishes(4).best_passes(times), 0) << "nobody samples";
}

TEST(DraftWishes, OneRowsDraftsAreTooMuchForMany) {
  const StepTimes times(linear_cost(0.02, 0.3, 0.01));
  DraftWishes wishes(4);
  wishes.add(0.95, 4);
  EXPECT_EQ(wishes.best_passes(times), 4);
  for (int32_t i = 0; i < 20; ++i) wishes.add(0.1, 0);
  EXPECT_EQ(wishes.best_passes(times), 0);
}

TEST(DraftPolicy, TurnsItselfDownUnderLoadAndWithoutSuccess) {
  const StepCost cost = linear_cost(0.02, 0.05, 0.002);
  EXPECT_EQ(best_of(0.9, 1, 4, cost), 4);
  EXPECT_EQ(best_of(0.9, 2000, 4, cost), 0);
  EXPECT_EQ(best_of(0.0, 1, 4, cost), 0);
  EXPECT_EQ(best_of(0.9, 1, 0, cost), 0);
}

}  // namespace
}  // namespace lantern
