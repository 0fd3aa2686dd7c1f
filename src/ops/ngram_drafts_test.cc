#include "ops/ngram_drafts.h"

#include <gtest/gtest.h>

#include "ops/sampler_test_support.h"

namespace lantern {
namespace {

struct Options {
  int32_t wanted = 4;
  int32_t min_ngram = 1;
  int32_t max_ngram = 3;
  int32_t max_model_len = 256;
};

Tokens drafts_after(const Tokens& history, const Options& options = {}) {
  TestSlots slots(1, 1000, options.max_model_len, 5);
  slots.set(0, {.prompt = history});
  const TestStep step({{0, 1}});
  const Tokens wanted{options.wanted};
  HostOps ops;
  ngram_drafts(ops.stream, {.slots = slots.view(),
                            .requests = step.requests(),
                            .wanted = fixed(wanted),
                            .draft_tokens = fixed(slots.draft_tokens()),
                            .num_drafts = fixed(slots.num_drafts()),
                            .min_ngram = options.min_ngram,
                            .max_ngram = options.max_ngram});
  return slots.drafts(0);
}

// By definition: lengths from the longest, places from the latest.
Tokens reference(const Tokens& history, const Options& options) {
  const auto size = static_cast<int32_t>(history.size());
  const int32_t count = std::min({options.wanted, 5, options.max_model_len - size - 1});
  for (int32_t n = options.max_ngram; n >= options.min_ngram; --n) {
    for (int32_t begin = size - n - 1; begin >= 0; --begin) {
      if (!std::equal(history.end() - n, history.end(), history.begin() + begin)) continue;
      Tokens text = history;
      Tokens drafts;
      for (int32_t i = 0; i < count; ++i) {
        drafts.push_back(text[static_cast<size_t>(begin + n + i)]);
        text.push_back(drafts.back());
      }
      return drafts;
    }
  }
  return {};
}

TEST(NgramDrafts, FollowTheLatestPlaceOfTheLongestMatch) {
  EXPECT_EQ(drafts_after({1, 2, 3, 4, 9, 2, 3, 5, 6, 7, 8, 1, 2, 3}), (Tokens{4, 9, 2, 3})) << "three tokens match";
  EXPECT_EQ(drafts_after({1, 2, 3, 4, 9, 2, 3, 5, 6, 7, 8, 0, 2, 3}), (Tokens{5, 6, 7, 8})) << "the later of two";
  EXPECT_EQ(drafts_after({1, 2, 3}), (Tokens{}));
  EXPECT_EQ(drafts_after({5, 1, 5}), (Tokens{1, 5, 1, 5})) << "goes on with itself";
  EXPECT_EQ(drafts_after({7, 7}), (Tokens{7, 7, 7, 7}));
  EXPECT_EQ(drafts_after({7}), (Tokens{}));
}

TEST(NgramDrafts, KeepToTheirBounds) {
  const Tokens history{1, 2, 3, 1, 2};
  EXPECT_EQ(drafts_after(history, {.wanted = 0}), (Tokens{}));
  EXPECT_EQ(drafts_after(history, {.wanted = 2}), (Tokens{3, 1}));
  EXPECT_EQ(drafts_after(history, {.wanted = 100}), (Tokens{3, 1, 2, 3, 1})) << "what a slot holds";
  EXPECT_EQ(drafts_after(history, {.max_model_len = 8}), (Tokens{3, 1})) << "and a sample after them";
  EXPECT_EQ(drafts_after(history, {.max_model_len = 5}), (Tokens{}));
  EXPECT_EQ(drafts_after({3, 1, 4, 1}, {.min_ngram = 2}), (Tokens{}));
  EXPECT_EQ(drafts_after({3, 1, 4, 3, 1}, {.min_ngram = 2}), (Tokens{4, 3, 1, 4}));
}

TEST(NgramDrafts, EqualTheDefinitionOnRandomTexts) {
  std::mt19937 random(5);
  const auto below = [&](int32_t bound) { return std::uniform_int_distribution<int32_t>(0, bound - 1)(random); };
  int matched = 0;
  for (int i = 0; i < 3000; ++i) {
    Tokens history(static_cast<size_t>(1 + below(60)));
    const int32_t symbols = 2 + below(12);
    for (int32_t& token : history) token = below(symbols);
    Options options{.wanted = below(6), .min_ngram = 1 + below(3)};
    options.max_ngram = options.min_ngram + below(3);
    const Tokens expected = reference(history, options);
    EXPECT_EQ(drafts_after(history, options), expected) << i;
    matched += static_cast<int>(!expected.empty());
  }
  EXPECT_GT(matched, 500);
  EXPECT_LT(matched, 2900);
}

TEST(NgramDrafts, LeaveRequestsWithoutRowsAndPaddingAlone) {
  TestSlots slots(3, 10, 16, 2);
  for (int32_t slot = 0; slot < 3; ++slot) slots.set(slot, {.prompt = {1, 2, 1}, .drafts = {9}});
  const TestStep step({{2, 1}, {0, 0}}, 1);
  const Tokens wanted{2, 2, 2};
  HostOps ops(2);
  ngram_drafts(ops.stream, {.slots = slots.view(),
                            .requests = step.requests(),
                            .wanted = fixed(wanted),
                            .draft_tokens = fixed(slots.draft_tokens()),
                            .num_drafts = fixed(slots.num_drafts())});
  EXPECT_EQ(slots.drafts(0), (Tokens{9}));
  EXPECT_EQ(slots.drafts(1), (Tokens{9}));
  EXPECT_EQ(slots.drafts(2), (Tokens{2, 1}));
}

}  // namespace
}  // namespace lantern
