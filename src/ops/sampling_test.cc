#include "ops/sampling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "ops/host_op_test.h"
#include "ops/philox.h"
#include "ops/sampler_test_support.h"

namespace lantern {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

struct Drawn {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;
};

Drawn draw(const std::vector<float>& logits, int32_t vocab, const std::vector<SamplingSettings>& settings,
           const std::vector<int64_t>& positions, int threads = 1) {
  HostOps ops(threads);
  const auto rows = static_cast<int64_t>(settings.size());
  Drawn drawn{std::vector<int32_t>(settings.size(), -99), std::vector<float>(settings.size(), -99.0f)};
  std::vector<std::byte> scratch(static_cast<size_t>(sample_scratch_bytes(rows, vocab)), std::byte{0xff});
  sample(ops.stream, {.logits = fixed(logits),
                      .settings = fixed(settings),
                      .output_positions = fixed(positions),
                      .tokens = fixed(drawn.tokens),
                      .logprobs = fixed(drawn.logprobs),
                      .rows = rows,
                      .vocab = vocab,
                      .scratch = fixed(scratch),
                      .scratch_bytes = static_cast<int64_t>(scratch.size())});
  return drawn;
}

int32_t draw_one(const std::vector<float>& logits, const SamplingSettings& settings, int64_t position = 0) {
  return draw(logits, static_cast<int32_t>(logits.size()), {settings}, {position}).tokens[0];
}

// How often each token comes up over `draws` output positions.
std::vector<int64_t> histogram(const std::vector<float>& logits, const SamplingSettings& settings, int64_t draws) {
  const auto vocab = static_cast<int32_t>(logits.size());
  std::vector<int64_t> counts(logits.size(), 0);
  constexpr int64_t kRows = 1000;
  std::vector<float> batch;
  for (int64_t r = 0; r < kRows; ++r) batch.insert(batch.end(), logits.begin(), logits.end());
  std::vector<int64_t> positions(kRows);
  for (int64_t first = 0; first < draws; first += kRows) {
    std::iota(positions.begin(), positions.end(), first);
    const std::vector<SamplingSettings> all(kRows, settings);
    for (int32_t token : draw(batch, vocab, all, positions).tokens) ++counts[static_cast<size_t>(token)];
  }
  return counts;
}

std::vector<double> reference(const std::vector<float>& logits, const SamplingSettings& s) {
  return reference_distribution({logits.begin(), logits.end()}, s);
}

// At five sigma: with fixed seeds the verdict never changes, and a distribution off by a few percent in one token is
// far beyond at these counts.
void expect_distribution(const std::vector<int64_t>& counts, const std::vector<double>& expected) {
  EXPECT_LT(chi_square_deviate(counts, expected), 5.0);
}

TEST(Philox, EqualsTheKnownAnswersOfRandom123) {
  // The vectors that Random123 1.14 ships for philox4x32 with 10 rounds.
  using Words = std::array<uint32_t, 4>;
  EXPECT_EQ(philox_4x32_10({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox_4x32_10({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}), (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox_4x32_10({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, UniformUsesTheUpperBitsAndStaysBelowOne) {
  EXPECT_EQ(philox_uniform(0, 0), static_cast<float>(0x6627e8) / 16777216.0f);
  EXPECT_EQ(philox_uniform_53(0, 0), static_cast<double>(0x6627e8d5e169c58dull >> 11) / 9007199254740992.0);
  double sum = 0;
  for (uint64_t i = 0; i < 100000; ++i) {
    const double u = philox_uniform_53(42, i);
    EXPECT_TRUE(u >= 0 && u < 1);
    EXPECT_NEAR(u, double{philox_uniform(42, i)}, 0x1p-23);
    sum += u;
  }
  EXPECT_NEAR(sum / 100000, 0.5, 5 * std::sqrt(1.0 / 12 / 100000));
  EXPECT_NE(philox_uniform(1, 5), philox_uniform(2, 5));
  EXPECT_NE(philox_uniform(1, uint64_t{1} << 32), philox_uniform(1, 0)) << "the counter has 64 bits";
  EXPECT_NE(philox_uniform(uint64_t{1} << 32, 0), philox_uniform(0, 0)) << "and so has the seed";
}

TEST(Greedy, TakesTheLowestIdAmongEquals) {
  EXPECT_EQ(draw_one({1.0f, 3.0f, 3.0f, 2.0f, 3.0f}, {.temperature = 0}), 1);
  std::vector<float> long_row(1000, -1.0f);
  long_row[997] = long_row[503] = 4.0f;
  EXPECT_EQ(draw_one(long_row, {.temperature = 0}), 503);
  EXPECT_EQ(draw_one({-0.0f, 0.0f}, {.temperature = 0}), 0);
  EXPECT_EQ(draw_one({0.0f, 1.0f}, {.temperature = -1.0f}), 1);
  EXPECT_EQ(draw_one({0.0f, 1.0f}, {.temperature = kNaN}), 1);
}

TEST(Sample, DrawsTheExactDistributionOfEverySetting) {
  auto logits = random_normal(17, 50, 1.2f);
  logits[7] = logits[31] = logits[3];  // ties
  const std::vector<SamplingSettings> cases{
      {},
      {.temperature = 0.6f, .seed = 1},
      {.temperature = 2.5f, .seed = 2},
      {.top_k = 1, .seed = 3},
      {.top_k = 7, .seed = 4},
      {.top_k = 50, .seed = 5},
      {.top_k = 1000, .seed = 6},
      {.top_p = 0.5f, .seed = 7},
      {.top_p = 0.95f, .seed = 8},
      {.top_p = 1e-6f, .seed = 9},
      {.min_p = 0.2f, .seed = 10},
      {.min_p = 1.0f, .seed = 11},
      {.temperature = 0.8f, .top_p = 0.7f, .top_k = 12, .min_p = 0.3f, .seed = 12},
      {.temperature = 1.7f, .top_p = 0.9f, .top_k = 20, .min_p = 0.05f, .seed = 13},
  };
  for (size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(i);
    expect_distribution(histogram(logits, cases[i], 60000), reference(logits, cases[i]));
  }
}

TEST(Sample, TopPIsTakenOfWhatTopKLeft) {
  // p = 0.4 0.3 0.2 0.1. Of the two that top_k 2 leaves, the first has 0.57 >= 0.5; of all four it has 0.4 < 0.5.
  const std::vector<float> logits{std::log(0.4f), std::log(0.3f), std::log(0.2f), std::log(0.1f)};
  const auto counts = histogram(logits, {.top_p = 0.5f, .top_k = 2, .seed = 3}, 2000);
  EXPECT_EQ(counts, (std::vector<int64_t>{2000, 0, 0, 0}));
  EXPECT_GT(histogram(logits, {.top_p = 0.5f, .seed = 3}, 2000)[1], 500);
}

TEST(Sample, TemperatureComesBeforeTopP) {
  // At temperature 1 the first token has 0.49; at 0.5 it has 0.7 of the mass and stays alone.
  const std::vector<float> logits{1.2f, 0.3f, 0.1f, -0.5f};
  EXPECT_EQ(histogram(logits, {.temperature = 0.5f, .top_p = 0.6f}, 2000)[0], 2000);
  EXPECT_LT(histogram(logits, {.top_p = 0.6f}, 2000)[0], 2000);
}

TEST(Sample, TiesAtACutGoToTheLowerIds) {
  const std::vector<float> logits(10, 1.0f);
  expect_distribution(histogram(logits, {.top_k = 4, .seed = 1}, 4000), {.25, .25, .25, .25, 0, 0, 0, 0, 0, 0});
  expect_distribution(histogram(logits, {.top_p = 0.25f, .seed = 1}, 4000),
                      {1. / 3, 1. / 3, 1. / 3, 0, 0, 0, 0, 0, 0, 0});
}

TEST(Sample, TheFiltersKeepTheRightSetOfALargeVocabulary) {
  // Real sizes go through the histogram with many tokens per bucket. Every draw must lie in the exact set, and the
  // set's least likely members must come up.
  auto logits = random_normal(23, 4096, 3.0f);
  for (float& logit : logits) logit = std::round(logit * 4) / 4;
  for (const SamplingSettings& settings :
       {SamplingSettings{.top_p = 0.3f, .seed = 5}, SamplingSettings{.top_k = 100, .seed = 6},
        SamplingSettings{.temperature = 3.0f, .top_p = 0.99f, .top_k = 1000, .seed = 7}}) {
    const auto expected = reference(logits, settings);
    const auto counts = histogram(logits, settings, 5000);
    double drawn_mass = 0;
    for (size_t i = 0; i < counts.size(); ++i) {
      if (counts[i] > 0) {
        ASSERT_GT(expected[i], 0.0) << "token " << i;
        drawn_mass += expected[i];
      }
    }
    EXPECT_GT(drawn_mass, 0.8);
    const auto kept = std::count_if(expected.begin(), expected.end(), [](double p) { return p > 0; });
    if (kept <= 500) {
      EXPECT_EQ(std::count_if(counts.begin(), counts.end(), [](int64_t n) { return n > 0; }), kept);
    }
  }
}

TEST(Sample, ADrawDependsOnSeedAndPositionOnly) {
  constexpr int32_t kVocab = 300;
  constexpr size_t kRows = 70;  // more than are in work at once
  const auto logits = random_normal(29, static_cast<int64_t>(kRows) * kVocab, 2.0f);
  std::vector<SamplingSettings> settings(kRows);
  std::vector<int64_t> positions(kRows);
  for (size_t r = 0; r < kRows; ++r) {
    settings[r] = {.temperature = 0.5f + 0.1f * static_cast<float>(r % 7),
                   .top_p = r % 3 == 0 ? 0.9f : 1.0f,
                   .top_k = static_cast<int32_t>(r % 5) * 20,
                   .min_p = r % 2 == 0 ? 0.0f : 0.01f,
                   .seed = r / 2};
    positions[r] = static_cast<int64_t>(r * r);
  }
  const Drawn together = draw(logits, kVocab, settings, positions, 1);
  for (int threads : {2, 3}) {
    const Drawn other = draw(logits, kVocab, settings, positions, threads);
    EXPECT_EQ(together.tokens, other.tokens);
    EXPECT_TRUE(same_bits(together.logprobs, other.logprobs));
  }
  for (size_t r = 0; r < kRows; ++r) {
    const std::vector<float> row(logits.begin() + static_cast<std::ptrdiff_t>(r) * kVocab,
                                 logits.begin() + static_cast<std::ptrdiff_t>(r + 1) * kVocab);
    EXPECT_EQ(draw_one(row, settings[r], positions[r]), together.tokens[r]);
  }
  // Another seed or position draws something else somewhere.
  auto moved = positions;
  for (int64_t& position : moved) ++position;
  EXPECT_NE(draw(logits, kVocab, settings, moved).tokens, together.tokens);
  for (SamplingSettings& s : settings) s.seed += 1000;
  EXPECT_NE(draw(logits, kVocab, settings, positions).tokens, together.tokens);
}

TEST(Sample, LogprobIsOfTheRawLogits) {
  const std::vector<float> logits{1.0f, 2.0f, 3.0f};
  const Drawn drawn = draw(logits, 3, {{.temperature = 0.1f, .top_k = 1}}, {0});
  EXPECT_EQ(drawn.tokens[0], 2);
  EXPECT_NEAR(drawn.logprobs[0], 3 - std::log(std::exp(1.0) + std::exp(2.0) + std::exp(3.0)), 1e-6);
}

TEST(Sample, UnusualLogitsHaveADefinedResult) {
  for (float temperature : {0.0f, 1.0f, 1e-30f, 3.0e38f}) {
    for (const SamplingSettings& filter :
         {SamplingSettings{}, SamplingSettings{.top_p = 0.9f, .top_k = 3, .min_p = 0.1f}}) {
      SamplingSettings settings = filter;
      settings.temperature = temperature;
      for (int64_t position = 0; position < 20; ++position) {
        const auto one = [&](const std::vector<float>& row) {
          return draw(row, static_cast<int32_t>(row.size()), {settings}, {position});
        };
        EXPECT_EQ(one({kNaN, -kInf, 1.0f, kNaN, -kInf}).tokens[0], 2) << "NaN and -infinity are never drawn";
        EXPECT_EQ(one({5.0f, 1.0f, kInf, 3.0e38f}).tokens[0], 2);
        EXPECT_EQ(one({5.0f, 1.0f, kInf, 3.0e38f}).logprobs[0], 0.0f);
        for (const std::vector<float>& dead : {std::vector<float>{kNaN, kNaN}, {-kInf, -kInf, -kInf}, {kNaN, -kInf}}) {
          const Drawn drawn = one(dead);
          EXPECT_EQ(drawn.tokens[0], 0);
          EXPECT_EQ(drawn.logprobs[0], -kInf);
        }
        const int32_t both = one({0.0f, kInf, kNaN, kInf}).tokens[0];
        EXPECT_TRUE(both == 1 || both == 3);
        const int32_t extreme = one({3.0e38f, -3.0e38f, 3.0e38f}).tokens[0];
        EXPECT_TRUE(extreme == 0 || extreme == 2 || temperature > 1e38f);
      }
    }
  }
  expect_distribution(histogram({0.0f, kInf, kNaN, kInf}, {}, 2000), {0, .5, 0, .5});
  expect_distribution(histogram({0.0f, 1.0f, kNaN, -kInf}, {.temperature = kInf}, 2000), {.5, .5, 0, 0});
}

TEST(Sample, OneTokenVocabularyAndNoRows) {
  EXPECT_EQ(draw_one({-3.0f}, {.top_p = 0.5f, .top_k = 1, .min_p = 1.0f}), 0);
  EXPECT_TRUE(draw({}, 5, {}, {}).tokens.empty());
}

TEST(Sample, PaddingGetsNoToken) {
  HostOps ops;
  const std::vector<float> logits{1, 2, kNaN, kNaN, 3, 4};
  const std::vector<SamplingSettings> settings(3, {.temperature = 0});
  const std::vector<int64_t> positions(3, 0);
  const std::vector<int32_t> row_slots{4, -1, 0};
  std::vector<int32_t> tokens(3, -99);
  std::vector<float> logprobs(3, -99.0f);
  std::vector<std::byte> scratch(static_cast<size_t>(sample_scratch_bytes(3, 2)));
  sample(ops.stream, {.logits = fixed(logits),
                      .settings = fixed(settings),
                      .output_positions = fixed(positions),
                      .row_slots = fixed(row_slots),
                      .tokens = fixed(tokens),
                      .logprobs = fixed(logprobs),
                      .rows = 3,
                      .vocab = 2,
                      .scratch = fixed(scratch),
                      .scratch_bytes = static_cast<int64_t>(scratch.size())});
  EXPECT_EQ(tokens, (std::vector<int32_t>{1, -1, 1}));
  EXPECT_EQ(logprobs[1], 0.0f);
}

TEST(SampleDeathTest, MissingScratchIsABrokenInvariant) {
  HostOps ops;
  EXPECT_DEATH(sample(ops.stream, {.rows = 1, .vocab = 8}), "scratch");
}

struct Listed {
  std::vector<float> logprobs;
  std::vector<int32_t> top_tokens;
  std::vector<float> top_logprobs;
};

Listed list(const std::vector<float>& logits, const std::vector<int32_t>& tokens, int32_t k, int threads = 2) {
  HostOps ops(threads);
  const auto rows = static_cast<int64_t>(tokens.size());
  const auto count = static_cast<size_t>(rows * k);
  Listed listed{std::vector<float>(tokens.size(), 9.0f), std::vector<int32_t>(count, -99),
                std::vector<float>(count, 9.0f)};
  logprobs(ops.stream, {.logits = fixed(logits),
                        .tokens = fixed(tokens),
                        .logprobs = fixed(listed.logprobs),
                        .top_tokens = fixed(listed.top_tokens),
                        .top_logprobs = fixed(listed.top_logprobs),
                        .rows = rows,
                        .vocab = static_cast<int32_t>(logits.size() / tokens.size()),
                        .k = k});
  return listed;
}

TEST(Logprobs, EqualDoubleAndListTheMostLikelyInOrder) {
  constexpr size_t kVocab = 3000;
  constexpr int32_t kTop = 20;
  auto logits = random_normal(41, 3 * kVocab, 5.0f);
  for (float& logit : logits) logit = std::round(logit * 2) / 2;  // ties everywhere
  const std::vector<int32_t> tokens{17, -1, 2999};
  const Listed listed = list(logits, tokens, kTop);
  EXPECT_TRUE(same_bits(listed.top_logprobs, list(logits, tokens, kTop, 1).top_logprobs));
  for (size_t r = 0; r < 3; ++r) {
    const float* row = logits.data() + r * kVocab;
    double sum = 0;
    for (size_t i = 0; i < kVocab; ++i) sum += std::exp(double{row[i]});
    if (tokens[r] >= 0) {
      EXPECT_NEAR(listed.logprobs[r], double{row[tokens[r]]} - std::log(sum), 3e-6);
    } else {
      EXPECT_EQ(listed.logprobs[r], 0.0f);
    }
    std::vector<int32_t> order(kVocab);
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(),
              [&](int32_t a, int32_t b) { return row[a] != row[b] ? row[a] > row[b] : a < b; });
    for (size_t j = 0; j < kTop; ++j) {
      EXPECT_EQ(listed.top_tokens[r * kTop + j], order[j]);
      EXPECT_NEAR(listed.top_logprobs[r * kTop + j], double{row[order[j]]} - std::log(sum), 3e-6);
    }
  }
}

TEST(Logprobs, UnusualLogitsAndMoreThanTheVocabulary) {
  // One logit that is no number leaves no token of the row a log-probability; the order is as for sampling.
  for (const float bad : {kNaN, -kNaN, -kInf}) {
    const Listed listed = list({bad, 1.0f, -kInf, 1.0f}, {1}, 6);
    EXPECT_TRUE(std::isnan(listed.logprobs[0]));
    EXPECT_EQ(listed.top_tokens, (std::vector<int32_t>{1, 3, 0, 2, -1, -1}));
    for (size_t j = 0; j < 6; ++j) EXPECT_TRUE(j < 4 ? std::isnan(listed.top_logprobs[j]) : listed.top_logprobs[j] < 0);
  }
  EXPECT_TRUE(std::isnan(list({kInf, 0.0f}, {0}, 0).logprobs[0]));
  EXPECT_EQ(list({kNaN, kNaN}, {-1}, 0).logprobs[0], 0.0f);
  const Listed few = list({1.0f, 2.0f}, {0}, 3);
  EXPECT_NEAR(few.logprobs[0], -1 - std::log1p(std::exp(-1.0)), 1e-6);
  EXPECT_EQ(few.top_tokens, (std::vector<int32_t>{1, 0, -1}));
  EXPECT_EQ(few.top_logprobs[2], -kInf);
}

TEST(Logprobs, EachRowHasItsOwnCountAndRank) {
  constexpr int32_t kRows = 4;
  const std::vector<float> row{1.0f, 3.0f, -200.0f, 3.0f, 2.0f};
  std::vector<float> logits;
  for (int32_t r = 0; r < kRows; ++r) logits.insert(logits.end(), row.begin(), row.end());
  const std::vector<int32_t> tokens{4, 3, 2, 0};
  const std::vector<int32_t> counts{2, 0, 1, -1};
  std::vector<float> values(kRows, 9.0f), top_values(kRows * 2, 9.0f);
  std::vector<int32_t> ranks(kRows, -99), top(kRows * 2, -99);
  HostOps ops;
  logprobs(ops.stream, {.logits = fixed(logits),
                        .tokens = fixed(tokens),
                        .counts = fixed(counts),
                        .logprobs = fixed(values),
                        .ranks = fixed(ranks),
                        .top_tokens = fixed(top),
                        .top_logprobs = fixed(top_values),
                        .rows = kRows,
                        .vocab = 5,
                        .k = 2});
  const double norm = std::log(std::exp(1.0) + 2 * std::exp(3.0) + std::exp(2.0));
  EXPECT_NEAR(values[0], 2 - norm, 1e-6);
  EXPECT_NEAR(values[1], 3 - norm, 1e-6);
  EXPECT_NEAR(values[2], -200 - norm, 2e-5);
  EXPECT_EQ(values[3], 0.0f) << "skipped";
  EXPECT_EQ(ranks, (std::vector<int32_t>{3, 1, 5, 0}));
  EXPECT_EQ(top, (std::vector<int32_t>{1, 3, -1, -1, 1, -1, -1, -1}));
  EXPECT_NEAR(top_values[1], 3 - norm, 1e-6);
  for (const size_t unused : {2u, 3u, 5u, 6u, 7u}) EXPECT_EQ(top_values[unused], -kInf);
}

TEST(LogprobsDeathTest, TokenOutsideOfTheVocabularyIsABrokenInvariant) {
  EXPECT_DEATH(list({1.0f, 2.0f}, {2}, 1, 1), "the vocabulary has 2");
}

}  // namespace
}  // namespace lantern
