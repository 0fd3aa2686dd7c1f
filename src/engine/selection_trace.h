// Which tokens of the context sparse attention read for tokens of an output, in one layer of the model, on the way from
// the step to who asked for it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace lantern {

// Tokens [begin, end) of the context.
struct SelectedRun {
  int32_t begin = 0;
  int32_t end = 0;
  friend bool operator==(const SelectedRun&, const SelectedRun&) = default;
};

// What was read for each of some tokens of an output: the choice was made by the token before it, which is the last of
// the context that it could read.
struct SelectionTrace {
  static constexpr int32_t kNoRoom = -1;

  std::vector<int32_t> num_runs = {};  // of each token; kNoRoom where its step could keep no more
  std::vector<SelectedRun> runs = {};  // of all of them in order; ascending, and none touches the next

  bool empty() const { return num_runs.empty(); }
  size_t size() const { return num_runs.size(); }
  // `positions` ascend.
  void add(std::span<const int32_t> positions);
  void add_without_room(size_t count) { num_runs.resize(num_runs.size() + count, kNoRoom); }
  void append(const SelectionTrace& more);
  friend bool operator==(const SelectionTrace&, const SelectionTrace&) = default;
};

}  // namespace lantern
