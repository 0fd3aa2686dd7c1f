#include "engine/cost_by_runs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

namespace lantern {
namespace {

// Runs that take what a list says, by size, the last one again and again.
class Runs {
 public:
  explicit Runs(std::map<int32_t, std::vector<double>> seconds) : seconds_(std::move(seconds)) {}
  TokenCost measure(int32_t most_tokens) {
    return cost_by_runs(most_tokens, [&](int32_t tokens) {
      const std::vector<double>& of_size = seconds_.at(tokens);
      return of_size[std::min(static_cast<size_t>(counts_[tokens]++), of_size.size() - 1)];
    });
  }
  int32_t count(int32_t tokens) { return counts_[tokens]; }

 private:
  std::map<int32_t, std::vector<double>> seconds_;
  std::map<int32_t, int32_t> counts_;
};

TEST(CostByRuns, IsTheShortestRunOfEachSize) {
  Runs runs({{1, {0.5, 0.009, 0.003, 0.002}}, {2, {0.08, 0.004}}, {4, {0.09, 0.09, 0.006}}});
  const TokenCost cost = runs.measure(7);
  EXPECT_EQ(cost.at(1), 0.002);
  EXPECT_EQ(cost.at(2), 0.004);
  EXPECT_EQ(cost.at(4), 0.006);
  EXPECT_EQ(runs.count(8), 0) << "more tokens than there can be";
  EXPECT_LE(runs.count(1), 11);
}

// It reads weights that were never read before. However long it takes, costs are those of the other runs.
TEST(CostByRuns, TheFirstRunOfAllCountsForNothing) {
  for (const double first : {0.001, 0.019, 0.021, 0.05, 0.099, 0.101, 3.0}) {
    Runs runs({{1, {first, 0.015}}, {2, {0.016}}, {4, {0.020}}, {8, {0.030}}});
    const TokenCost cost = runs.measure(8);
    EXPECT_EQ(cost.at(1), 0.015) << first;
    EXPECT_EQ(cost.at(8), 0.030) << first;
  }
}

TEST(CostByRuns, EndsWithASizeThatTakesLong) {
  Runs runs({{1, {0.5, 0.2}}, {2, {0.25}}});
  const TokenCost cost = runs.measure(64);
  EXPECT_EQ(cost.at(1), 0.2);
  EXPECT_EQ(cost.at(2), 0.25);
  EXPECT_DOUBLE_EQ(cost.at(4), 0.35);
  EXPECT_EQ(runs.count(1), 2);
  EXPECT_EQ(runs.count(2), 1);
}

}  // namespace
}  // namespace lantern
