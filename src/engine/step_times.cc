#include "engine/step_times.h"

#include <algorithm>
#include <bit>

namespace lantern {
namespace {

// A clock's grain and a measured zero give no ratio beyond this.
constexpr double kMostRatio = 1e6;

}  // namespace

int32_t StepTimes::size_class(int32_t num_decodes) {
  const auto bits = static_cast<int32_t>(std::bit_width(static_cast<uint32_t>(std::max(num_decodes, 1) - 1)));
  return std::min(bits, kSizes - 1);
}

void StepTimes::record(int32_t num_decodes, int32_t num_tokens, int32_t draft_passes, double time) {
  const double measured = step_time(measured_, num_decodes, num_tokens, draft_passes);
  if (!(measured > 0) || !(time > 0)) return;
  const int32_t size = size_class(num_decodes);
  const int32_t passes = pass_class(draft_passes);
  const double expected = ratio_of(size, passes);
  Cell& cell = cells_[static_cast<size_t>(size)][static_cast<size_t>(passes)];
  cell.ratios[static_cast<size_t>(cell.next)] = std::min(time / measured, kMostRatio);
  cell.next = (cell.next + 1) % kMemory;
  cell.count = std::min(cell.count + 1, kMemory);
  any_recorded_ = true;
  if (draft_passes == 0) ++num_plain_;

  std::array<double, kMemory> sorted = cell.ratios;
  int32_t count = cell.count;
  if (count < kEnough) sorted[static_cast<size_t>(count++)] = expected;
  std::sort(sorted.begin(), sorted.begin() + count);
  const auto upper = static_cast<size_t>(count / 2);
  cell.ratio = count % 2 == 1 ? sorted[upper] : (sorted[upper - 1] + sorted[upper]) / 2;
}

const StepTimes::Cell* StepTimes::nearest_drafts(int32_t size, int32_t passes) const {
  for (int32_t distance = 0; distance < kMostPasses; ++distance) {
    for (const int32_t other : {passes - distance, passes + distance}) {
      if (other < 1 || other > kMostPasses) continue;
      if (const Cell& found = cell(size, other); found.count > 0) return &found;
    }
  }
  return nullptr;
}

double StepTimes::ratio_of(int32_t size, int32_t passes) const {
  if (const Cell& own = cell(size, passes); own.count > 0) return own.ratio;
  for (int32_t distance = 0; distance < kSizes; ++distance) {
    for (const int32_t other : {size - distance, size + distance}) {
      if (other < 0 || other >= kSizes) continue;
      const Cell* found = passes > 0 ? nearest_drafts(other, passes) : &cell(other, 0);
      if (found == nullptr || found->count == 0) continue;
      // Drafts of another size tell what drafts take beside plain steps. Their time by itself would be held against
      // plain times that are known better here, and an error of the measurement taken for drafts that pay.
      return passes > 0 ? found->ratio / ratio_of(other, 0) * ratio_of(size, 0) : found->ratio;
    }
  }
  // What is slower than it was measured is so with drafts too.
  return passes > 0 ? ratio_of(size, 0) : 1;
}

double StepTimes::at(int32_t num_decodes, int32_t num_tokens, int32_t draft_passes) const {
  const double measured = step_time(measured_, num_decodes, num_tokens, draft_passes);
  return any_recorded_ ? measured * ratio_of(size_class(num_decodes), pass_class(draft_passes)) : measured;
}

int32_t StepTimes::num_recorded(int32_t num_decodes, int32_t draft_passes) const {
  return cell(size_class(num_decodes), pass_class(draft_passes)).count;
}

}  // namespace lantern
