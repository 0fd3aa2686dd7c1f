#include "server/openai_selections.h"

#include <algorithm>

namespace lantern {

ToldSelections::ToldSelections(const OpenAiRequest& request) {
  int64_t choices = 0;
  for (const EngineRequest& prompt : request.prompts) choices += prompt.request.n;
  runs_left_ = kMostRuns / std::max<int64_t>(choices, 1);
}

void ToldSelections::add(const SelectionTrace& more) {
  auto run = more.runs.begin();
  for (const int32_t count : more.num_runs) {
    const auto end = run + std::max(count, 0);
    runs_left_ -= end - run;
    if (count == SelectionTrace::kNoRoom || runs_left_ < 0) {
      trace_.add_without_room(1);
    } else {
      trace_.num_runs.push_back(count);
      trace_.runs.insert(trace_.runs.end(), run, end);
    }
    run = end;
  }
}

}  // namespace lantern
