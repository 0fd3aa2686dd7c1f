#include "server/admission.h"

#include <gtest/gtest.h>

#include <vector>

namespace lantern {
namespace {

using Time = AdmissionControl::Time;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Time kStart{};

TEST(AdmissionTest, RequestsWaitUntilTheyHaveStarted) {
  const auto control = std::make_shared<AdmissionControl>(AdmissionLimits{.max_requests = 2});
  AdmissionControl::Refusal refusal;
  auto first = control->admit(100, kStart, refusal);
  auto second = control->admit(100, kStart, refusal);
  ASSERT_TRUE(first && second);
  EXPECT_FALSE(control->admit(100, kStart, refusal));
  EXPECT_EQ(refusal.reason, "reqs");
  EXPECT_EQ(refusal.waiting, 2);
  first->started(kStart);
  auto third = control->admit(100, kStart, refusal);
  EXPECT_TRUE(third) << "one that runs waits no longer";
  EXPECT_EQ(control->waiting(), 2);
  EXPECT_EQ(control->live(), 3);
  second.reset();
  EXPECT_EQ(control->waiting(), 1) << "one that ended unstarted does not wait either";
  first.reset();
  third.reset();
  EXPECT_EQ(control->waiting(), 0);
  EXPECT_EQ(control->live(), 0);
}

TEST(AdmissionTest, TokensAreGuessedFromBytesAndThenKnown) {
  const auto control = std::make_shared<AdmissionControl>(AdmissionLimits{.max_requests = 100, .max_tokens = 1000});
  AdmissionControl::Refusal refusal;
  auto first = control->admit(3200, kStart, refusal);  // 800 by 4 bytes a token
  ASSERT_TRUE(first);
  EXPECT_FALSE(control->admit(1200, kStart, refusal));
  EXPECT_EQ(refusal.reason, "tokens");
  first->set_tokens(100);
  EXPECT_TRUE(control->admit(1200, kStart, refusal)) << "it was shorter than it looked";
  // One that could never come in is let in when nothing waits.
  first.reset();
  EXPECT_TRUE(control->admit(1'000'000, kStart, refusal));
}

TEST(AdmissionTest, WhenToComeAgainFollowsTheRateOfStarts) {
  const auto control = std::make_shared<AdmissionControl>(AdmissionLimits{.max_requests = 40});
  AdmissionControl::Refusal refusal;
  std::vector<std::unique_ptr<AdmissionControl::Ticket>> tickets;
  const auto fill = [&](Time now) {
    while (auto ticket = control->admit(10, now, refusal)) tickets.push_back(std::move(ticket));
  };
  fill(kStart);
  EXPECT_EQ(refusal.retry_after_seconds, 5) << "nothing has started yet";
  // Two a second: half of the 40 that wait are gone in 10 s.
  for (int i = 0; i < 20; ++i) tickets[static_cast<size_t>(i)]->started(kStart + milliseconds(500 * i));
  fill(kStart + seconds(10));
  EXPECT_EQ(refusal.retry_after_seconds, 10);
  // A hundred a second.
  for (size_t i = 20; i < 60; ++i) tickets[i]->started(kStart + seconds(50) + milliseconds(10 * static_cast<int>(i)));
  fill(kStart + seconds(51));
  EXPECT_LE(refusal.retry_after_seconds, 2);
  // Long ago: the rate of then says nothing.
  fill(kStart + seconds(500));
  EXPECT_FALSE(control->admit(10, kStart + seconds(500), refusal));
  EXPECT_EQ(refusal.retry_after_seconds, 5);
}

}  // namespace
}  // namespace lantern
