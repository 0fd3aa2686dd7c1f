#include "engine/step_times.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace lantern {
namespace {

const StepCost kMeasured{.step = TokenCost::linear(1, 0.1),
                         .draft_layer = TokenCost::linear(0.2, 0),
                         .draft_head = TokenCost::linear(0, 0.01)};

double measured(int32_t decodes, int32_t tokens, int32_t passes) {
  return step_time(kMeasured, decodes, tokens, passes);
}

TEST(StepTimes, AreThoseMeasuredUntilSomethingIsRecorded) {
  const StepTimes times(kMeasured);
  EXPECT_FALSE(times.drafts_recorded(1));
  for (const int32_t decodes : {1, 3, 64}) {
    for (const int32_t k : {0, 1, 4}) {
      EXPECT_EQ(times.at(decodes, decodes * (1 + k), k), measured(decodes, decodes * (1 + k), k));
    }
  }
}

TEST(StepTimes, FollowTheMedianOfTheLastSteps) {
  StepTimes times(kMeasured);
  const double plain = measured(4, 4, 0);
  for (int32_t i = 0; i < StepTimes::kMemory; ++i) times.record(4, 4, 0, 2 * plain);
  EXPECT_DOUBLE_EQ(times.at(4, 4, 0), 2 * plain);
  // A minority of steps that were held up changes nothing, however long they took.
  for (int32_t i = 0; i < StepTimes::kMemory / 2; ++i) times.record(4, 4, 0, 1000 * plain);
  EXPECT_DOUBLE_EQ(times.at(4, 4, 0), 2 * plain);
  for (int32_t i = 0; i < StepTimes::kMemory; ++i) times.record(4, 4, 0, 3 * plain);
  EXPECT_DOUBLE_EQ(times.at(4, 4, 0), 3 * plain);
  // As many rows as the same power of two holds are alike.
  EXPECT_DOUBLE_EQ(times.at(3, 3, 0), 3 * measured(3, 3, 0));
}

TEST(StepTimes, FewStepsCountHalf) {
  StepTimes times(kMeasured);
  const double plain = measured(1, 1, 0);
  times.record(1, 1, 0, 3 * plain);
  EXPECT_DOUBLE_EQ(times.at(1, 1, 0), 2 * plain) << "between what was measured and what was seen";
  EXPECT_EQ(times.num_recorded(1, 0), 1);
}

TEST(StepTimes, TakeTheNearestWhereNothingWasSeen) {
  StepTimes times(kMeasured);
  const auto record = [&](int32_t decodes, int32_t k, double ratio) {
    for (int32_t i = 0; i < 3; ++i)
      times.record(decodes, decodes * (1 + k), k, ratio * measured(decodes, decodes * (1 + k), k));
  };
  const auto ratio = [&](int32_t decodes, int32_t k) {
    return times.at(decodes, decodes * (1 + k), k) / measured(decodes, decodes * (1 + k), k);
  };
  record(8, 0, 2);
  EXPECT_DOUBLE_EQ(ratio(64, 0), 2) << "another number of rows";
  EXPECT_DOUBLE_EQ(ratio(8, 3), 2) << "a slower machine drafts more slowly too";
  record(8, 3, 5);
  EXPECT_DOUBLE_EQ(ratio(8, 3), 5);
  EXPECT_TRUE(times.drafts_recorded(7));
  EXPECT_FALSE(times.drafts_recorded(64));
  EXPECT_DOUBLE_EQ(ratio(8, 1), 5) << "another draft length";
  EXPECT_DOUBLE_EQ(ratio(32, 2), 5) << "and another number of rows";
  EXPECT_DOUBLE_EQ(ratio(8, 0), 2);
  record(64, 0, 3);
  EXPECT_DOUBLE_EQ(ratio(64, 0), 3);
  EXPECT_DOUBLE_EQ(ratio(64, 1), 5 * 3 / 2.0) << "as much dearer than plain steps as for 8";
  EXPECT_DOUBLE_EQ(ratio(16, 0), 2) << "8 is nearer";
  record(8, 1, 4);
  EXPECT_DOUBLE_EQ(ratio(8, 1), 4);
  EXPECT_DOUBLE_EQ(ratio(8, 20), 5) << "long drafts are taken for the longest that were seen";
}

TEST(StepTimes, ANonsensicalTimeIsNoneAtAll) {
  StepTimes times({.step = TokenCost::linear(0, 0)});
  times.record(1, 1, 0, 1);
  EXPECT_EQ(times.num_plain(), 0) << "nothing is known of the measured cost";
  StepTimes other(kMeasured);
  other.record(1, 1, 0, 0);
  other.record(1, 1, 0, -1);
  EXPECT_EQ(other.num_plain(), 0);
}

}  // namespace
}  // namespace lantern
