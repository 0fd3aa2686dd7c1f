#include "server/openai_selections.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "server/openai_parts.h"

namespace lantern {
namespace {

namespace json = boost::json;

OpenAiRequest request_of(int32_t prompts, int32_t n) {
  OpenAiRequest request;
  request.prompts.resize(static_cast<size_t>(prompts));
  for (EngineRequest& prompt : request.prompts) prompt.request.n = n;
  return request;
}

// `count` tokens that read every other of the first 2 * runs.
SelectionTrace scattered(int32_t count, int32_t runs) {
  std::vector<int32_t> positions;
  positions.reserve(static_cast<size_t>(runs));
  for (int32_t i = 0; i < runs; ++i) positions.push_back(2 * i);
  SelectionTrace trace;
  for (int32_t t = 0; t < count; ++t) trace.add(positions);
  return trace;
}

TEST(OpenAiSelections, AreListsOfTokensPassedOverAndRead) {
  SelectionTrace trace;
  trace.add(std::vector<int32_t>{0, 1, 2});
  trace.add_without_room(2);
  trace.add(std::vector<int32_t>{1, 4, 5, 6, 9});
  trace.add({});
  EXPECT_EQ(json::serialize(selections_json(trace)), "[[0,3],null,null,[1,1,2,3,2,1],[]]");
  EXPECT_EQ(json::serialize(selections_json({})), "[]");
}

// An answer stays within some megabytes, whatever is asked for, and what a choice tells does not depend on the others.
TEST(OpenAiSelections, EveryChoiceHasTheSameShareOfABoundedAnswer) {
  constexpr int32_t kRuns = 1000;
  for (const int32_t choices : {1, 6}) {
    const OpenAiRequest request = request_of(choices == 1 ? 1 : 2, choices == 1 ? 1 : 3);
    const auto told = static_cast<size_t>(ToldSelections::kMostRuns / choices / kRuns);
    ToldSelections whole(request);
    whole.add(scattered(600, kRuns));
    ASSERT_EQ(whole.all().size(), 600u);
    for (size_t t = 0; t < 600; ++t)
      EXPECT_EQ(whole.all().num_runs[t], t < told ? kRuns : SelectionTrace::kNoRoom) << t;
    EXPECT_EQ(whole.all().runs.size(), told * kRuns);

    ToldSelections streamed(request);
    SelectionTrace pieces;
    for (int32_t piece = 0; piece < 200; ++piece) {
      streamed.add(scattered(3, kRuns));
      pieces.append(streamed.take());
    }
    EXPECT_EQ(pieces, whole.all());
  }
}

}  // namespace
}  // namespace lantern
