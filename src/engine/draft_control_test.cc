// The phases and the account by themselves; tests/sim/draft_control_test.cc has what they come to.
#include "engine/draft_control.h"

#include <gtest/gtest.h>

namespace lantern {
namespace {

const StepCost kCost{
    .step = TokenCost::linear(1, 0), .draft_layer = TokenCost::linear(0.1, 0), .draft_head = TokenCost::linear(0, 0)};

DraftedStep plain_step(double time) {
  return {.num_decodes = 1, .num_tokens = 1, .rows = 1, .tokens_out = 1, .time = time};
}
DraftedStep drafted_step(int32_t tokens_out, double time) {
  return {.num_decodes = 1,
          .num_tokens = 2,
          .draft_passes = 1,
          .drafter_runs = true,
          .wanted = true,
          .rows = 1,
          .tokens_out = tokens_out,
          .time = time};
}

TEST(DraftControl, WarmUpAndTrialComeAfterStepsWithoutDrafts) {
  DraftControl control(kCost);
  for (int32_t i = 0; i < DraftControl::kTrialInterval; ++i) {
    EXPECT_EQ(control.phase(), DraftPhase::kUsual) << i;
    control.on_submit(1, 0, true);
  }
  for (int32_t i = 0; i < DraftControl::kWarmUpSteps; ++i) {
    EXPECT_EQ(control.phase(), DraftPhase::kWarmUp) << i;
    control.on_submit(1, 0, true);
  }
  for (int32_t i = 0; i < DraftControl::kTrialSteps; ++i) {
    EXPECT_EQ(control.phase(), DraftPhase::kTrial) << i;
    control.on_submit(1, 1, true);
  }
  EXPECT_EQ(control.phase(), DraftPhase::kUsual);
}

TEST(DraftControl, NothingIsTriedThatCannotPayByWhatIsKnown) {
  DraftControl control(kCost);
  for (int32_t i = 0; i < 3 * DraftControl::kTrialInterval; ++i) {
    control.on_submit(1, 0, false);
    EXPECT_EQ(control.phase(), DraftPhase::kUsual);
  }
}

// Costs are known of steps alone, so plain ones come between those with drafts: after 32, 64, ...
TEST(DraftControl, PlainStepsAreLookedAtWhereDraftsPay) {
  DraftControl control(kCost);
  for (int32_t i = 0; i < 100; ++i) {
    control.on_submit(1, 1, true);
    EXPECT_EQ(control.phase(), DraftPhase::kUsual) << "nobody reads a clock";
  }
  for (int32_t i = 0; i < DraftControl::kFirstPlain; ++i) control.on_commit(plain_step(1));
  control.on_commit(drafted_step(2, 1.1));
  for (const int32_t wait : {DraftControl::kPlainInterval, 2 * DraftControl::kPlainInterval}) {
    for (int32_t i = 0; i < wait; ++i) {
      EXPECT_EQ(control.phase(), DraftPhase::kUsual);
      EXPECT_TRUE(control.may_draft());
      control.on_submit(1, 1, true);
    }
    for (int32_t i = 0; i < DraftControl::kPlainSteps; ++i) {
      EXPECT_EQ(control.phase(), DraftPhase::kPlain);
      EXPECT_FALSE(control.may_draft());
      control.on_submit(1, 0, true);
    }
  }
}

// What was measured may be wrong altogether: plain steps first, and then one draft.
TEST(DraftControl, BeginsWithPlainStepsAndOneDraft) {
  DraftControl control(kCost);
  EXPECT_TRUE(control.may_draft()) << "nobody reads a clock";
  EXPECT_GT(control.most_drafts(1), 1000);
  control.expect_times();
  EXPECT_EQ(control.most_drafts(1), 1);
  for (int32_t i = 0; i < DraftControl::kFirstPlain; ++i) {
    EXPECT_FALSE(control.may_draft());
    control.on_submit(1, 0, true);
    control.on_commit(plain_step(1));
  }
  EXPECT_TRUE(control.may_draft());
  control.on_commit(drafted_step(2, 1.1));
  EXPECT_GT(control.most_drafts(1), 1000);
  EXPECT_EQ(control.most_drafts(8), 1) << "of which nothing is known yet";

  // Where prompts come with every step nothing is ever timed.
  DraftControl busy(kCost);
  busy.expect_times();
  int32_t steps = 0;
  for (; !busy.may_draft() && steps < 1000; ++steps) busy.on_submit(8, 0, true);
  EXPECT_LE(steps, 32);
}

TEST(DraftControl, ATrialThatGoesWellGoesOn) {
  DraftControl control(kCost);
  while (control.phase() != DraftPhase::kTrial) control.on_submit(1, 0, true);
  int32_t steps = 0;
  for (; control.phase() == DraftPhase::kTrial && steps < 1000; ++steps) {
    control.record_acceptance(1, 1);
    control.on_submit(1, 1, true);
  }
  EXPECT_EQ(steps, 64);
}

TEST(DraftControl, TheAccountIsInPlainSteps) {
  DraftControl control(kCost);
  EXPECT_DOUBLE_EQ(control.credit(), DraftControl::kFirstCredit);
  control.on_commit(plain_step(1));
  EXPECT_DOUBLE_EQ(control.credit(), DraftControl::kFirstCredit + DraftControl::kAllowance);
  // Two tokens in the time of 1.25 plain steps, then one.
  control.on_commit(drafted_step(2, 1.25));
  EXPECT_NEAR(control.credit(), DraftControl::kFirstCredit + DraftControl::kAllowance + 0.75, 1e-9);
  control.on_commit(drafted_step(1, 1.25));
  EXPECT_NEAR(control.credit(), DraftControl::kFirstCredit + DraftControl::kAllowance + 0.5, 1e-9);
  for (int32_t i = 0; i < 100; ++i) control.on_commit(drafted_step(2, 1.25));
  EXPECT_DOUBLE_EQ(control.credit(), DraftControl::kMostCredit);
  for (int32_t i = 0; i < DraftControl::kFirstPlain; ++i) control.on_commit(plain_step(1));
  // One long pause is no reason to give up what pays.
  control.on_commit(drafted_step(2, 1e6));
  EXPECT_TRUE(control.may_draft());
  EXPECT_GT(control.credit(), DraftControl::kMostCredit - 5);
}

TEST(DraftControl, WithoutCreditNobodyDraftsUntilPlainStepsHaveEarnedSome) {
  DraftControl control(kCost);
  for (int32_t i = 0; i < DraftControl::kFirstPlain; ++i) control.on_commit(plain_step(1));
  EXPECT_TRUE(control.may_draft());
  while (control.credit() >= 0) {
    EXPECT_TRUE(control.may_draft());
    control.on_commit(drafted_step(1, 1.6));
  }
  EXPECT_FALSE(control.may_draft());
  const double missing = DraftControl::kRetryCredit - control.credit();
  int32_t steps = 0;
  for (; control.phase() == DraftPhase::kUsual && steps < 10000; ++steps) {
    EXPECT_FALSE(control.may_draft());
    control.on_submit(1, 0, true);
    control.on_commit(plain_step(1));
  }
  EXPECT_EQ(control.phase(), DraftPhase::kWarmUp);
  EXPECT_GE(steps, missing / DraftControl::kAllowance);
  EXPECT_TRUE(control.may_draft());
}

// A rank runs the passes of another: that is no matter of its own drafts.
TEST(DraftControl, OthersDraftsAreOnNobodysAccount) {
  DraftControl control(kCost);
  const DraftedStep others{
      .num_decodes = 4, .num_tokens = 4, .draft_passes = 2, .rows = 1, .tokens_out = 1, .time = 50};
  control.on_commit(others);
  EXPECT_DOUBLE_EQ(control.credit(), DraftControl::kFirstCredit);
}

}  // namespace
}  // namespace lantern
