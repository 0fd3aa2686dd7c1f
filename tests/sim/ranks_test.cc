// Ranks in step against fake executors: random episodes, in which every rank has requests, cancels, refusals and
// results of its own, and all must launch the same shapes.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/invariants.h"
#include "simulation.h"

namespace lantern {
namespace {

class RankSimulation {
 public:
  // The same engine on all ranks; requests and executors differ.
  RankSimulation(const SimSettings& settings, int32_t ranks) : settings_(settings) {
    for (int32_t rank = 0; rank < ranks; ++rank) {
      SimSettings own = settings;
      own.executor.seed = settings.executor.seed * 64 + static_cast<uint64_t>(rank);
      ranks_.push_back(std::make_unique<Simulation>(own));
      engines_.push_back(&ranks_.back()->engine());
    }
  }

  // Between steps: what comes from outside, and results that are read early.
  std::optional<std::string> apply(size_t rank, const SimEvent& event) {
    if (event.kind == EventKind::kBegin) return std::nullopt;
    return ranks_[rank]->apply(event);
  }

  // One agreement, and what follows from it on every rank.
  std::optional<std::string> turn() {
    StepWishTable reduced = plan(0);
    for (size_t rank = 1; rank < ranks_.size(); ++rank) {
      const StepWishTable table = plan(rank);
      for (size_t i = 0; i < table.size(); ++i) reduced[i] = std::max(reduced[i], table[i]);
    }
    const StepAgreement agreement = agreement_of(reduced, settings_.engine);
    last_move_ = agreement.move;
    for (const auto& rank : ranks_) {
      switch (agreement.move) {
        case RankMove::kStep: rank->run(agreement.shape); break;
        case RankMove::kAgain: (void)rank->apply({.kind = EventKind::kFinish}); break;
        case RankMove::kSleep:
          if (!rank->engine().idle()) return "F1: a rank sleeps with work";
          break;
        case RankMove::kLeave: return "D4: ranks leave that nobody told to";
      }
      if (auto fault = rank->check()) return fault;
    }
    if (auto fault = compare_shapes(agreement)) return fault;
    return find_disagreement(engines_);
  }

  std::optional<std::string> drain() {
    for (int64_t turns = 0;; ++turns) {
      if (turns > 40'000) return "F1: does not come to an end";
      if (auto fault = turn()) return fault;
      if (last_move_ == RankMove::kSleep) break;
    }
    for (const auto& rank : ranks_) {
      if (auto fault = rank->drain()) return fault;
    }
    return std::nullopt;
  }

  SimTotals totals() const {
    SimTotals totals;
    for (const auto& rank : ranks_) totals.add(rank->totals());
    return totals;
  }
  int64_t steps() const { return steps_; }
  size_t size() const { return ranks_.size(); }

 private:
  StepWishTable plan(size_t rank) { return to_table(ranks_[rank]->plan()); }

  // Read from the executors: not from what the engine says of itself.
  std::optional<std::string> compare_shapes(const StepAgreement& agreement) {
    const std::vector<StepShape> expected = ranks_.front()->take_shapes();
    if (expected.size() != (agreement.move == RankMove::kStep ? 1u : 0u))
      return "D2: rank 0 launched more steps than one";
    for (size_t rank = 1; rank < ranks_.size(); ++rank) {
      if (ranks_[rank]->take_shapes() != expected) return fmt::format("D2: rank {} launched another shape", rank);
    }
    steps_ += static_cast<int64_t>(expected.size());
    return std::nullopt;
  }

  SimSettings settings_;
  std::vector<std::unique_ptr<Simulation>> ranks_;
  std::vector<const EngineCore*> engines_;  // of ranks_
  RankMove last_move_ = RankMove::kSleep;
  int64_t steps_ = 0;
};

std::optional<std::string> run_rank_episodes(uint64_t first_seed, int64_t steps, SimTotals& totals, int64_t& together) {
  for (uint64_t seed = first_seed; together < steps; ++seed) {
    std::mt19937_64 random(seed * 131 + 7);
    const SimSettings settings = random_settings(seed);
    RankSimulation ranks(settings, 1 + static_cast<int32_t>(random() % 4));
    // Some ranks have little to do, or nothing.
    std::vector<double> arrivals;
    arrivals.reserve(ranks.size());
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      arrivals.push_back(settings.arrivals * static_cast<double>(random() % 3));
    }
    std::optional<std::string> fault;
    for (int i = 0; i < 800 && !fault; ++i) {
      for (size_t rank = 0; rank < ranks.size() && !fault; ++rank) {
        for (uint64_t events = random() % 3; events > 0 && !fault; --events) {
          fault = ranks.apply(rank, random_event(random, arrivals[rank]));
        }
      }
      if (!fault) fault = ranks.turn();
    }
    if (!fault) fault = ranks.drain();
    totals.add(ranks.totals());
    together += ranks.steps();
    if (fault) return fmt::format("seed {} with {} ranks: {}", seed, ranks.size(), *fault);
  }
  return std::nullopt;
}

TEST(RankSimulation, AHundredThousandSteps) {
  SimTotals totals;
  int64_t together = 0;
  const auto fault = run_rank_episodes(1, 100'000, totals, together);
  EXPECT_FALSE(fault) << *fault;
  fmt::print(
      "{} steps of all ranks together: {} with rows and {} dummies; {} preemptions, {} drafts accepted, {} "
      "refusals\n",
      together, totals.steps, totals.dummy_steps, totals.preemptions, totals.drafts_accepted, totals.refused_steps);
  const int64_t often = together / 1000;
  EXPECT_GT(totals.dummy_steps, together / 10);
  EXPECT_GT(totals.steps, together);
  EXPECT_GT(totals.preemptions, often);
  EXPECT_GT(totals.drafts_accepted, often);
  EXPECT_GT(totals.refused_steps, often);
  EXPECT_GT(totals.ends_by_reason[static_cast<size_t>(EndReason::kCancelled)], often);
}

// The text of a request does not depend on which ranks there are: checked by Simulation for every token. What remains
// is that adaptive drafts do run, and differ: a rank wants more than another.
TEST(RankSimulation, RanksThatWantDifferentDrafts) {
  SimSettings settings = random_settings(3);
  settings.engine.limits.max_query_len = 4;
  settings.engine.limits.max_requests = 4;
  settings.engine.limits.max_tokens = 32;
  settings.engine.limits.max_model_len = 64;
  settings.engine.limits.max_blocks_per_request = settings.engine.blocks_for(64);
  settings.engine.limits.num_blocks = 4 * settings.engine.limits.max_blocks_per_request + 1;
  settings.engine.adaptive_drafts = true;
  settings.engine.step_cost = {};
  settings.executor.not_finite = 0;
  std::vector<std::unique_ptr<Simulation>> ranks;
  for (const double acceptance : {0.0, 1.0}) {
    settings.executor.acceptance = acceptance;
    ranks.push_back(std::make_unique<Simulation>(settings));
  }
  int64_t differ = 0;
  for (int32_t i = 0; i < 400; ++i) {
    StepWishTable reduced{};
    std::vector<StepShape> wishes;
    for (size_t r = 0; r < ranks.size(); ++r) {
      if (ranks[r]->engine().idle()) {
        Request request;
        request.prompt = {1, 2, static_cast<int32_t>(3 + i % 17)};
        request.max_tokens = 50;
        request.ignore_stop_tokens = true;
        ranks[r]->submit(request);
      }
      const StepWish wish = ranks[r]->plan();
      wishes.push_back(wish.shape);
      const StepWishTable table = to_table(wish);
      for (size_t c = 0; c < table.size(); ++c) reduced[c] = r == 0 ? table[c] : std::max(reduced[c], table[c]);
    }
    const StepAgreement agreement = agreement_of(reduced, settings.engine);
    if (agreement.move != RankMove::kStep) {
      for (const auto& rank : ranks) (void)rank->apply({.kind = EventKind::kFinish});
      continue;
    }
    differ += wishes[0].draft_passes != wishes[1].draft_passes ? 1 : 0;
    EXPECT_EQ(agreement.shape.draft_passes, std::max(wishes[0].draft_passes, wishes[1].draft_passes));
    for (const auto& rank : ranks) {
      rank->run(agreement.shape);
      const auto fault = rank->check();
      ASSERT_FALSE(fault) << *fault;
    }
    EXPECT_EQ(ranks[0]->take_shapes(), ranks[1]->take_shapes());
  }
  EXPECT_GT(differ, 50);
  EXPECT_EQ(ranks[0]->totals().drafts_accepted, 0);
  EXPECT_GT(ranks[1]->totals().drafts_accepted, 100);
  for (const auto& rank : ranks) {
    const auto fault = rank->drain();
    EXPECT_FALSE(fault) << *fault;
  }
}

}  // namespace
}  // namespace lantern
