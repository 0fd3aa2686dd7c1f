// The two products by kv_b_proj around attention in latent space, one token at a time and many together.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "attention/mla.h"
#include "attention/test_support.h"
#include "base/dtype.h"

namespace lantern {
namespace {

struct Case {
  const char* name;
  DType dtype;
  int32_t rank;
  int32_t block_rows, block_cols;  // 0: no scales
};

// Ranks of one part and several, of whole vectors and not; scale blocks that cross heads, and some that the path for
// one token refuses.
constexpr Case kCases[] = {
    {"blocks of 128", DType::kF8E4M3, 512, 128, 128},
    {"two parts", DType::kF8E4M3, 640, 128, 128},
    {"small blocks", DType::kF8E4M3, 96, 5, 32},
    {"uneven rank", DType::kF8E4M3, 100, 128, 128},
    {"uneven blocks", DType::kF8E4M3, 96, 16, 48},
    {"one scale", DType::kF8E4M3, 512, 0, 0},
    {"bf16", DType::kBF16, 512, 0, 0},
};

class AbsorbTest : public testing::TestWithParam<Case> {};

TEST_P(AbsorbTest, EqualsFloat64AndATokensBitsDependOnThatTokenAlone) {
  const Case& c = GetParam();
  constexpr int64_t kTokens = 3;
  constexpr int32_t kHeads = 3, kNope = 72, kValue = 41;
  constexpr int64_t kRows = int64_t{kHeads} * (kNope + kValue);
  std::mt19937 generator(11);
  KvUpProjection kv_b;
  kv_b.dtype = c.dtype;
  kv_b.heads = kHeads;
  kv_b.nope_dim = kNope;
  kv_b.v_dim = kValue;
  kv_b.kv_lora_rank = c.rank;
  kv_b.global_scale = 0.3f;
  const auto element = static_cast<int64_t>(dtype_bytes(c.dtype, 1));
  kv_b.row_bytes = c.rank * element + 5;
  std::vector<std::byte> data(static_cast<size_t>(kRows * kv_b.row_bytes));
  std::vector<float> scales;
  if (c.block_rows != 0) {
    kv_b.block_rows = c.block_rows;
    kv_b.block_cols = c.block_cols;
    kv_b.scale_row_stride = (c.rank + c.block_cols - 1) / c.block_cols + 1;
    std::uniform_real_distribution<float> uniform(0.25f, 4.0f);
    scales.resize(static_cast<size_t>((kRows + c.block_rows - 1) / c.block_rows * kv_b.scale_row_stride));
    for (float& scale : scales) scale = uniform(generator);
    kv_b.scales = borrow_fixed(reinterpret_cast<const std::byte*>(scales.data()),
                               static_cast<int64_t>(scales.size() * sizeof(float)));
  }
  std::vector<double> weight(static_cast<size_t>(kRows * c.rank));
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t j = 0; j < c.rank; ++j) {
      std::byte* at = data.data() + row * kv_b.row_bytes + j * element;
      double value = 0.0;
      if (c.dtype == DType::kF8E4M3) {
        auto code = static_cast<uint8_t>(generator());
        if ((code & 0x7f) == 0x7f) code &= 0x83;
        *at = std::byte{code};
        value = double{to_float(e4m3_t{code})};
      } else {
        const bf16_t code = to_bf16(static_cast<float>(static_cast<int>(generator() % 2001) - 1000) / 500.0f);
        std::memcpy(at, &code, sizeof(code));
        value = double{to_float(code)};
      }
      const int64_t block = c.block_rows == 0 ? 0 : row / c.block_rows * kv_b.scale_row_stride + j / c.block_cols;
      weight[static_cast<size_t>(row * c.rank + j)] =
          value * double{kv_b.global_scale} * (c.block_rows == 0 ? 1.0 : double{scales[static_cast<size_t>(block)]});
    }
  }
  kv_b.data = borrow_fixed(static_cast<const std::byte*>(data.data()), static_cast<int64_t>(data.size()));
  const std::vector<float> q = test::random_floats(generator, kTokens * kHeads * kNope);
  const std::vector<float> latent = test::random_floats(generator, static_cast<size_t>(kTokens * kHeads * c.rank));

  test::Host host(2);
  // Tokens [first, first + tokens): the absorbed queries, then the projected values; NaN what is not written.
  const auto run = [&](int64_t first, int64_t tokens) {
    std::vector<float> absorbed(static_cast<size_t>(tokens * kHeads * c.rank), NAN);
    std::vector<float> projected(static_cast<size_t>(tokens * kHeads * kValue), NAN);
    AbsorbQueryParams absorb;
    absorb.q = borrow_fixed(q.data() + first * kHeads * kNope, tokens * kHeads * kNope);
    absorb.q_token_stride = kHeads * kNope;
    absorb.q_head_stride = kNope;
    absorb.kv_b = kv_b;
    absorb.q_latent = test::fixed(absorbed);
    absorb.tokens = tokens;
    absorb_query(host.stream, absorb);
    ProjectValueParams project;
    project.out_latent = borrow_fixed(latent.data() + first * kHeads * c.rank, tokens * kHeads * c.rank);
    project.kv_b = kv_b;
    project.out = test::fixed(projected);
    project.tokens = tokens;
    project_value(host.stream, project);
    absorbed.insert(absorbed.end(), projected.begin(), projected.end());
    return absorbed;
  };
  const std::vector<float> all = run(0, kTokens);
  const int64_t absorbed_floats = kHeads * c.rank, projected_floats = kHeads * kValue;
  for (int64_t t = 0; t < kTokens; ++t) {
    const std::vector<float> one = run(t, 1);
    ASSERT_EQ(std::memcmp(one.data(), all.data() + t * absorbed_floats, static_cast<size_t>(absorbed_floats) * 4), 0);
    ASSERT_EQ(std::memcmp(one.data() + absorbed_floats, all.data() + kTokens * absorbed_floats + t * projected_floats,
                          static_cast<size_t>(projected_floats) * 4),
              0);
    // A value and each step of a sum of n products are rounded by 2^-24 of a partial sum: n * 2^-24 of the sum of
    // magnitudes bounds both. One scale or one product in error changes it by a share of 1 / n or more.
    const auto check = [](float got, double sum, double magnitude, int64_t n) {
      ASSERT_LE(std::abs(double{got} - sum), magnitude * static_cast<double>(n + 2) * 0x1p-24);
    };
    for (int64_t h = 0; h < kHeads; ++h) {
      const double* head = weight.data() + h * (kNope + kValue) * c.rank;
      for (int64_t j = 0; j < c.rank; ++j) {
        double sum = 0.0, magnitude = 0.0;
        for (int64_t i = 0; i < kNope; ++i) {
          const double product = double{q[static_cast<size_t>((t * kHeads + h) * kNope + i)]} * head[i * c.rank + j];
          sum += product;
          magnitude += std::abs(product);
        }
        check(one[static_cast<size_t>(h * c.rank + j)], sum, magnitude, kNope);
      }
      for (int64_t v = 0; v < kValue; ++v) {
        double sum = 0.0, magnitude = 0.0;
        for (int64_t j = 0; j < c.rank; ++j) {
          const double product =
              double{latent[static_cast<size_t>((t * kHeads + h) * c.rank + j)]} * head[(kNope + v) * c.rank + j];
          sum += product;
          magnitude += std::abs(product);
        }
        check(one[static_cast<size_t>(absorbed_floats + h * kValue + v)], sum, magnitude, c.rank);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Weights, AbsorbTest, testing::ValuesIn(kCases));

}  // namespace
}  // namespace lantern
