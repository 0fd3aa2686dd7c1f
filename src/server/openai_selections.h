// Which tokens of its context sparse attention read for each of a choice's tokens, as far as clients are told.
#pragma once

#include <cstdint>
#include <utility>

#include "engine/selection_trace.h"
#include "server/openai_request.h"

namespace lantern {

class ToldSelections {
 public:
  // Runs that an answer may have of all its choices: some megabytes of JSON, in which a token of a long context takes
  // up to some thousand numbers. Each choice has the same share, so that what is told does not depend on the order in
  // which outputs come.
  static constexpr int64_t kMostRuns = int64_t{1} << 19;

  explicit ToldSelections(const OpenAiRequest& request);

  // Tokens behind the choice's share have none, as those for which a step had no room.
  void add(const SelectionTrace& more);
  const SelectionTrace& all() const { return trace_; }
  // What was added since the last time.
  SelectionTrace take() { return std::exchange(trace_, {}); }

 private:
  int64_t runs_left_ = kMostRuns;
  SelectionTrace trace_ = {};
};

}  // namespace lantern
