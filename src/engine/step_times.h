// What steps of decodes take by the number of their rows, tokens and drafts: the costs that were measured at the start,
// corrected by what like steps have taken since. A measurement may be of a bad moment, and what a machine gives changes
// while it serves; medians of the steps themselves are of now.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "engine/step_cost.h"

namespace lantern {

class StepTimes {
 public:
  explicit StepTimes(const StepCost& measured) : measured_(measured) {}

  // A step that ran `num_tokens` tokens of `num_decodes` rows, and the drafter `draft_passes` times, took `time`, in
  // the unit of the measured costs. For steps like those before and after them: a step that verifies drafts and makes
  // none, or the reverse, tells of no draft length.
  void record(int32_t num_decodes, int32_t num_tokens, int32_t draft_passes, double time);

  // Expected time of such a step: step_time() times the median of what the last such steps took beside it. Where there
  // were none: times that of the nearest draft length; then that of the nearest number of rows, where steps with drafts
  // are taken to be as much dearer than plain ones as there; then that of steps without drafts.
  double at(int32_t num_decodes, int32_t num_tokens, int32_t draft_passes) const;

  // Steps recorded for such numbers of rows, up to kMemory: those that at() goes by itself.
  int32_t num_recorded(int32_t num_decodes, int32_t draft_passes) const;
  bool drafts_recorded(int32_t num_decodes) const { return nearest_drafts(size_class(num_decodes), 1) != nullptr; }
  // Of any number of rows.
  int64_t num_plain() const { return num_plain_; }

  static constexpr int32_t kMemory = 9;
  // Numbers of rows between the same powers of two are alike.
  static constexpr int32_t kSizes = TokenCost::kSizes;
  static int32_t size_class(int32_t num_decodes);

 private:
  static constexpr int32_t kMostPasses = 8;  // longer drafts are taken for such
  // Below so many the measured cost has a voice.
  static constexpr int32_t kEnough = 3;

  struct Cell {
    std::array<double, kMemory> ratios{};  // to the measured cost; a ring
    int32_t count = 0;
    int32_t next = 0;
    double ratio = 1;  // that at() takes; set where count > 0
  };

  static int32_t pass_class(int32_t draft_passes) { return draft_passes < kMostPasses ? draft_passes : kMostPasses; }
  const Cell& cell(int32_t size, int32_t passes) const {
    return cells_[static_cast<size_t>(size)][static_cast<size_t>(passes)];
  }
  // The ratio for a cell, or of the nearest that has one.
  double ratio_of(int32_t size, int32_t passes) const;
  // Of the nearest draft length of that size; null where there is none.
  const Cell* nearest_drafts(int32_t size, int32_t passes) const;

  StepCost measured_;
  std::array<std::array<Cell, kMostPasses + 1>, kSizes> cells_{};  // by size class and passes
  int64_t num_plain_ = 0;                                          // steps without drafts that were recorded
  bool any_recorded_ = false;
};

}  // namespace lantern
