#include "ops/verify.h"

#include <gtest/gtest.h>

#include <array>

#include "ops/sampler_test_support.h"

namespace lantern {
namespace {

constexpr RowStatus kOk = RowStatus::kOk;
constexpr RowStatus kBad = RowStatus::kNotFinite;

struct Verified {
  Tokens tokens;
  Tokens num_tokens;
  std::vector<RowStatus> status;
};

Verified verify(TestSlots& slots, const TestStep& step, Tokens samples, int32_t max_query_len,
                std::vector<RowStatus> row_status = {}, double synthetic_acceptance = -1) {
  HostOps ops;
  samples.resize(static_cast<size_t>(step.max_rows()), TestSlots::kPoison);
  if (row_status.empty()) row_status.assign(static_cast<size_t>(step.num_rows()), kOk);
  Tokens row_status_words(static_cast<size_t>(step.max_rows()), 99);
  std::ranges::transform(row_status, row_status_words.begin(), [](RowStatus s) { return static_cast<int32_t>(s); });
  const auto requests = static_cast<size_t>(step.max_requests());
  Verified result{Tokens(requests * static_cast<size_t>(max_query_len), -77), Tokens(requests, -77), {}};
  Tokens status(requests, 99);
  verify_drafts(ops.stream, {.slots = slots.view(),
                             .requests = step.requests(),
                             .samples = Fixed<const int32_t>(fixed(samples)),
                             .row_status = Fixed<const int32_t>(fixed(row_status_words)),
                             .tokens = fixed(result.tokens),
                             .num_tokens = fixed(result.num_tokens),
                             .status = fixed(status),
                             .max_query_len = max_query_len,
                             .synthetic_acceptance = synthetic_acceptance});
  for (const int32_t s : status) result.status.push_back(static_cast<RowStatus>(s));
  return result;
}

TEST(VerifyDrafts, TakesTheMatchingDraftsAndTheSampleAfterThem) {
  // Every number of accepted drafts, fewer drafts than rows allow, no drafts, no rows; requests out of slot order.
  TestSlots slots(8, 100, 16, 3);
  const Tokens prompt{50, 51};
  for (int32_t slot = 0; slot < 5; ++slot) slots.set(slot, {.prompt = prompt, .drafts = {1, 2, 3}});
  slots.set(5, {.prompt = prompt, .drafts = {1}});
  slots.set(6, {.prompt = prompt, .output = {60}});
  slots.set(7, {.prompt = prompt});
  const TestStep step({{3, 4}, {0, 4}, {1, 4}, {7, 0}, {2, 4}, {5, 2}, {6, 1}, {4, 2}}, 2);
  const Verified result = verify(slots, step,
                                 {
                                     1,  2,  3, 10,  // slot 3: all
                                     9,  2,  3, 10,  // slot 0: none, though later ones would match
                                     1,  9,  3, 10,  // slot 1: one
                                     1,  2,  9, 10,  // slot 2: two
                                     1,  20,         // slot 5: its only one
                                     30,             // slot 6: no drafts
                                     1,  2,          // slot 4: verifies one of its three drafts
                                 },
                                 4);
  EXPECT_EQ(result.num_tokens, (Tokens{4, 1, 2, 0, 3, 2, 1, 2, 0, 0}));
  EXPECT_EQ(result.tokens, (Tokens{1, 2,  3,  10, 9,  -1, -1, -1, 1, 9, -1, -1, -1, -1, -1, -1, 1,  2,  9,  -1,
                                   1, 20, -1, -1, 30, -1, -1, -1, 1, 2, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1}));
  EXPECT_EQ(result.status, std::vector<RowStatus>(10, kOk));
  EXPECT_EQ(slots.history(3), (Tokens{50, 51, 1, 2, 3, 10}));
  EXPECT_EQ(slots.history(0), (Tokens{50, 51, 9}));
  EXPECT_EQ(slots.history(6), (Tokens{50, 51, 60, 30}));
  EXPECT_EQ(slots.history(7), prompt);
}

TEST(VerifyDrafts, MoreRowsThanDraftsCountAsRejected) {
  TestSlots slots(1, 100, 16, 3);
  slots.set(0, {.prompt = {50}, .drafts = {1}});
  // The poison behind the only draft equals the sample: it must not be taken for a draft.
  const Verified result = verify(slots, TestStep({{0, 4}}), {1, TestSlots::kPoison, TestSlots::kPoison, 3}, 4);
  EXPECT_EQ(result.num_tokens, (Tokens{2}));
  EXPECT_EQ(slots.history(0), (Tokens{50, 1, TestSlots::kPoison}));
}

TEST(VerifyDrafts, ABrokenRowEndsItsRequestAndNoOther) {
  TestSlots slots(4, 100, 16, 2);
  for (int32_t slot = 0; slot < 4; ++slot) slots.set(slot, {.prompt = {50}, .drafts = {1, 2}});
  const Verified result =
      verify(slots, TestStep({{0, 3}, {1, 3}, {2, 3}, {3, 3}}), {1, 2, 3, 1, 2, 3, 9, 2, 3, 1, 2, 3}, 3,
             {kBad, kOk, kOk, kOk, kBad, kOk, kOk, kBad, kOk, kOk, kOk, RowStatus::kNoToken});
  EXPECT_EQ(result.status, (std::vector<RowStatus>{kBad, kBad, kOk, RowStatus::kNoToken}))
      << "a row behind a rejected draft does not count";
  EXPECT_EQ(result.num_tokens, (Tokens{0, 1, 1, 2}));
  EXPECT_EQ(slots.history(1), (Tokens{50, 1}));
  EXPECT_EQ(slots.history(2), (Tokens{50, 9}));
}

TEST(VerifyDrafts, TheHistoryEndsWithTheContext) {
  TestSlots slots(2, 100, 4, 2);
  slots.set(0, {.prompt = {50, 51, 52}, .drafts = {1, 2}});
  slots.set(1, {.prompt = {60}});
  const Verified result = verify(slots, TestStep({{0, 3}}), {1, 2, 3}, 3);
  EXPECT_EQ(result.num_tokens, (Tokens{3}));
  EXPECT_EQ(slots.history(0), (Tokens{50, 51, 52, 1}));
  EXPECT_EQ(slots.history(1), (Tokens{60})) << "the next slot is untouched";
}

TEST(VerifyDrafts, SyntheticAcceptanceTakesDraftsByChanceAlone) {
  constexpr int32_t kSlots = 2000;
  const auto accepted = [](double chance) {
    TestSlots slots(kSlots, 100, 16, 3);
    std::vector<TestStep::Row> requests;
    Tokens samples;
    for (int32_t slot = 0; slot < kSlots; ++slot) {
      slots.set(slot, {.sampling = {.seed = static_cast<uint64_t>(slot)}, .prompt = {50}, .drafts = {1, 2, 3}});
      requests.push_back({slot, 4});
      samples.insert(samples.end(), {9, 2, 9, 9});  // the second would match
    }
    const Verified result = verify(slots, TestStep(requests), samples, 4, {}, chance);
    std::array<int, 4> counts{};
    for (size_t b = 0; b < kSlots; ++b) {
      const auto hits = static_cast<size_t>(result.num_tokens[b] - 1);
      ++counts[hits];
      Tokens expected{1, 2, 3};
      expected.resize(hits);
      expected.push_back(hits == 1 ? 2 : 9);
      expected.resize(4, -1);
      EXPECT_EQ(Tokens(result.tokens.begin() + static_cast<std::ptrdiff_t>(b) * 4,
                       result.tokens.begin() + static_cast<std::ptrdiff_t>(b) * 4 + 4),
                expected);
    }
    return counts;
  };
  EXPECT_EQ(accepted(0), (std::array<int, 4>{kSlots, 0, 0, 0}));
  EXPECT_EQ(accepted(1), (std::array<int, 4>{0, 0, 0, kSlots}));
  const auto some = accepted(0.7);
  // Five standard deviations of a binomial count.
  EXPECT_NEAR(some[0], 0.3 * kSlots, 5 * std::sqrt(kSlots * 0.3 * 0.7));
  EXPECT_NEAR(some[3], 0.343 * kSlots, 5 * std::sqrt(kSlots * 0.343 * 0.657));
}

}  // namespace
}  // namespace lantern
