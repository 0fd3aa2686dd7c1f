#include "ops/moe.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/dtype.h"
#include "ops/host_op_test.h"

namespace lantern {
namespace {

float rounded(float x) { return to_float(to_bf16(x)); }

// A bf16 weight and what it holds as floats.
struct Weight {
  std::vector<bf16_t> stored;
  std::vector<float> values;
  int64_t rows;
  int64_t cols;

  Weight(uint32_t seed, int64_t rows_in, int64_t cols_in) : rows(rows_in), cols(cols_in) {
    for (float x : random_normal(seed, rows * cols, 1.0f / std::sqrt(static_cast<float>(cols)))) {
      stored.push_back(to_bf16(x));
      values.push_back(to_float(stored.back()));
    }
  }
  QuantizedMatrix matrix() const {
    QuantizedMatrix w;
    w.data = borrow_fixed(reinterpret_cast<const std::byte*>(stored.data()), rows * cols * 2);
    w.dtype = DType::kBF16;
    w.rows = rows;
    w.cols = cols;
    w.row_bytes = cols * 2;
    return w;
  }
  // W x in double, with x rounded to bf16 as linear's contract says.
  std::vector<double> times(const std::vector<float>& x) const {
    std::vector<double> y(static_cast<size_t>(rows));
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < cols; ++c) {
        y[static_cast<size_t>(r)] +=
            double{values[static_cast<size_t>(r * cols + c)]} * double{rounded(x[static_cast<size_t>(c)])};
      }
    }
    return y;
  }
};

struct Expert {
  Weight gate, up, down;
  Expert(uint32_t seed, int64_t hidden, int64_t intermediate)
      : gate(3 * seed, intermediate, hidden),
        up(3 * seed + 1, intermediate, hidden),
        down(3 * seed + 2, hidden, intermediate) {}
  ExpertWeights weights() const { return {gate.matrix(), up.matrix(), down.matrix()}; }
  std::vector<double> forward(const std::vector<float>& x) const {
    const auto g = gate.times(x);
    const auto u = up.times(x);
    std::vector<float> h(g.size());
    for (size_t i = 0; i < h.size(); ++i) h[i] = static_cast<float>(g[i] / (1 + std::exp(-g[i])) * u[i]);
    return down.times(h);
  }
};

// The inner activation is rounded to bf16 from slightly different floats: where it lies at a rounding boundary it moves
// by 2^-8 of itself. Such flips are rare, and each moves an output by 2^-8 |h| |w|, about 0.004 * 0.3 * 0.1 here.
constexpr double kTolerance = 4e-4;

std::vector<float> row_of(const std::vector<float>& x, int64_t row, int64_t cols) {
  return {x.begin() + row * cols, x.begin() + (row + 1) * cols};
}

TEST(Mlp, EqualsTheFormulaAndAccumulates) {
  for (const auto& [hidden, intermediate] : {std::pair<int64_t, int64_t>{64, 96}, {100, 36}, {128, 256}}) {
    const Expert expert(static_cast<uint32_t>(hidden), hidden, intermediate);
    HostOps ops(2);
    for (int64_t tokens : {1, 2, 17}) {
      const auto x = random_normal(9, tokens * hidden);
      std::vector<float> y = random_normal(10, tokens * hidden);
      const std::vector<float> before = y;
      std::vector<std::byte> scratch(static_cast<size_t>(mlp_scratch_bytes(tokens, hidden, intermediate)),
                                     std::byte{0xff});  // NaN everywhere
      MlpParams params{.x = fixed(x),
                       .y = fixed(y),
                       .tokens = tokens,
                       .weights = expert.weights(),
                       .accumulate = false,
                       .scratch = fixed(scratch),
                       .scratch_bytes = static_cast<int64_t>(scratch.size())};
      mlp(ops.stream, params);
      const std::vector<float> first = y;
      for (int64_t t = 0; t < tokens; ++t) {
        const auto expected = expert.forward(row_of(x, t, hidden));
        for (int64_t i = 0; i < hidden; ++i) {
          ASSERT_NEAR(y[static_cast<size_t>(t * hidden + i)], expected[static_cast<size_t>(i)], kTolerance);
        }
      }
      y = before;
      params.accumulate = true;
      mlp(ops.stream, params);
      for (size_t i = 0; i < y.size(); ++i) ASSERT_NEAR(y[i], double{before[i]} + double{first[i]}, 1e-6);
      // Padding is left as it is, and changes no bit of the others.
      const std::vector<int32_t> real{static_cast<int32_t>(tokens - 1)};
      y = before;
      params.accumulate = false;
      params.real_tokens.count = fixed(real);
      mlp(ops.stream, params);
      for (size_t i = 0; i < y.size(); ++i) {
        ASSERT_EQ(y[i], static_cast<int64_t>(i) < (tokens - 1) * hidden ? first[i] : before[i]) << i;
      }
    }
  }
}

struct MoeCase {
  static constexpr int64_t kHidden = 96;
  static constexpr int64_t kIntermediate = 64;
  std::vector<Expert> experts;
  std::vector<ExpertWeights> weights;

  explicit MoeCase(int32_t count) {
    for (int32_t e = 0; e < count; ++e) experts.emplace_back(static_cast<uint32_t>(e), kHidden, kIntermediate);
    for (const Expert& expert : experts) weights.push_back(expert.weights());
  }

  std::vector<float> run(const std::vector<float>& x, std::vector<float> y, const std::vector<int32_t>& ids,
                         const std::vector<float>& expert_weights, int32_t k, int threads = 2) const {
    HostOps ops(threads);
    const auto tokens = static_cast<int64_t>(ids.size()) / k;
    const auto count = static_cast<int32_t>(experts.size());
    const int64_t bytes = moe_scratch_bytes(tokens, k, count, kHidden, kIntermediate);
    // Exactly the promised scratch, NaN at first, with a guard behind it.
    constexpr size_t kGuard = 4096;
    std::vector<std::byte> scratch(static_cast<size_t>(bytes) + kGuard, std::byte{0xff});
    moe(ops.stream, {.x = fixed(x),
                     .y = fixed(y),
                     .expert_ids = fixed(ids),
                     .expert_weights = fixed(expert_weights),
                     .experts = fixed(weights),
                     .tokens = tokens,
                     .experts_per_token = k,
                     .num_experts = count,
                     .hidden = kHidden,
                     .intermediate = kIntermediate,
                     .scratch = fixed(scratch),
                     .scratch_bytes = bytes});
    for (size_t i = 0; i < kGuard; ++i) EXPECT_EQ(scratch[static_cast<size_t>(bytes) + i], std::byte{0xff});
    return y;
  }
};

// Distinct experts per token, uneven on purpose: low ids are popular.
std::vector<int32_t> random_ids(uint32_t seed, int64_t tokens, int32_t k, int32_t experts) {
  std::mt19937 generator(seed);
  std::vector<int32_t> ids;
  for (int64_t t = 0; t < tokens; ++t) {
    std::vector<int32_t> chosen;
    while (static_cast<int32_t>(chosen.size()) < k) {
      const auto bound = static_cast<uint32_t>(experts) >> (generator() % 3);
      const auto id = static_cast<int32_t>(generator() % std::max(bound, static_cast<uint32_t>(k)));
      if (std::find(chosen.begin(), chosen.end(), id) == chosen.end()) chosen.push_back(id);
    }
    ids.insert(ids.end(), chosen.begin(), chosen.end());
  }
  return ids;
}

TEST(Moe, EqualsTheFormulaWithPaddedTokensAndUnusedExperts) {
  const MoeCase moe_case(12);
  constexpr int64_t h = MoeCase::kHidden;
  for (int64_t tokens : {1, 3, 40}) {
    const int32_t k = 4;
    const auto x = random_normal(1, tokens * h);
    const auto before = random_normal(2, tokens * h);
    auto ids = random_ids(3, tokens, k, 12);
    auto weights = random_normal(4, tokens * k);
    if (tokens > 1) {
      std::fill_n(ids.begin() + k, k, -1);   // token 1 is padding
      ids[2 * static_cast<size_t>(k)] = -1;  // and one choice of token 2 is missing
    }
    const auto y = moe_case.run(x, before, ids, weights, k);
    for (int64_t t = 0; t < tokens; ++t) {
      std::vector<double> expected(h, 0.0);
      for (int32_t j = 0; j < k; ++j) {
        const auto pair = static_cast<size_t>(t * k + j);
        if (ids[pair] < 0) continue;
        const auto out = moe_case.experts[static_cast<size_t>(ids[pair])].forward(row_of(x, t, h));
        for (size_t i = 0; i < out.size(); ++i) expected[i] += double{weights[pair]} * out[i];
      }
      for (size_t i = 0; i < static_cast<size_t>(h); ++i) {
        const auto at = static_cast<size_t>(t * h) + i;
        ASSERT_NEAR(y[at], double{before[at]} + expected[i], 4 * kTolerance) << "token " << t;
        if (t == 1) {
          ASSERT_EQ(y[at], before[at]) << "padding was written";
        }
      }
    }
  }
}

TEST(Moe, ATokenDoesNotDependOnItsBatchItsPlaceOrTheThreads) {
  const MoeCase moe_case(8);
  constexpr int64_t h = MoeCase::kHidden;
  constexpr int64_t tokens = 33;
  const int32_t k = 3;
  const auto x = random_normal(11, tokens * h);
  const auto before = random_normal(12, tokens * h);
  const auto ids = random_ids(13, tokens, k, 8);
  const auto weights = random_normal(14, tokens * k);
  const auto together = moe_case.run(x, before, ids, weights, k, 1);
  EXPECT_TRUE(same_bits(together, moe_case.run(x, before, ids, weights, k, 2)));
  EXPECT_TRUE(same_bits(together, moe_case.run(x, before, ids, weights, k, 3)));
  for (int64_t t = 0; t < tokens; ++t) {
    const std::vector<int32_t> own_ids(ids.begin() + t * k, ids.begin() + (t + 1) * k);
    const auto alone = moe_case.run(row_of(x, t, h), row_of(before, t, h), own_ids, row_of(weights, t, k), k);
    EXPECT_TRUE(same_bits(alone, row_of(together, t, h))) << "token " << t;
  }
}

TEST(Moe, LongBatchesRunInPassesWithoutAChange) {
  const MoeCase moe_case(4);
  constexpr int64_t h = MoeCase::kHidden;
  constexpr int64_t tokens = 1024 + 513;  // more than one pass
  const int32_t k = 2;
  const auto x = random_normal(21, tokens * h);
  const auto before = random_normal(22, tokens * h);
  const auto ids = random_ids(23, tokens, k, 4);
  const auto weights = random_normal(24, tokens * k);
  const auto together = moe_case.run(x, before, ids, weights, k);
  for (int64_t t : {int64_t{0}, int64_t{1023}, int64_t{1024}, tokens - 1}) {
    const std::vector<int32_t> own_ids(ids.begin() + t * k, ids.begin() + (t + 1) * k);
    const auto alone = moe_case.run(row_of(x, t, h), row_of(before, t, h), own_ids, row_of(weights, t, k), k);
    EXPECT_TRUE(same_bits(alone, row_of(together, t, h))) << "token " << t;
  }
}

TEST(Moe, OneExpertForAllAndOneTokenForEachFit) {
  // The two ends of how rows spread over experts, within the promised scratch.
  const MoeCase moe_case(16);
  constexpr int64_t h = MoeCase::kHidden;
  const auto x = random_normal(31, 16 * h);
  const std::vector<float> weights(16, 1.0f);
  std::vector<int32_t> spread(16);
  for (int32_t e = 0; e < 16; ++e) spread[static_cast<size_t>(e)] = e;
  const std::vector<float> zeros(16 * h, 0.0f);
  const auto same = moe_case.run(x, zeros, std::vector<int32_t>(16, 5), weights, 1);
  const auto each = moe_case.run(x, zeros, spread, weights, 1);
  EXPECT_TRUE(same_bits(row_of(same, 5, h), row_of(each, 5, h)));
  EXPECT_FALSE(same_bits(row_of(same, 6, h), row_of(each, 6, h)));
}

TEST(Moe, NoTokensIsNoWork) {
  const MoeCase moe_case(2);
  EXPECT_TRUE(moe_case.run({}, {}, {}, {}, 2).empty());
  const std::vector<float> row(MoeCase::kHidden, 1.0f);
  EXPECT_EQ(moe_case.run(row, row, {-1, -1}, {1, 1}, 2), row);
}

TEST(MoeDeathTest, AnUnknownExpertOrMissingScratchIsABrokenInvariant) {
  const MoeCase moe_case(2);
  const std::vector<float> row(MoeCase::kHidden, 1.0f);
  EXPECT_DEATH(moe_case.run(row, row, {0, 2}, {1, 1}, 2), "expert 2 was chosen among 2");
  HostOps ops;
  EXPECT_DEATH(moe(ops.stream, {.tokens = 1, .experts_per_token = 1, .num_experts = 1, .hidden = 8, .intermediate = 8}),
               "scratch");
}

TEST(MoeScratch, GrowsWithTokensUpToOnePass) {
  int64_t last = 0;
  for (int64_t tokens : {0, 1, 2, 16, 17, 128, 1024}) {
    const int64_t bytes = moe_scratch_bytes(tokens, 8, 256, 7168, 2048);
    EXPECT_GE(bytes, last);
    last = bytes;
  }
  EXPECT_EQ(moe_scratch_bytes(8192, 8, 256, 7168, 2048), last);
  // 1024 tokens of V3 through 8 experts each: activations of 369 MB; the rest must not dwarf them.
  EXPECT_LT(last, int64_t{1} << 30);
}

}  // namespace
}  // namespace lantern
