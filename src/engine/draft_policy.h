// How many drafts a sequence asks for: pure functions of what was accepted so far and of the load.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/step_times.h"

namespace lantern {

// What drafts have come to. Fades: `memory` is how many checks it is long, so that a sequence's change of subject shows
// within some tens of drafts.
class AcceptanceStats {
 public:
  AcceptanceStats() : AcceptanceStats(32) {}
  explicit AcceptanceStats(double memory) : keep_(1 - 1 / memory) {}

  // `accepted` of `drafted` drafts of a step were right. Drafts behind the first wrong one say nothing.
  void record(int32_t drafted, int32_t accepted);

  // Chance that a draft is accepted, given that all before it were: what was seen, and `usual`, which counts as two
  // checks that fade like others.
  double rate(double usual) const { return (accepted_ + unknown_ * usual) / (checked_ + unknown_); }
  int64_t drafted() const { return total_drafted_; }
  int64_t accepted() const { return total_accepted_; }

 private:
  double keep_;  // weight that a check keeps when the next is made
  double accepted_ = 0;
  double checked_ = 0;
  double unknown_ = 2;
  int64_t total_drafted_ = 0;
  int64_t total_accepted_ = 0;
};

// Share of drafts that is taken to be accepted as long as none was checked at all.
constexpr double kUnknownAcceptance = 0.75;

// times[k]: of a step when each of `num_decodes` rows has k drafts.
void draft_times(const StepTimes& step_times, int32_t num_decodes, std::span<double> times);

// Drafts are made where they bring this much more: measured costs are not exact, and where they err nothing is lost.
constexpr double kWorthwhile = 1.05;

// The draft length with the most expected tokens per unit of time, in 0 .. times.size() - 1: the shortest of equals,
// and 0 unless the best is worthwhile.
int32_t best_draft_length(double acceptance_rate, std::span<const double> times);

// What the rows of a step want drafted: the passes of the drafter that some want run over all, so what they gain
// together must be worth it.
class DraftWishes {
 public:
  // Rows want `max_drafts` at most.
  explicit DraftWishes(int32_t max_drafts);
  void restart();
  // One sampling row more.
  void add(double acceptance_rate, int32_t drafts);

  // The passes with the most expected tokens of all rows per unit of time, where each row gets as many drafts as it
  // wants and there are passes: the fewest of equals, and 0 unless the best is worthwhile.
  int32_t best_passes(const StepTimes& step_times) const;

 private:
  int32_t num_rows_ = 0;
  std::vector<double> gains_;  // [max_drafts + 1]: expected tokens of the k-th drafts of all rows
  std::vector<int32_t> rows_;  // [max_drafts + 1]: that have a k-th draft
};

}  // namespace lantern
