#include "engine/cost_by_runs.h"

#include <algorithm>
#include <array>

namespace lantern {
namespace {

constexpr double kLongSeconds = 0.1;
constexpr double kSecondsOfOneSize = 0.02;
constexpr int32_t kFewestRuns = 3;
constexpr int32_t kMostRuns = 10;

}  // namespace

TokenCost cost_by_runs(int32_t most_tokens, const std::function<double(int32_t tokens)>& run) {
  (void)run(1);  // reads weights that were never read before
  std::array<double, TokenCost::kSizes> seconds{};
  int32_t count = 0;
  while (count < TokenCost::kSizes && (count == 0 || (1 << count) <= most_tokens)) {
    double best = run(1 << count);
    double total = best;
    for (int32_t runs = 1; best <= kLongSeconds && runs < kMostRuns; ++runs) {
      if (runs >= kFewestRuns && total >= kSecondsOfOneSize) break;
      const double took = run(1 << count);
      best = std::min(best, took);
      total += took;
    }
    seconds[static_cast<size_t>(count++)] = best;
    if (count >= 2 && best > kLongSeconds) break;
  }
  return TokenCost::from_powers(seconds.data(), count);
}

}  // namespace lantern
