#include "attention/step_view.h"

#include <gtest/gtest.h>

#include <vector>

#include "attention/test_support.h"

namespace lantern {
namespace {

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
