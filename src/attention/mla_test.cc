// Both forms of MLA against float64, over one list of cases.
#include "attention/mla.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "attention/host_amx.h"
#include "attention/test_support.h"

namespace lantern {
namespace {

using test::Case;
using test::Host;
using test::MlaResult;
using test::Problem;

// The absorbed form, and the expanded one without matrix units: everything is computed in float over exactly the values
// that the cache and the weights hold, so the error is that of float sums: scores of magnitude ~3 made of up to 576
// products, values of magnitude ~1. Relative to |value| + 1 the worst measured over all cases is 1.3e-6; a key too many
// or too few among L <= 513 changes it by 1e-3 and more.
constexpr double kOutTolerance = 4e-6;
constexpr double kLseTolerance = 3e-6;
// The expanded form on matrix units multiplies bf16 pieces, right to 2^-16 = 1.5e-5 of a product's size; the worst
// measured is 1.2e-5 (values) and 4.2e-6 (log-sum-exp). Plain bf16 products, measured as well, are wrong by 6e-3.
constexpr double kSplitOutTolerance = 4e-5;
constexpr double kSplitLseTolerance = 1.5e-5;

std::vector<Case> cases() {
  std::vector<Case> list;
  const auto add = [&](Case c) { list.push_back(std::move(c)); };
  for (const int32_t length : {0, 1, 63, 64, 65, 200, 513}) {
    add({.name = "decode_len" + std::to_string(length), .requests = {{length, 1}}, .padding = 1});
    add({.name = "prefill_len" + std::to_string(length), .requests = {{length, length}}, .padding = 2});
  }
  for (const int32_t heads : {1, 4, 5, 20, 128}) {
    add({.name = "heads" + std::to_string(heads), .heads = heads, .requests = {{130, 3}, {65, 2}}});
  }
  // Every number of a decode's tokens, at the head counts that models have.
  for (const int32_t heads : {4, 8, 16, 20, 32, 64, 128}) {
    for (const int32_t next_n : {1, 2, 3, 4, 5, 6}) {
      add({.name = "heads" + std::to_string(heads) + "_next_n" + std::to_string(next_n),
           .heads = heads,
           .kv_lora_rank = 64,
           .rope_dim = 8,
           .layout = LatentLayout::kBf16,
           .requests = {{66, next_n}, {3, next_n}, {0, next_n}},
           .padding = 1});
    }
  }
  // Keys a place further than their positions, as the MTP layer has them: the last key of a length begins a block.
  for (const int32_t length : {0, 1, 63, 64, 65, 200}) {
    add({.name = "key_offset_len" + std::to_string(length),
         .requests = {{length, 2}, {129, 66}},
         .padding = 1,
         .key_offset = 1});
  }
  for (const LatentLayout layout : {LatentLayout::kF32, LatentLayout::kBf16, LatentLayout::kFp8}) {
    add({.name = "key_offset_sparse_" + std::string(to_string(layout)),
         .layout = layout,
         .requests = {{255, 20}, {63, 2}},
         .padding = 1,
         .block_size = 16,
         .top_k = 64,
         .key_offset = 1});
  }
  // The selection of published models, of just as many keys, one fewer and more, in several ranges.
  for (const int32_t length : {2047, 2048, 2049, 4200}) {
    add({.name = "sparse_2048_of_" + std::to_string(length),
         .heads = 2,
         .layout = LatentLayout::kFp8,
         .requests = {{length, 2}},
         .top_k = 2048});
  }
  add({.name = "query_longer_than_length", .requests = {{2, 5}, {70, 1}}});
  add({.name = "two_requests_padded", .requests = {{200, 70}, {65, 65}}, .padding = 5});
  add({.name = "idle_request_between", .requests = {{65, 2}, {0, 0}, {130, 66}}});
  add({.name = "block_size_16", .requests = {{200, 9}, {33, 33}}, .block_size = 16});
  add({.name = "block_size_128", .requests = {{300, 150}}, .block_size = 128});
  add({.name = "nano_dims",
       .heads = 3,
       .kv_lora_rank = 32,
       .rope_dim = 8,
       .nope_dim = 16,
       .v_dim = 16,
       .requests = {{90, 30}}});
  add({.name = "odd_dims",
       .heads = 2,
       .kv_lora_rank = 37,
       .rope_dim = 6,
       .nope_dim = 11,
       .v_dim = 13,
       .requests = {{90, 30}}});
  for (const LatentLayout layout : {LatentLayout::kF32, LatentLayout::kBf16, LatentLayout::kFp8}) {
    const std::string name(to_string(layout));
    add({.name = "cache_" + name, .layout = layout, .requests = {{200, 40}, {65, 1}}, .padding = 1});
    add({.name = "tiny_" + name,
         .heads = 4,
         .kv_lora_rank = 512,
         .rope_dim = 64,
         .nope_dim = 128,
         .v_dim = 128,
         .layout = layout,
         .weight_dtype = DType::kBF16,
         .requests = {{513, 3}}});
    add({.name = "sparse_" + name, .layout = layout, .requests = {{513, 20}, {63, 2}}, .padding = 1, .top_k = 64});
  }
  add({.name = "glm_flash",
       .heads = 20,
       .kv_lora_rank = 512,
       .rope_dim = 64,
       .nope_dim = 192,
       .v_dim = 256,
       .layout = LatentLayout::kFp8,
       .weight_dtype = DType::kBF16,
       .requests = {{130, 2}}});
  add({.name = "weight_f16", .weight_dtype = DType::kF16, .requests = {{65, 3}}});
  // Heads * (nope + v) = 5 * 44 = 220 rows: the second block of rows is partial.
  add({.name = "weight_fp8_f32_scales",
       .heads = 5,
       .kv_lora_rank = 256,
       .weight_dtype = DType::kF8E4M3,
       .scale_dtype = DType::kF32,
       .requests = {{65, 3}}});
  add({.name = "weight_fp8_e8m0_scales",
       .heads = 5,
       .kv_lora_rank = 160,
       .weight_dtype = DType::kF8E4M3,
       .scale_dtype = DType::kF8E8M0,
       .requests = {{65, 3}}});
  add({.name = "sparse_one", .requests = {{200, 5}}, .top_k = 1});
  add({.name = "sparse_wide", .requests = {{700, 4}}, .top_k = 300});
  return list;
}

class Conformance : public testing::TestWithParam<Case> {};

TEST_P(Conformance, EqualsFloat64) {
  Problem problem(GetParam());
  Host host(2);
  const test::Reference want = test::reference_mla(problem);
  const MlaResult absorbed = run_absorbed(problem, host);
  EXPECT_LE(test::worst_error(absorbed.out, want.out, 1.0), kOutTolerance) << "absorbed";
  EXPECT_LE(test::worst_error(absorbed.lse, want.lse, 1.0), kLseTolerance) << "absorbed";
  const bool split = missing_host_amx() == nullptr && GetParam().layout != LatentLayout::kF32;
  const MlaResult expanded = run_expanded(problem, host);
  EXPECT_LE(test::worst_error(expanded.out, want.out, 1.0), split ? kSplitOutTolerance : kOutTolerance) << "expanded";
  EXPECT_LE(test::worst_error(expanded.lse, want.lse, 1.0), split ? kSplitLseTolerance : kLseTolerance) << "expanded";
  const MlaResult plain = test::run_expanded_without_amx(problem, host);
  EXPECT_LE(test::worst_error(plain.out, want.out, 1.0), kOutTolerance) << "expanded, without matrix units";
  EXPECT_LE(test::worst_error(plain.lse, want.lse, 1.0), kLseTolerance) << "expanded, without matrix units";
}

INSTANTIATE_TEST_SUITE_P(Mla, Conformance, testing::ValuesIn(cases()),
                         [](const auto& instance) { return instance.param.name; });

// A row without keys is exactly zero, whatever the output held before.
TEST(Mla, RowsWithoutKeysGiveZeroAndMinusInfinity) {
  Problem problem({.name = "", .layout = LatentLayout::kBf16, .requests = {{0, 1}, {1, 3}}, .padding = 2});
  ASSERT_EQ(problem.token_context_len, (std::vector<int32_t>{0, 0, 0, 1, 0, 0}));
  Host host(2);
  for (const MlaResult& result :
       {run_absorbed(problem, host), run_expanded(problem, host), test::run_expanded_without_amx(problem, host)}) {
    for (size_t t = 0; t < 6; ++t) {
      const bool empty = t != 3;
      for (size_t i = 0; i < 4 * 20; ++i) EXPECT_EQ(result.out[t * 80 + i] == 0.0f, empty);
      for (size_t h = 0; h < 4; ++h) EXPECT_EQ(std::isinf(result.lse[t * 4 + h]), empty);
    }
  }
}

std::vector<MlaResult> run_all(Problem& problem, Host& host) {
  return {run_absorbed(problem, host), run_expanded(problem, host), test::run_expanded_without_amx(problem, host)};
}

void expect_nan(const MlaResult& result, size_t token, bool nan) {
  for (size_t i = 0; i < 4 * 20; ++i) EXPECT_EQ(std::isnan(result.out[token * 80 + i]), nan) << token << " " << i;
  for (size_t h = 0; h < 4; ++h) EXPECT_EQ(std::isnan(result.lse[token * 4 + h]), nan) << token << " " << h;
}

// What is not a number must not come out as a row without keys: with many keys, and with fewer than a tile.
TEST(Mla, NaNQueriesGiveNaN) {
  const Case shape{.name = "", .layout = LatentLayout::kBf16, .requests = {{300, 2}, {70, 1}, {5, 2}, {1, 1}}};
  Host host(2);
  for (size_t bad = 0; bad < 6; ++bad) {
    Problem problem(shape);
    const size_t width = 4 * 40;
    std::fill_n(problem.q.begin() + static_cast<ptrdiff_t>(bad * width), width,
                std::numeric_limits<float>::quiet_NaN());
    for (const MlaResult& result : run_all(problem, host)) {
      for (size_t t = 0; t < 6; ++t) expect_nan(result, t, t == bad);
    }
  }
}

// A key of request 1 whose first latent value, or first rotated value, is NaN: who sees it is NaN, other requests not.
TEST(Mla, NaNKeysGiveNaN) {
  Host host(2);
  for (const LatentLayout layout : {LatentLayout::kF32, LatentLayout::kBf16, LatentLayout::kFp8}) {
    const int64_t rope_at = layout == LatentLayout::kF32 ? 4 * 128 : layout == LatentLayout::kBf16 ? 2 * 128 : 128 + 4;
    for (const auto& [length, position] : {std::pair(5, 0), {5, 4}, {64, 63}, {300, 270}}) {
      for (const bool rotated : {false, true}) {
        Problem problem({.name = "", .layout = layout, .requests = {{70, 2}, {length, 1}, {9, 1}}});
        std::byte* at = problem.cache.data() + problem.slot(1, position) * problem.row_bytes + (rotated ? rope_at : 0);
        const float nan = std::numeric_limits<float>::quiet_NaN();
        const uint16_t half = to_bf16(nan).bits;
        if (layout == LatentLayout::kF32) {
          std::memcpy(at, &nan, sizeof nan);
        } else if (layout == LatentLayout::kBf16 || rotated) {  // what is rotated is bf16 beside FP8 as well
          std::memcpy(at, &half, sizeof half);
        } else {
          *at = std::byte{0x7f};
        }
        for (const MlaResult& result : run_all(problem, host)) {
          for (size_t t = 0; t < 4; ++t) expect_nan(result, t, t == 2);
        }
      }
    }
  }
}

}  // namespace
}  // namespace lantern
