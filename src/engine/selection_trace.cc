#include "engine/selection_trace.h"

namespace lantern {

void SelectionTrace::add(std::span<const int32_t> positions) {
  const size_t before = runs.size();
  for (const int32_t position : positions) {
    if (runs.size() > before && runs.back().end == position) {
      ++runs.back().end;
    } else {
      runs.push_back({position, position + 1});
    }
  }
  num_runs.push_back(static_cast<int32_t>(runs.size() - before));
}

void SelectionTrace::append(const SelectionTrace& more) {
  num_runs.insert(num_runs.end(), more.num_runs.begin(), more.num_runs.end());
  runs.insert(runs.end(), more.runs.begin(), more.runs.end());
}

}  // namespace lantern
