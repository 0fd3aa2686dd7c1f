// Known mistakes that give wrong text in silence (indexer rope pairing, mscale, groups, ...). Each is made on purpose,
// and the golden comparison must notice: a golden that would pass is not worth having.
#include <gtest/gtest.h>

#include <iostream>

#include "golden/compare.h"
#include "golden/golden_case.h"
#include "golden/loaded_case.h"
#include "golden/model_run.h"

namespace lantern::golden {
namespace {

struct Trap {
  const char* golden;
  const char* name;  // as in reference.py
  void (*step_in)(ModelConfig&);
  IndexSelectParams::Mode index_mode = IndexSelectParams::Mode::kScore;
};

RopePairing other(RopePairing pairing) {
  return pairing == RopePairing::kHalves ? RopePairing::kInterleaved : RopePairing::kHalves;
}

void index_rope(ModelConfig& c) { c.index_rope_pairing = other(c.index_rope_pairing); }
void main_rope(ModelConfig& c) { c.rope_pairing = other(c.rope_pairing); }
void no_mscale(ModelConfig& c) {
  // Both, so that cos and sin keep their factor of 1 and the softmax scale alone changes.
  c.rope_scaling.mscale = 0;
  c.rope_scaling.mscale_all_dim = 0;
}
void no_yarn(ModelConfig& c) {
  // A ramp that lies beyond the last pair leaves every frequency as it is; mscale stays.
  c.rope_scaling.original_max_position = 1e30;
}
void yarn_beta(ModelConfig& c) {
  c.rope_scaling.beta_fast = 32;
  c.rope_scaling.beta_slow = 1;
}
void no_bias(ModelConfig& c) { c.router_has_bias = false; }
void group_score(ModelConfig& c) {
  c.router_group_score =
      c.router_group_score == RouterGroupScore::kMax ? RouterGroupScore::kTop2Sum : RouterGroupScore::kMax;
}
void no_groups(ModelConfig& c) {
  c.num_expert_groups = 1;
  c.topk_groups = 1;
}
void no_renorm(ModelConfig& c) { c.norm_topk_prob = !c.norm_topk_prob; }
void no_routed_scale(ModelConfig& c) { c.routed_scaling_factor = 1.0f; }
void dense(ModelConfig& c) {
  for (SelectionSource& source : c.selection) source = {};
}
void nothing(ModelConfig&) {}

constexpr Trap kTraps[] = {
    {"v32", "index_rope", index_rope},
    {"glm5", "index_rope", index_rope},
    {"v32", "index_recent", nothing, IndexSelectParams::Mode::kRecent},
    {"glm5", "index_recent", nothing, IndexSelectParams::Mode::kRecent},
    {"v32", "dense", dense},
    {"glm5", "dense", dense},
    {"v3", "main_rope", main_rope},
    {"v2", "main_rope", main_rope},
    {"v2lite", "no_mscale", no_mscale},
    {"v3", "no_mscale", no_mscale},
    {"k2", "no_mscale", no_mscale},
    {"v3", "no_yarn", no_yarn},
    {"v2lite", "no_yarn", no_yarn},
    {"k2", "yarn_beta", yarn_beta},
    {"v3", "no_bias", no_bias},
    {"glm47f", "no_bias", no_bias},
    {"v2", "group_score", group_score},
    {"v3", "group_score", group_score},
    {"v2", "no_groups", no_groups},
    {"v3", "no_groups", no_groups},
    {"v3", "no_renorm", no_renorm},
    {"moonlight", "no_renorm", no_renorm},
    {"v2", "no_routed_scale", no_routed_scale},
    {"k2", "no_routed_scale", no_routed_scale},
};

class Traps : public testing::TestWithParam<Trap> {};

TEST_P(Traps, AreNoticed) {
  const Trap& trap = GetParam();
  LoadedCase loaded(trap.golden);
  const GoldenCase& golden = loaded.golden();
  RunOptions options = loaded.golden_options();
  options.index_mode = trap.index_mode;
  std::unique_ptr<ModelRun> run = loaded.make_run(options, trap.step_in);
  ASSERT_NE(run, nullptr);
  const std::vector<int32_t> ids = golden.input_ids(0);
  const std::vector<std::vector<int32_t>> tokens{ids};
  const auto captures = run->run(tokens, make_schedule(Schedule::kOneShot, {static_cast<int32_t>(ids.size())}));
  const Comparison result = compare_sequence(golden, 0, captures[0]);
  EXPECT_FALSE(result.problems.empty());
  const Difference logits =
      difference(captures[0].logits, golden.of(0, "logits"), golden.integers(0, "logit_positions"), {});
  EXPECT_GT(logits.max, 50 * tolerance_of(golden).max) << trap.name;
  std::cout << trap.golden << " with " << trap.name << ": logits off by " << logits.max / tolerance_of(golden).max
            << " tolerances; the Python reference says " << golden.trap_margins.at(trap.name) << "\n";
}

INSTANTIATE_TEST_SUITE_P(Known, Traps, testing::ValuesIn(kTraps),
                         [](const auto& test) { return std::string(test.param.golden) + "_" + test.param.name; });

// Mistakes that no setting reaches were made in the Python reference when the goldens were written: the data record how
// far each moved the logits. This keeps regenerated data from losing a case that notices.
TEST(TrapMargins, GoldensNoticeWhatNoSettingReaches) {
  const std::vector<std::pair<const char*, std::vector<const char*>>> required = {
      {"v3", {"biased_weights", "mask_zero", "group_sum_all", "mtp_order", "mtp_hidden_before_norm", "mtp_same_token"}},
      {"v32", {"biased_weights", "mask_zero", "index_rope_last", "index_no_relu", "mtp_order"}},
      {"v2", {"group_sum_all"}},
      {"glm5", {"biased_weights", "index_rope_last", "index_no_relu"}},
      {"k2", {"biased_weights"}},
      {"v32_kdims", {"index_rope", "dense", "no_mscale", "mask_zero"}},
      {"glm5_kdims", {"index_rope", "dense"}},
  };
  for (const auto& [name, traps] : required) {
    const GoldenCase golden = load_golden_case(name);
    for (const char* trap : traps) {
      ASSERT_TRUE(golden.trap_margins.contains(trap)) << name << " " << trap;
      EXPECT_GE(golden.trap_margins.at(trap), 50) << name << " " << trap;
    }
  }
}

}  // namespace
}  // namespace lantern::golden
