// A million steps of random episodes: arrivals, cancels in every phase, stops, deadlines, refused steps, preemption,
// drafts, forks, small pools. See simulation.h.
#include <cstdlib>

#include <gtest/gtest.h>

#include "simulation.h"

namespace lantern {
namespace {

void print(const SimTotals& totals) {
  fmt::print(
      "{} steps, {} decode and {} prefill rows; ends: {} stop, {} length, {} cancelled, {} deadline, {} failed; {} "
      "preemptions, {} admissions with all blocks, {} cached tokens, {} drafts accepted, {} forks, {} blocks copied, "
      "{} "
      "overtakes, {} refused steps, {} dropped results; longest stay {} steps\n",
      totals.steps, totals.decode_rows, totals.prefill_rows, totals.ends_by_reason[1], totals.ends_by_reason[2],
      totals.ends_by_reason[3], totals.ends_by_reason[4], totals.ends_by_reason[5], totals.preemptions,
      totals.fully_reserved, totals.cached_tokens, totals.drafts_accepted, totals.forks, totals.blocks_copied,
      totals.overtakes, totals.refused_steps, totals.rows_with_results_dropped, totals.longest_wait);
}

// Everything that is meant to be exercised was, and often.
void expect_covered(const SimTotals& totals) {
  const int64_t often = totals.steps / 10000;
  for (int reason = 1; reason <= 5; ++reason)
    EXPECT_GT(totals.ends_by_reason[reason], often) << "end reason " << reason;
  EXPECT_GT(totals.preemptions, often);
  EXPECT_GT(totals.fully_reserved, often);
  EXPECT_GT(totals.cached_tokens, often);
  EXPECT_GT(totals.drafts_accepted, often);
  EXPECT_GT(totals.forks, often);
  EXPECT_GT(totals.blocks_copied, often);
  EXPECT_GT(totals.overtakes, often);
  EXPECT_GT(totals.refused_steps, often);
  EXPECT_GT(totals.rows_with_results_dropped, often);
  EXPECT_GT(totals.constrained, often);
  EXPECT_GT(totals.prompt_tokens_scored, often);
  EXPECT_GT(totals.tokens_traced, often);
  EXPECT_GT(totals.tokens_not_traced, 0);
  EXPECT_GT(totals.constraint_failures, often / 4);
}

TEST(Simulation, AMillionSteps) {
  SimTotals totals;
  const auto fault = run_episodes(1, 1'000'000, totals);
  print(totals);
  EXPECT_FALSE(fault) << *fault;
  expect_covered(totals);
}

// LANTERN_SIM_SEED and LANTERN_SIM_STEPS choose others.
TEST(SimulationSlow, TwentyMillionSteps) {
  const char* seed = std::getenv("LANTERN_SIM_SEED");
  const char* steps = std::getenv("LANTERN_SIM_STEPS");
  SimTotals totals;
  const auto fault = run_episodes(seed != nullptr ? std::strtoull(seed, nullptr, 10) : 1'000'000,
                                  steps != nullptr ? std::strtoll(steps, nullptr, 10) : 20'000'000, totals);
  print(totals);
  EXPECT_FALSE(fault) << *fault;
}

}  // namespace
}  // namespace lantern
