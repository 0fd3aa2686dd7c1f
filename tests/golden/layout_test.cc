// The caches that serving uses (bf16 and FP8 latents, FP8 index keys with and without the Hadamard rotation) against a
// float64 PyTorch run that rounds by the same published formats.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <iostream>
#include <numeric>
#include <set>

#include "golden/compare.h"
#include "golden/golden_case.h"
#include "golden/loaded_case.h"
#include "golden/model_run.h"

namespace lantern::golden {
namespace {

struct Layouts {
  const char* name;  // as in reference.py: tensors "served.<name>.*"
  LatentLayout latent;
  IndexKeyLayout index;
  bool hadamard;
};

constexpr Layouts kLayouts[] = {
    {"bf16", LatentLayout::kBf16, IndexKeyLayout::kF32, false},
    {"fp8", LatentLayout::kFp8, IndexKeyLayout::kF32, false},
    {"bf16_index_fp8", LatentLayout::kBf16, IndexKeyLayout::kFp8, false},
    {"bf16_index_fp8_hadamard", LatentLayout::kBf16, IndexKeyLayout::kFp8, true},
    {"fp8_index_fp8", LatentLayout::kFp8, IndexKeyLayout::kFp8, false},
};

// A float32 run now and then rounds a value to the other neighbour than the float64 golden does. One such value among
// 576 of a row is worth some 1e-4 of the largest logit, and may swap keys whose scores are close. Results that are not
// rounded at all, or with another scale, lie 5e-4 to 2e-2 away on average.
constexpr double kMaxError = 2e-3;
constexpr double kMeanError = 1e-4;
constexpr double kClearGap = 2e-2;  // relative to the largest score of the row
constexpr double kMaxDiffering = 0.03;

Matrix golden_rows(const GoldenTensor& tensor) {
  Matrix matrix{.cols = tensor.cols(), .values = {}};
  matrix.append(tensor.floats(), tensor.rows());
  return matrix;
}

std::vector<int32_t> counting(const std::vector<int32_t>& like) {
  std::vector<int32_t> rows(like.size());
  std::iota(rows.begin(), rows.end(), 0);
  return rows;
}

std::vector<int32_t> keys_of(const GoldenTensor& bits, int64_t row) {
  std::vector<int32_t> keys;
  const uint8_t* octets = bits.octets() + row * bits.cols();
  for (int64_t key = 0; key < bits.cols() * 8; ++key) {
    if ((octets[key / 8] >> (key % 8)) & 1) keys.push_back(static_cast<int32_t>(key));
  }
  return keys;
}

class CacheLayouts : public testing::TestWithParam<Layouts> {};

TEST_P(CacheLayouts, RoundAsPublished) {
  const Layouts& layouts = GetParam();
  LoadedCase loaded("v32_kdims");
  const GoldenCase& golden = loaded.golden();
  std::unique_ptr<ModelRun> run =
      loaded.make_run({.layouts = {layouts.latent, layouts.index}, .index_hadamard = layouts.hadamard});
  ASSERT_NE(run, nullptr);
  const std::vector<std::vector<int32_t>> tokens{golden.input_ids(0), golden.input_ids(1)};
  const std::vector<int32_t> lengths{static_cast<int32_t>(tokens[0].size()), static_cast<int32_t>(tokens[1].size())};
  const std::string prefix = fmt::format("served.{}.", layouts.name);
  for (Schedule schedule : {Schedule::kOneShot, Schedule::kMixed}) {
    SCOPED_TRACE(to_string(schedule));
    const auto captures = run->run(tokens, make_schedule(schedule, lengths));
    for (int s = 0; s < golden.num_sequences(); ++s) {
      const SequenceCapture& got = captures[static_cast<size_t>(s)];
      std::set<int32_t> differ;  // tokens whose selection differs somewhere: left out of the comparison of logits
      for (size_t layer = 0; layer < got.layers.size(); ++layer) {
        const GoldenTensor& want = golden.of(s, fmt::format("{}selected.{}", prefix, layer));
        const float* gap = golden.of(s, fmt::format("{}selected_gap.{}", prefix, layer)).floats();
        for (int64_t t = 0; t < want.rows(); ++t) {
          const std::vector<int32_t>& selected = got.layers[layer].selected.at(static_cast<size_t>(t));
          if (selected == keys_of(want, t) || !differ.insert(static_cast<int32_t>(t)).second) continue;
          EXPECT_LT(gap[t], kClearGap) << "keys of token " << t << " in layer " << layer;
        }
      }
      EXPECT_LE(static_cast<double>(differ.size()), kMaxDiffering * lengths[static_cast<size_t>(s)]);
      const std::vector<int32_t> positions = golden.integers(s, "logit_positions");
      const Difference logits = difference(got.logits, golden.of(s, prefix + "logits"), positions, differ);
      EXPECT_LE(logits.max, kMaxError) << "token " << logits.worst_position;
      EXPECT_LE(logits.mean, kMeanError);
      std::cout << fmt::format("{}, {}, sequence {}: logits off by {:.1e} (mean {:.1e}), {} of {} selections differ\n",
                               layouts.name, to_string(schedule), s, logits.max, logits.mean, differ.size(),
                               lengths[static_cast<size_t>(s)]);
      // Rounding is what this test is about: without it the logits would be far from these.
      EXPECT_GT(
          difference(golden_rows(golden.of(s, "logits")), golden.of(s, prefix + "logits"), counting(positions), {})
              .mean,
          4 * kMeanError);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Served, CacheLayouts, testing::ValuesIn(kLayouts),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace lantern::golden
