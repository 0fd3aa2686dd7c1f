#include "attention/step_plan.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "attention/step_view.h"
#include "attention/test_support.h"

namespace lantern {
namespace {

constexpr int32_t kPoison = std::numeric_limits<int32_t>::min() + 12345;

struct Plan {
  std::vector<int32_t> request, context_len, slot;
};

Plan plan(std::vector<int32_t> query_start_loc, std::vector<int32_t> seq_lens, std::vector<int32_t> block_table,
          int32_t stride, int32_t block_size, int32_t bucket_tokens, int32_t bucket_requests) {
  std::vector<int32_t> num_requests = {static_cast<int32_t>(seq_lens.size())};
  std::vector<int32_t> num_tokens = {query_start_loc.back()};
  query_start_loc.resize(static_cast<size_t>(bucket_requests) + 1, kPoison);
  seq_lens.resize(static_cast<size_t>(bucket_requests), kPoison);
  block_table.resize(static_cast<size_t>(bucket_requests * stride), kPoison);
  const auto size = static_cast<size_t>(bucket_tokens);
  Plan out{std::vector<int32_t>(size + 1, kPoison), std::vector<int32_t>(size + 1, kPoison),
           std::vector<int32_t>(size + 1, kPoison)};
  StepPlanParams p;
  p.tokens = bucket_tokens;
  p.requests = bucket_requests;
  p.block_size = block_size;
  p.block_table_stride = stride;
  p.num_requests = test::in(num_requests);
  p.num_tokens = test::in(num_tokens);
  p.query_start_loc = test::in(query_start_loc);
  p.seq_lens = test::in(seq_lens);
  p.block_table = test::in(block_table);
  p.token_request = test::fixed(out.request);
  p.token_context_len = test::fixed(out.context_len);
  p.slot_mapping = test::fixed(out.slot);
  test::Host host(1);
  plan_step(host.stream, p);
  for (std::vector<int32_t>* values : {&out.request, &out.context_len, &out.slot}) {
    EXPECT_EQ(values->back(), kPoison) << "wrote beyond the bucket";
    values->pop_back();
  }
  return out;
}

TEST(StepPlan, DecodesAPrefillAndPadding) {
  // A decode of 2 tokens ending at 66 keys, a decode of 1 at 1 key, a chunk of 3 ending at 5 keys.
  const Plan p = plan({0, 2, 3, 6}, {66, 1, 5}, {7, 9, 3, kPoison, 4, kPoison}, 2, 64, 8, 5);
  EXPECT_EQ(p.request, (std::vector<int32_t>{0, 0, 1, 2, 2, 2, -1, -1}));
  EXPECT_EQ(p.context_len, (std::vector<int32_t>{65, 66, 1, 3, 4, 5, 0, 0}));
  EXPECT_EQ(p.slot, (std::vector<int32_t>{9 * 64, 9 * 64 + 1, 3 * 64, 4 * 64 + 2, 4 * 64 + 3, 4 * 64 + 4, -1, -1}));
}

TEST(StepPlan, LengthsAreClampedAtZero) {
  const Plan p = plan({0, 3}, {1}, {5}, 1, 64, 3, 1);
  EXPECT_EQ(p.request, (std::vector<int32_t>{0, 0, 0}));
  EXPECT_EQ(p.context_len, (std::vector<int32_t>{0, 0, 1}));
  EXPECT_EQ(p.slot, (std::vector<int32_t>{-1, -1, 5 * 64}));
}

TEST(StepPlan, TheNullBlockIsNeverASlot) {
  // The dummy of an idle rank: one request of two tokens whose table says block 0.
  const Plan p = plan({0, 2}, {2}, {0}, 1, 64, 2, 1);
  EXPECT_EQ(p.request, (std::vector<int32_t>{0, 0}));
  EXPECT_EQ(p.context_len, (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(p.slot, (std::vector<int32_t>{-1, -1}));
  // A real request whose second block is missing writes its first block only.
  const Plan q = plan({0, 3}, {17}, {6, 0}, 2, 16, 3, 1);
  EXPECT_EQ(q.slot, (std::vector<int32_t>{6 * 16 + 14, 6 * 16 + 15, -1}));
}

TEST(StepPlan, PaddedRequestsHaveNoTokens) {
  const Plan p = plan({0, 1, 1, 2}, {4, 0, 9}, {2, 0, 3}, 1, 64, 4, 4);
  EXPECT_EQ(p.request, (std::vector<int32_t>{0, 2, -1, -1}));
  EXPECT_EQ(p.context_len, (std::vector<int32_t>{4, 9, 0, 0}));
  EXPECT_EQ(p.slot, (std::vector<int32_t>{2 * 64 + 3, 3 * 64 + 8, -1, -1}));
}

TEST(StepPlan, NothingToDoIsAllPadding) {
  const Plan p = plan({0}, {}, {}, 1, 64, 2, 1);
  EXPECT_EQ(p.request, (std::vector<int32_t>{-1, -1}));
  EXPECT_EQ(p.context_len, (std::vector<int32_t>{0, 0}));
  EXPECT_EQ(p.slot, (std::vector<int32_t>{-1, -1}));
}

TEST(StepView, SliceKeepsTheTokensAndTheSplit) {
  std::vector<int32_t> request = {0, 1, 2, 2, 2};
  std::vector<int32_t> context_len = {5, 6, 1, 2, 3};
  std::vector<int32_t> slot = {10, 11, 12, 13, 14};
  StepView view;
  view.tokens = 5;
  view.decode_tokens = 2;
  view.requests = 3;
  view.token_request = test::in(request);
  view.token_context_len = test::in(context_len);
  view.slot_mapping = test::in(slot);
  const StepView decodes = view.slice(0, 2);
  EXPECT_EQ(decodes.tokens, 2);
  EXPECT_EQ(decodes.decode_tokens, 2);
  const StepView middle = view.slice(1, 4);
  EXPECT_EQ(middle.tokens, 3);
  EXPECT_EQ(middle.decode_tokens, 1);
  EXPECT_EQ(middle.token_request[0], 1);
  EXPECT_EQ(middle.token_context_len[2], 2);
  EXPECT_EQ(middle.slot_mapping[0], 11);
  EXPECT_EQ(view.slice(3, 5).decode_tokens, 0);
  EXPECT_EQ(view.slice(3, 3).tokens, 0);
}

}  // namespace
}  // namespace lantern
