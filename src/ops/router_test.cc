#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "ops/host_op_test.h"
#include "ops/moe.h"

namespace lantern {
namespace {

struct Choice {
  std::vector<int32_t> ids;
  std::vector<float> weights;

  // (id, weight) of one token, by ascending id: transformers leaves the order open.
  std::vector<std::pair<int32_t, float>> sorted(int64_t token, int32_t k) const {
    std::vector<std::pair<int32_t, float>> pairs;
    for (int32_t j = 0; j < k; ++j) {
      const auto i = static_cast<size_t>(token * k + j);
      pairs.emplace_back(ids[i], weights[i]);
    }
    std::sort(pairs.begin(), pairs.end());
    return pairs;
  }
};

Choice route(RouterParams params, const std::vector<float>& logits, const std::vector<float>& bias, int threads = 1) {
  HostOps ops(threads);
  params.tokens = static_cast<int64_t>(logits.size()) / params.experts;
  Choice choice;
  choice.ids.assign(static_cast<size_t>(params.tokens * params.experts_per_token), -99);
  choice.weights.assign(choice.ids.size(), -99.0f);
  params.logits = fixed(logits);
  if (!bias.empty()) params.bias = fixed(bias);
  params.expert_ids = fixed(choice.ids);
  params.expert_weights = fixed(choice.weights);
  router(ops.stream, params);
  return choice;
}

// Values of transformers 5.17 on torch 2.11, with an identity weight so that the logits are the input:
//   torch.manual_seed(7)
//   logits = torch.randint(-192, 192, (4, 16)) / 64
//   bias = torch.randint(-96, 0, (16,)) / 64
//   r = DeepseekV3TopkRouter(DeepseekV3Config(hidden_size=16, n_routed_experts=16, n_group=4, topk_group=2,
//       num_experts_per_tok=4, norm_topk_prob=True, routed_scaling_factor=2.5))
//   r.weight.data = torch.eye(16); r.e_score_correction_bias.data = bias; _, weights, ids = r(logits)
// and DeepseekV2TopkRouter with topk_method="group_limited_greedy", routed_scaling_factor=16. The biased scores are
// mostly negative: masking groups with 0 instead of minus infinity chooses experts of the masked groups.
const std::vector<float> kLogits{1.734375, 0.0625,    -2.609375, 2.84375,   -1.953125, 2.296875,  -2.640625, 2.609375,
                                 0.4375,   -0.109375, -0.78125,  -0.640625, 0.125,     2.390625,  -1.28125,  1.65625,
                                 -1.59375, -0.875,    -2.390625, -1.40625,  2.0625,    1.75,      2.984375,  -0.890625,
                                 -0.3125,  -1.0,      0.171875,  -2.140625, 2.90625,   -0.90625,  -0.703125, 1.9375,
                                 1.6875,   1.984375,  2.078125,  1.875,     -2.625,    1.859375,  -2.171875, 2.75,
                                 2.921875, 1.953125,  0.0,       1.53125,   -2.125,    -1.859375, 2.21875,   -2.40625,
                                 1.0625,   0.71875,   -2.859375, 0.359375,  0.546875,  0.046875,  -1.875,    2.296875,
                                 -0.25,    -2.984375, -2.0,      -0.75,     -1.15625,  -0.515625, 0.453125,  -2.3125};
const std::vector<float> kBias{-0.0625,   -0.5625,   -1.390625, -1.140625, -0.34375,  -0.859375, -0.953125, -1.0,
                               -1.046875, -0.390625, -1.140625, -1.0625,   -0.140625, -1.0,      -0.671875, -1.4375};
using Golden = std::vector<std::vector<std::pair<int32_t, float>>>;  // by ascending id

void expect_golden(const Choice& choice, const Golden& golden) {
  for (size_t t = 0; t < golden.size(); ++t) {
    const auto actual = choice.sorted(static_cast<int64_t>(t), 4);
    for (size_t j = 0; j < 4; ++j) {
      EXPECT_EQ(actual[j].first, golden[t][j].first) << "token " << t;
      // A few float roundings of a value below 16.
      EXPECT_NEAR(actual[j].second, golden[t][j].second, 6e-7 * double{golden[t][j].second}) << "token " << t;
    }
  }
}

TEST(Router, V3WithGroupsAndNegativeBiasedScoresEqualsTransformers) {
  const RouterParams params{.experts = 16,
                            .experts_per_token = 4,
                            .groups = 4,
                            .topk_groups = 2,
                            .scoring = RouterScoring::kSigmoid,
                            .group_score = RouterGroupScore::kTop2Sum,
                            .normalize = true,
                            .scale = 2.5f};
  expect_golden(route(params, kLogits, kBias),
                {{{0, 0.755419791f}, {1, 0.458261997f}, {12, 0.472117305f}, {13, 0.814200938f}},
                 {{4, 0.609481931f}, {5, 0.585264981f}, {6, 0.653900385f}, {12, 0.651352644f}},
                 {{0, 0.594669878f}, {1, 0.61951077f}, {8, 0.668676138f}, {9, 0.617143154f}},
                 {{0, 0.628200233f}, {1, 0.568322361f}, {4, 0.535422087f}, {7, 0.76805532f}}});
}

TEST(Router, V2GroupLimitedGreedyEqualsTransformers) {
  const RouterParams params{.experts = 16,
                            .experts_per_token = 4,
                            .groups = 4,
                            .topk_groups = 2,
                            .scoring = RouterScoring::kSoftmax,
                            .group_score = RouterGroupScore::kMax,
                            .normalize = false,
                            .scale = 16.0f};
  expect_golden(route(params, kLogits, {}), {{{0, 1.31885242f}, {3, 3.99937057f}, {5, 2.31465816f}, {7, 3.16376257f}},
                                             {{4, 1.9883188f}, {6, 4.99863291f}, {12, 4.62297964f}, {15, 1.75468528f}},
                                             {{5, 1.13810492f}, {7, 2.77316546f}, {8, 3.29321551f}, {9, 1.24996364f}},
                                             {{0, 1.9845866f}, {1, 1.40728271f}, {4, 1.18505085f}, {7, 6.81949663f}}});
}

float logit_of(double score) { return static_cast<float>(std::log(score / (1 - score))); }

TEST(Router, GroupScoreIsTheSumOfTwoForV3AndTheMaximumForV2) {
  // Group 0 holds the single best expert, group 1 the better pair.
  const std::vector<float> logits{logit_of(0.9), logit_of(0.1), logit_of(0.6), logit_of(0.7)};
  RouterParams params{.experts = 4, .experts_per_token = 2, .groups = 2, .topk_groups = 1, .normalize = false};
  EXPECT_EQ(route(params, logits, {}).ids, (std::vector<int32_t>{3, 2}));
  params.group_score = RouterGroupScore::kMax;
  EXPECT_EQ(route(params, logits, {}).ids, (std::vector<int32_t>{0, 1}));
}

TEST(Router, BiasChoosesButDoesNotWeigh) {
  const std::vector<float> logits{logit_of(0.9), logit_of(0.2), logit_of(0.5)};
  const std::vector<float> bias{0.0f, 1.0f, 0.0f};
  RouterParams params{.experts = 3, .experts_per_token = 2, .normalize = false};
  const Choice choice = route(params, logits, bias);
  EXPECT_EQ(choice.ids, (std::vector<int32_t>{1, 0})) << "descending biased score";
  EXPECT_NEAR(choice.weights[0], 0.2, 1e-7);
  EXPECT_NEAR(choice.weights[1], 0.9, 1e-7);
  params.normalize = true;
  params.scale = 2.446f;
  const Choice normalised = route(params, logits, bias);
  EXPECT_NEAR(normalised.weights[0], 2.446 * 0.2 / 1.1, 5e-7);
  EXPECT_NEAR(normalised.weights[1], 2.446 * 0.9 / 1.1, 5e-7);
}

TEST(Router, MaskedGroupsAreMinusInfinityNotZero) {
  // All biased scores are negative; the kept group's second expert is far below 0.
  const std::vector<float> logits(4, 0.0f);  // s = 0.5
  const std::vector<float> bias{-0.6f, -3.0f, -2.0f, -2.0f};
  const RouterParams params{.experts = 4,
                            .experts_per_token = 2,
                            .groups = 2,
                            .topk_groups = 1,
                            .group_score = RouterGroupScore::kMax,
                            .normalize = false};
  EXPECT_EQ(route(params, logits, bias).ids, (std::vector<int32_t>{0, 1}));
}

TEST(Router, TiesGoToTheLowerIndexInGroupsAndExperts) {
  const std::vector<float> logits(8, 0.25f);
  RouterParams params{.experts = 8, .experts_per_token = 3, .groups = 4, .topk_groups = 2};
  EXPECT_EQ(route(params, logits, {}).ids, (std::vector<int32_t>{0, 1, 2}));
  const std::vector<float> bias{0, 0, 0, 0.5f, 0, 0.5f, 0, 0};
  EXPECT_EQ(route(params, logits, bias).ids, (std::vector<int32_t>{3, 5, 2})) << "groups 1 and 2 tie and win";
}

TEST(Router, NormalisationSurvivesScoresOfZero) {
  const std::vector<float> logits(4, -200.0f);  // sigmoid underflows to 0
  const RouterParams params{.experts = 4, .experts_per_token = 2, .normalize = true};
  EXPECT_EQ(route(params, logits, {}).weights, (std::vector<float>{0.0f, 0.0f}));
}

TEST(Router, AnyLogitsGiveValidDistinctIds) {
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const std::vector<std::vector<float>> rows{
      {kNaN, kNaN, kNaN, kNaN}, {kInf, -kInf, kInf, -kInf}, {-kInf, -kInf, -kInf, -kInf}, {1.0f, kNaN, 0.5f, 0.25f}};
  for (RouterScoring scoring : {RouterScoring::kSigmoid, RouterScoring::kSoftmax}) {
    for (const auto& row : rows) {
      const auto [ids, weights] = route({.experts = 4,
                                         .experts_per_token = 2,
                                         .groups = 2,
                                         .topk_groups = 1,
                                         .scoring = scoring,
                                         .group_score = RouterGroupScore::kMax},
                                        row, {});
      for (int32_t id : ids) EXPECT_TRUE(id >= 0 && id < 4);
      EXPECT_NE(ids[0], ids[1]);
      for (float weight : weights) EXPECT_TRUE(std::isnan(weight));
    }
  }
  // One NaN comes last among the ids, and every weight is NaN by what was not chosen as well. A bias of minus infinity
  // is how an expert is left out.
  EXPECT_EQ(route({.experts = 4, .experts_per_token = 4}, rows[3], {}).ids, (std::vector<int32_t>{0, 2, 3, 1}));
  for (const float value : {kNaN, kInf, -kInf}) {
    for (const bool in_bias : {false, true}) {
      for (size_t bad = 0; bad < 4; ++bad) {
        std::vector<float> logits{1.0f, -9.0f, 0.5f, 0.25f};
        std::vector<float> bias(4, 0.0f);
        (in_bias ? bias : logits)[bad] = value;
        for (float weight : route({.experts = 4, .experts_per_token = 2}, logits, bias).weights) {
          EXPECT_EQ(std::isnan(weight), !in_bias || value != -kInf) << value << " " << in_bias << " " << bad;
        }
      }
    }
  }
}

TEST(Router, EqualsAFullSortOnRandomLargeInputsForAnyThreads) {
  constexpr int32_t kExperts = 384;
  constexpr int32_t kTopK = 8;
  constexpr int64_t kTokens = 50;
  auto logits = random_normal(5, kTokens * kExperts, 2.0f);
  for (float& logit : logits) logit = std::round(logit * 8) / 8;  // many ties
  const auto bias = random_normal(6, kExperts, 0.1f);
  const RouterParams params{.experts = kExperts, .experts_per_token = kTopK, .normalize = true, .scale = 2.827f};
  const Choice one = route(params, logits, bias, 1);
  for (int threads : {2, 3}) {
    const Choice other = route(params, logits, bias, threads);
    EXPECT_EQ(one.ids, other.ids);
    EXPECT_TRUE(same_bits(one.weights, other.weights));
  }
  for (int64_t t = 0; t < kTokens; ++t) {
    std::vector<std::pair<double, int32_t>> order;
    for (int32_t e = 0; e < kExperts; ++e) {
      const double s = 1 / (1 + std::exp(-double{logits[static_cast<size_t>(t * kExperts + e)]}));
      order.emplace_back(-(s + double{bias[static_cast<size_t>(e)]}), e);
    }
    std::sort(order.begin(), order.end());
    for (int32_t j = 0; j < kTopK; ++j) {
      // Float and double may order scores differently only when they are within an ulp of each other.
      const auto chosen = static_cast<size_t>(one.ids[static_cast<size_t>(t * kTopK + j)]);
      const double score =
          1 / (1 + std::exp(-double{logits[static_cast<size_t>(t * kExperts) + chosen]})) + double{bias[chosen]};
      EXPECT_NEAR(score, -order[static_cast<size_t>(j)].first, 2e-7) << "token " << t << " place " << j;
    }
  }
}

TEST(RouterDeathTest, ImpossibleSettingsAreBrokenInvariants) {
  const std::vector<float> logits(8, 0.0f);
  EXPECT_DEATH(route({.experts = 8, .experts_per_token = 2, .groups = 3}, logits, {}), "do not split");
  EXPECT_DEATH(route({.experts = 8, .experts_per_token = 5, .groups = 2, .topk_groups = 1}, logits, {}), "among 4");
  EXPECT_DEATH(route({.experts = 8, .experts_per_token = 2, .groups = 8}, logits, {}), "two best");
}

TEST(Router, PaddingChoosesNothing) {
  const RouterParams params{.experts = 16, .experts_per_token = 4, .groups = 4, .topk_groups = 2};
  const Choice all = route(params, kLogits, kBias);
  RouterParams padded = params;
  const std::vector<int32_t> token_request{3, -1, 0, -1};
  padded.token_request = fixed(token_request);
  const Choice some = route(padded, kLogits, kBias);
  for (size_t i = 0; i < all.ids.size(); ++i) {
    const bool real = token_request[i / 4] >= 0;
    EXPECT_EQ(some.ids[i], real ? all.ids[i] : -1) << i;
    EXPECT_EQ(some.weights[i], real ? all.weights[i] : 0.0f) << i;
  }
}

TEST(CountExperts, CountsEachOnceAndAddsUpOverLayers) {
  HostOps ops;
  const std::vector<int32_t> layers[] = {{0, 3, 3, 5, -1, -1}, {7, 7, 7, 7, 7, 0}};
  std::vector<int32_t> seen(8, 9), total{77};
  for (const auto& ids : layers) {
    count_experts(ops.stream, {.expert_ids = fixed(ids),
                               .seen = fixed(seen),
                               .total = fixed(total),
                               .tokens = 3,
                               .experts = 8,
                               .experts_per_token = 2,
                               .first = &ids == &layers[0]});
  }
  EXPECT_EQ(total[0], 3 + 2);
}

}  // namespace
}  // namespace lantern
