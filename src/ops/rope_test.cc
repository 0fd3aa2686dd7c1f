#include "ops/rope.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <complex>

#include "ops/host_op_test.h"

namespace lantern {
namespace {

const RopeScaling kV3{
    .factor = 40, .original_max_position = 4096, .beta_fast = 32, .beta_slow = 1, .mscale = 1.0, .mscale_all_dim = 1.0};
const RopeScaling kV2Lite{.factor = 40,
                          .original_max_position = 4096,
                          .beta_fast = 32,
                          .beta_slow = 1,
                          .mscale = 0.707,
                          .mscale_all_dim = 0.707};
const RopeScaling kK2{
    .factor = 32, .original_max_position = 4096, .beta_fast = 1, .beta_slow = 1, .mscale = 1.0, .mscale_all_dim = 1.0};

// From transformers 5.17 (torch 2.11):
//   config = DeepseekV3Config(rope_parameters=dict(rope_type="yarn", rope_theta=1e4, factor=40,
//       original_max_position_embeddings=4096, beta_fast=32, beta_slow=1, mscale=1.0, mscale_all_dim=1.0))
//   config.head_dim = 64
//   inv_freq, attention_factor = ROPE_INIT_FUNCTIONS["yarn"](config, "cpu")
constexpr std::array<float, 32> kV3Frequencies{1.0f,
                                               0.749894202f,
                                               0.562341332f,
                                               0.421696514f,
                                               0.316227764f,
                                               0.237137362f,
                                               0.177827939f,
                                               0.133352146f,
                                               0.100000001f,
                                               0.0749894157f,
                                               0.0562341288f,
                                               0.0390069261f,
                                               0.0268793609f,
                                               0.0183781441f,
                                               0.012447956f,
                                               0.0083345091f,
                                               0.00550000044f,
                                               0.00356199732f,
                                               0.00224936521f,
                                               0.00137051346f,
                                               0.000790569407f,
                                               0.000414990413f,
                                               0.00017782794f,
                                               3.3338034e-05f,
                                               2.49999994e-05f,
                                               1.87473543e-05f,
                                               1.40585325e-05f,
                                               1.05424124e-05f,
                                               7.90569447e-06f,
                                               5.92843435e-06f,
                                               4.44569832e-06f,
                                               3.33380353e-06f};
// The same with theta 5e4, factor 32, beta_fast 1 (Kimi-K2).
constexpr std::array<float, 32> kK2Frequencies{1.0f,
                                               0.713111103f,
                                               0.508527458f,
                                               0.362636536f,
                                               0.258600146f,
                                               0.184410617f,
                                               0.131505266f,
                                               0.0937778577f,
                                               0.0668740347f,
                                               0.0476886146f,
                                               0.0340072773f,
                                               0.0242509674f,
                                               0.0172936339f,
                                               0.0123322811f,
                                               0.00879428629f,
                                               0.00627130363f,
                                               0.00447213603f,
                                               0.00318912975f,
                                               0.00227420381f,
                                               0.00162175996f,
                                               3.61404673e-05f,
                                               2.57721676e-05f,
                                               1.83784196e-05f,
                                               1.31058541e-05f,
                                               9.34593027e-06f,
                                               6.66468623e-06f,
                                               4.75266143e-06f,
                                               3.38917562e-06f,
                                               2.41685871e-06f,
                                               1.72348882e-06f,
                                               1.22903896e-06f,
                                               8.76441277e-07f};

// torch computes in float: theta^(2i/d), its inverse and the blend are a few ulps of 6e-8 each.
constexpr double kRelative = 6e-7;

TEST(RopeFrequencies, YarnOfV3AndK2EqualTransformers) {
  const auto v3 = rope_inverse_frequencies(64, 1e4, kV3);
  const auto k2 = rope_inverse_frequencies(64, 5e4, kK2);
  ASSERT_EQ(v3.size(), 32u);
  for (size_t i = 0; i < 32; ++i) {
    EXPECT_NEAR(v3[i], kV3Frequencies[i], kRelative * double{kV3Frequencies[i]}) << i;
    EXPECT_NEAR(k2[i], kK2Frequencies[i], kRelative * double{kK2Frequencies[i]}) << i;
  }
}

TEST(RopeFrequencies, RampBoundsAreThoseOfTheModels) {
  // Kept up to and including `low`, divided by the factor from `high` on, and strictly between in between.
  const auto check = [](double theta, const RopeScaling& scaling, int low, int high) {
    const auto plain = rope_inverse_frequencies(64, theta, {});
    const auto yarn = rope_inverse_frequencies(64, theta, scaling);
    for (int i = 0; i < 32; ++i) {
      const double ratio = double{plain[static_cast<size_t>(i)]} / double{yarn[static_cast<size_t>(i)]};
      if (i <= low) {
        EXPECT_NEAR(ratio, 1.0, 1e-6) << i;
      } else if (i >= high) {
        EXPECT_NEAR(ratio, scaling.factor, 1e-5) << i;
      } else {
        EXPECT_GT(ratio, 1.01) << i;
        EXPECT_LT(ratio, scaling.factor - 0.1) << i;
      }
    }
  };
  check(1e4, kV3, 10, 23);
  check(5e4, kK2, 19, 20);
  check(160000, {.factor = 16, .original_max_position = 65536}, 15, 25);
}

TEST(RopeFrequencies, PlainRopeIsAPowerOfTheta) {
  const auto frequencies = rope_inverse_frequencies(64, 1e6, {});
  for (int i = 0; i < 32; ++i) {
    const double expected = 1 / std::pow(1e6, 2.0 * i / 64);
    EXPECT_NEAR(frequencies[static_cast<size_t>(i)], expected, expected * 1.2e-7);
  }
}

TEST(RopeFrequencies, EqualRampBoundsDoNotDivideByZero) {
  // Both corrections clamp to dim - 1: a ramp of zero width.
  const auto frequencies =
      rope_inverse_frequencies(4, 2.0, {.factor = 4, .original_max_position = 1e9, .beta_fast = 1, .beta_slow = 1});
  for (float f : frequencies) EXPECT_TRUE(std::isfinite(f) && f > 0) << f;
}

TEST(Yarn, MscaleTableOfTheModels) {
  struct Row {
    double factor, mscale_all_dim, m, m2;
  };
  // models: V2-Lite, V2 and V3, Kimi-K2, Kimi-K2-0905
  for (const Row& row : {Row{40, 0.707, 1.26080, 1.58963}, Row{40, 1.0, 1.36889, 1.87385},
                         Row{32, 1.0, 1.34657, 1.81326}, Row{64, 1.0, 1.41589, 2.00474}}) {
    EXPECT_NEAR(yarn_mscale(row.factor, row.mscale_all_dim), row.m, 5e-6);
    EXPECT_NEAR(
        yarn_softmax_factor({.factor = row.factor, .mscale = row.mscale_all_dim, .mscale_all_dim = row.mscale_all_dim}),
        row.m2, 1e-5);
    EXPECT_DOUBLE_EQ(rope_attention_factor(
                         {.factor = row.factor, .mscale = row.mscale_all_dim, .mscale_all_dim = row.mscale_all_dim}),
                     1.0);
  }
  EXPECT_EQ(yarn_softmax_factor({}), 1.0);
  EXPECT_EQ(yarn_softmax_factor({.factor = 40}), 1.0) << "mscale_all_dim not given";
  // transformers without mscale_all_dim: attention_factor = 0.1 ln 40 + 1.
  EXPECT_NEAR(rope_attention_factor({.factor = 40}), 1.3688879454113936, 1e-12);
  EXPECT_NEAR(rope_attention_factor({.factor = 40, .mscale = 1.0, .mscale_all_dim = 0.707}), 1.36889 / 1.26080, 1e-5);
  EXPECT_EQ(yarn_mscale(1.0, 1.0), 1.0);
  EXPECT_NEAR(yarn_softmax_factor(kV2Lite), 1.58963, 1e-5);
}

TEST(RopeTable, PositionIsContextLengthMinusOneAndPaddingIsPositionZero) {
  HostOps ops(2);
  const std::vector<int32_t> context_len{1, 2, 0, 163840, 77};
  const auto frequencies = rope_inverse_frequencies(64, 1e4, kV3);
  std::vector<float> table(context_len.size() * 64, -9.0f);
  rope_table(ops.stream, {.context_len = fixed(context_len),
                          .inverse_frequencies = fixed(frequencies),
                          .cos_sin = fixed(table),
                          .tokens = 5,
                          .dim = 64,
                          .attention_factor = 1.25f});
  const float positions[] = {0, 1, 0, 163839, 76};
  for (size_t t = 0; t < context_len.size(); ++t) {
    for (size_t i = 0; i < 32; ++i) {
      // The angle in float by definition; the rest is two roundings: 1.25 * 2^-24 * 2.
      const float angle = positions[t] * frequencies[i];
      EXPECT_NEAR(table[t * 64 + i], 1.25 * std::cos(double{angle}), 2e-7);
      EXPECT_NEAR(table[t * 64 + 32 + i], 1.25 * std::sin(double{angle}), 2e-7);
    }
  }
}

class RopeRotation : public ::testing::TestWithParam<RopePairing> {};

TEST_P(RopeRotation, IsAComplexProductOverTheRightPairs) {
  HostOps ops(2);
  constexpr int kTokens = 5;
  constexpr int kHeads = 3;
  constexpr int kDim = 64;
  constexpr int kOffset = 128;  // main attention: behind the nope part
  constexpr int64_t kHeadStride = 192;
  constexpr int64_t kTokenStride = kHeads * kHeadStride + 8;
  std::vector<int32_t> context_len{1, 2, 3, 1000, 50000};
  const auto frequencies = rope_inverse_frequencies(kDim, 1e4, kV3);
  std::vector<float> table(kTokens * kDim);
  rope_table(ops.stream, {.context_len = fixed(context_len),
                          .inverse_frequencies = fixed(frequencies),
                          .cos_sin = fixed(table),
                          .tokens = kTokens,
                          .dim = kDim});
  auto x = random_normal(3, kTokens * kTokenStride);
  const auto before = x;
  rope(ops.stream, {.x = fixed(x),
                    .token_stride = kTokenStride,
                    .head_stride = kHeadStride,
                    .heads = kHeads,
                    .offset = kOffset,
                    .dim = kDim,
                    .cos_sin = fixed(table),
                    .tokens = kTokens,
                    .pairing = GetParam()});

  std::vector<bool> rotated(x.size(), false);
  for (int64_t t = 0; t < kTokens; ++t) {
    for (int64_t h = 0; h < kHeads; ++h) {
      for (int64_t i = 0; i < kDim / 2; ++i) {
        const int64_t begin = t * kTokenStride + h * kHeadStride + kOffset;
        const auto a = static_cast<size_t>(begin + (GetParam() == RopePairing::kInterleaved ? 2 * i : i));
        const auto b =
            static_cast<size_t>(begin + (GetParam() == RopePairing::kInterleaved ? 2 * i + 1 : i + kDim / 2));
        const float angle =
            static_cast<float>(context_len[static_cast<size_t>(t)] - 1) * frequencies[static_cast<size_t>(i)];
        const auto expected = std::complex<double>(before[a], before[b]) * std::polar(1.0, static_cast<double>(angle));
        // Two products and an addition in float of values below 5.
        EXPECT_NEAR(x[a], expected.real(), 1e-6);
        EXPECT_NEAR(x[b], expected.imag(), 1e-6);
        rotated[a] = rotated[b] = true;
      }
    }
  }
  for (size_t i = 0; i < x.size(); ++i) {
    if (!rotated[i]) {
      EXPECT_EQ(x[i], before[i]) << "outside of the rotated part, at " << i;
    }
  }
}

TEST_P(RopeRotation, ScoresDependOnTheDistanceOnly) {
  HostOps ops;
  const auto frequencies = rope_inverse_frequencies(64, 1e4, {});
  const auto dot_at = [&](int32_t query_position, int32_t key_position) {
    const std::vector<int32_t> context_len{query_position + 1, key_position + 1};
    std::vector<float> table(2 * 64);
    rope_table(ops.stream, {.context_len = fixed(context_len),
                            .inverse_frequencies = fixed(frequencies),
                            .cos_sin = fixed(table),
                            .tokens = 2,
                            .dim = 64});
    auto x = random_normal(5, 2 * 64);
    rope(ops.stream, {.x = fixed(x),
                      .token_stride = 64,
                      .head_stride = 64,
                      .heads = 1,
                      .dim = 64,
                      .cos_sin = fixed(table),
                      .tokens = 2,
                      .pairing = GetParam()});
    double dot = 0;
    for (size_t i = 0; i < 64; ++i) dot += double{x[i]} * double{x[64 + i]};
    return dot;
  };
  // Positions below 4096: the rounding of the angle is below 4096 * 2^-24.
  EXPECT_NEAR(dot_at(107, 100), dot_at(4007, 4000), 5e-3);
  EXPECT_GT(std::fabs(dot_at(107, 100) - dot_at(100, 107)), 0.05) << "and on its sign";
}

INSTANTIATE_TEST_SUITE_P(Pairings, RopeRotation, ::testing::Values(RopePairing::kInterleaved, RopePairing::kHalves),
                         [](const auto& instance) {
                           return instance.param == RopePairing::kInterleaved ? "Interleaved" : "Halves";
                         });

TEST(RopeFrequenciesDeathTest, OddDimensionIsABrokenInvariant) {
  EXPECT_DEATH(rope_inverse_frequencies(63, 1e4, {}), "even number");
}

}  // namespace
}  // namespace lantern
