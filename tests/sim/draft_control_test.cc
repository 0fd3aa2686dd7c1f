// What an engine that adapts its drafts takes for the same tokens beside one that never drafts: the real core against
// an executor whose steps take the time that a table says, by a clock of its own.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "engine/engine_core.h"

namespace lantern {
namespace {

// Costs of steps in seconds, and the share of drafts that are right.
struct World {
  StepCost cost;
  double acceptance = 0.5;
};

// A request that begins with this has no draft that is right.
constexpr int32_t kHardPrompt = 9;

// Steps one after another, each as long as its shape says, give or take some noise.
class TimedExecutor final : public Executor {
 public:
  TimedExecutor(const World& world, double noise, uint64_t seed) : world_(world), noise_(noise), random_(seed) {}

  Status submit(const StepBatch& batch) override {
    const StepShape& shape = batch.shape;
    double time = step_time(world_.cost, shape.bucket.requests, shape.bucket.tokens, shape.draft_passes);
    if (shape.draft_passes == 0 && shape.drafter_runs) time += world_.cost.draft_layer.at(shape.bucket.tokens);
    undisturbed_ += time;
    time *= 1 + noise_ * std::uniform_real_distribution<double>(-1, 1)(random_);
    // Now and then the machine does something else.
    if (noise_ > 0 && std::uniform_int_distribution<int32_t>(0, 99)(random_) == 0) time *= 5;
    ended_ = std::max(ended_, now_) + time;
    for (const SlotInit& init : batch.slot_inits) {
      hard_slots_.resize(std::max(hard_slots_.size(), static_cast<size_t>(init.slot) + 1));
      hard_slots_[static_cast<size_t>(init.slot)] = init.sequence->request->prompt.front() == kHardPrompt;
    }
    InFlight& step = in_flight_.emplace_back();
    step.end = ended_;
    for (const StepRow& row : batch.rows) {
      const double acceptance = hard_slots_[static_cast<size_t>(row.slot)] ? 0 : world_.acceptance;
      int32_t right = 0;
      while (right < row.num_drafts() && std::uniform_real_distribution<double>(0, 1)(random_) < acceptance) ++right;
      step.num_tokens.push_back(row.samples ? 1 + right : 0);
    }
    return {};
  }
  bool ready() const override { return !in_flight_.empty(); }
  Status wait(StepResults& results) override {
    const InFlight& step = in_flight_.front();
    now_ = std::max(now_, step.end);
    for (size_t r = 0; r < step.num_tokens.size(); ++r) {
      results.num_tokens[r] = step.num_tokens[r];
      results.status[r] = RowStatus::kOk;
      std::ranges::fill(results.row(static_cast<int32_t>(r)), 7);
    }
    in_flight_.pop_front();
    return {};
  }

  World& world() { return world_; }
  double now() const { return now_; }
  // What all steps took but for noise: what a policy that sees the noise is judged by.
  double undisturbed_seconds() const { return undisturbed_; }

 private:
  struct InFlight {
    std::vector<int32_t> num_tokens;
    double end = 0;
  };
  World world_;
  double noise_;
  std::mt19937_64 random_;
  std::deque<InFlight> in_flight_;
  std::vector<bool> hard_slots_;
  double now_ = 0;
  double ended_ = 0;
  double undisturbed_ = 0;
};

struct Episode {
  int32_t rows = 8;
  int32_t drafts = 3;
  bool adaptive = true;
  StepCost measured;  // at the start
  World world;
  World later;             // from `change_at` tokens on
  int64_t change_at = -1;  // -1: never
  int64_t tokens = 40000;
  int32_t output_len = 300;  // of each request; as one ends the next one comes
  int32_t hard_of_ten = 0;   // requests that are hard, and short
  int32_t steps_in_flight = 2;
  double noise = 0;
  uint64_t seed = 1;
};

// Seconds that it takes.
double serve(const Episode& run) {
  EngineSettings settings;
  settings.limits.block_size = 64;
  settings.limits.max_requests = run.rows;
  settings.limits.max_query_len = 1 + run.drafts;
  settings.limits.max_tokens = std::max(run.rows * (1 + run.drafts), 256);
  settings.limits.max_model_len = 1024;
  settings.limits.max_blocks_per_request = 16;
  settings.limits.num_blocks = 1 + run.rows * 16;
  settings.prefix_caching = false;
  settings.max_logprobs = -1;
  settings.max_steps_in_flight = run.steps_in_flight;
  settings.adaptive_drafts = run.adaptive;
  settings.step_cost = run.measured;
  settings = EngineSettings::checked(settings).value();
  TimedExecutor executor(run.world, run.noise, run.seed);
  EngineCore core(settings, HashKey::from_seed(1), executor, nullptr);
  const auto now = [&] { return EngineTime(static_cast<int64_t>(executor.now() * 1e6)); };
  int32_t number = 0;
  const auto add = [&](int32_t length) {
    const bool hard = number++ * 7 % 10 < run.hard_of_ten;
    auto request = std::make_shared<Request>();
    request->prompt = {hard ? kHardPrompt : 1, 2, 3};
    request->max_tokens = hard ? 12 : length;
    request->ignore_stop_tokens = true;
    ASSERT_TRUE(core.submit(request, now()).ok());
  };
  // Not all at the same place.
  for (int32_t i = 0; i < run.rows; ++i) add(1 + (i + 1) * run.output_len / run.rows);
  bool changed = run.change_at < 0;
  while (core.state().stats.tokens_out < run.tokens) {
    if (!changed && core.state().stats.tokens_out >= run.change_at) {
      executor.world() = run.later;
      changed = true;
    }
    while (core.begin_step(now()) == StepStart::kStarted) {
    }
    EXPECT_TRUE(core.complete_step().ok());
    core.commit_step(now());
    while (core.state().running.size() + static_cast<size_t>(core.state().num_queued) < static_cast<size_t>(run.rows)) {
      add(run.output_len);
    }
  }
  return executor.undisturbed_seconds();
}

double ratio_to_no_drafts(const Episode& run) {
  Episode none = run;
  none.drafts = 0;
  return serve(none) / serve(run);
}

StepCost cost_of(double fixed, double per_token, double layer, double layer_per_token, double head_per_row) {
  return {.step = TokenCost::linear(fixed, per_token),
          .draft_layer = TokenCost::linear(layer, layer_per_token),
          .draft_head = TokenCost::linear(0, head_per_row)};
}

// Steps of 1 to 20 ms at one row, and drafts from next to nothing to several times a step.
StepCost random_cost(std::mt19937_64& random) {
  const auto between = [&](double low, double high) {
    return std::exp(std::uniform_real_distribution<double>(std::log(low), std::log(high))(random));
  };
  const double fixed = between(1e-3, 2e-2);
  return cost_of(fixed, fixed * between(1e-3, 1), fixed * between(1e-3, 1), fixed * between(1e-4, 0.3),
                 fixed * between(1e-4, 0.3));
}

std::string description(const Episode& run) {
  const auto of = [](const StepCost& cost) {
    return fmt::format("step {:.2e} + {:.2e}, layer {:.2e} + {:.2e}, head {:.2e}", cost.step.at(1),
                       cost.step.at(2) - cost.step.at(1), cost.draft_layer.at(1),
                       cost.draft_layer.at(2) - cost.draft_layer.at(1), cost.draft_head.at(1));
  };
  std::string text =
      fmt::format("{} rows, {} drafts, acceptance {:.2f}, output {}, measured {{{}}}, true {{{}}}", run.rows,
                  run.drafts, run.world.acceptance, run.output_len, of(run.measured), of(run.world.cost));
  if (run.change_at >= 0) {
    text +=
        fmt::format(", from token {} on {{{}}} and {:.2f}", run.change_at, of(run.later.cost), run.later.acceptance);
  }
  return text;
}

constexpr double kFloor = 0.97;
constexpr int64_t kSteps = 3000;  // without drafts

Episode random_run(uint64_t seed) {
  std::mt19937_64 random(seed);
  Episode run;
  const std::vector<int32_t> rows = {1, 2, 4, 7, 16, 33, 64};
  run.rows = rows[random() % rows.size()];
  run.drafts = static_cast<int32_t>(1 + random() % 5);
  run.world = {random_cost(random), std::uniform_real_distribution<double>(0, 1)(random)};
  run.measured = run.world.cost;
  run.output_len = static_cast<int32_t>(50 + random() % 500);
  run.steps_in_flight = static_cast<int32_t>(1 + random() % 2);
  run.tokens = kSteps * run.rows;
  run.seed = random();
  return run;
}

void expect_no_loss(const Episode& run, std::vector<double>& ratios) {
  ratios.push_back(ratio_to_no_drafts(run));
  EXPECT_GE(ratios.back(), kFloor) << description(run);
}

void report(const char* what, std::vector<double> ratios) {
  std::ranges::sort(ratios);
  std::printf("%s: %zu runs, least %.3f, median %.3f, most %.3f of the speed without drafts\n", what, ratios.size(),
              ratios.front(), ratios[ratios.size() / 2], ratios.back());
}

TEST(DraftControl, LosesNothingWhereCostsAreKnown) {
  std::vector<double> ratios;
  for (uint64_t seed = 0; seed < 60; ++seed) expect_no_loss(random_run(seed), ratios);
  report("costs known", ratios);
  EXPECT_GT(*std::ranges::max_element(ratios), 1.5) << "drafts never paid";
}

TEST(DraftControl, LosesNothingByAWrongMeasurement) {
  std::vector<double> ratios;
  for (uint64_t seed = 100; seed < 180; ++seed) {
    Episode run = random_run(seed);
    std::mt19937_64 random(seed);
    run.measured = random_cost(random);  // of another machine
    expect_no_loss(run, ratios);
  }
  report("costs measured wrongly", ratios);
  EXPECT_GT(*std::ranges::max_element(ratios), 1.3) << "drafts never paid";
}

TEST(DraftControl, LosesNothingWhenCostsOrTextsChange) {
  std::vector<double> ratios;
  for (uint64_t seed = 200; seed < 260; ++seed) {
    Episode run = random_run(seed);
    std::mt19937_64 random(seed + 1);
    run.change_at = run.tokens / 2;
    run.later = {seed % 2 == 0 ? random_cost(random) : run.world.cost,
                 std::uniform_real_distribution<double>(0, 1)(random)};
    expect_no_loss(run, ratios);
  }
  report("costs or texts change", ratios);
}

TEST(DraftControl, LosesNothingOnANoisyMachine) {
  std::vector<double> ratios;
  for (uint64_t seed = 300; seed < 360; ++seed) {
    Episode run = random_run(seed);
    run.noise = 0.2;
    expect_no_loss(run, ratios);
  }
  report("noise", ratios);
}

// Drafts that seem to pay and do not, by the measurement or by the text: the worst that can happen.
TEST(DraftControl, LosesNothingToTemptation) {
  std::vector<double> ratios;
  for (const int32_t rows : {1, 8, 64}) {
    for (const double acceptance : {0.0, 0.3, 0.6}) {
      for (const double times_dearer : {2.0, 5.0, 20.0}) {
        Episode run;
        run.rows = rows;
        run.tokens = kSteps * rows;
        run.measured = cost_of(0.01, 1e-5, 1e-5, 1e-7, 1e-7);
        run.world = {cost_of(0.01, 1e-5, 0.01 * times_dearer / 3, 1e-7, 1e-7), acceptance};
        expect_no_loss(run, ratios);
      }
    }
  }
  report("temptation", ratios);
}

// What is known of drafts comes from long easy texts, and most that come are short and hard.
TEST(DraftControl, LosesNothingToShortTextsThatAreHarderThanOthers) {
  std::vector<double> ratios;
  for (const int32_t rows : {8, 64}) {
    for (const int32_t hard_of_ten : {5, 8, 9}) {
      for (const double layer : {1e-3, 3e-3, 6e-3}) {
        Episode run;
        run.rows = rows;
        run.hard_of_ten = hard_of_ten;
        run.tokens = kSteps * rows;
        run.world = {cost_of(0.01, 1e-5, layer, 1e-7, 1e-7), 0.95};
        run.measured = run.world.cost;
        expect_no_loss(run, ratios);
      }
    }
  }
  report("short hard texts", ratios);
}

// A measurement that was disturbed hides that drafts pay: a trial shows it.
TEST(DraftControl, FindsOutThatDraftsPay) {
  Episode run;
  run.rows = 4;
  run.tokens = 8000 * run.rows;
  run.world = {cost_of(0.01, 1e-4, 1e-3, 1e-5, 1e-5), 0.9};
  run.measured = cost_of(0.01, 8e-4, 6e-3, 1e-5, 1e-5);
  const double found = ratio_to_no_drafts(run);
  run.measured = run.world.cost;
  const double known = ratio_to_no_drafts(run);
  std::printf("drafts that pay: %.3f where that is known, %.3f where it must be found out\n", known, found);
  EXPECT_GT(known, 1.8);
  EXPECT_GT(found, 0.85 * known);
}

// What is given up to look at plain steps, and to warm up, is little beside the best fixed length.
TEST(DraftControl, ComesCloseToTheBestFixedLength) {
  for (const double acceptance : {0.6, 0.8, 0.95}) {
    Episode run;
    run.rows = 4;
    run.drafts = 4;
    run.tokens = kSteps * run.rows;
    run.world = {cost_of(0.01, 2e-4, 1e-3, 1e-5, 1e-5), acceptance};
    run.measured = run.world.cost;
    const double adaptive = serve(run);
    double best = 1e30;
    run.adaptive = false;
    for (int32_t k = 0; k <= 4; ++k) {
      run.drafts = k;
      best = std::min(best, serve(run));
    }
    std::printf("acceptance %.2f: the best fixed length takes %.3f of the time\n", acceptance, best / adaptive);
    EXPECT_GT(best / adaptive, 0.95) << acceptance;
  }
}

}  // namespace
}  // namespace lantern
