// Every architecture against transformers: choices of indexer and router, hidden states, logits, greedy continuation,
// for every way of cutting sequences into steps.
#include <gtest/gtest.h>

#include <cstring>
#include <iostream>
#include <tuple>

#include "device/devices_test.h"
#include "golden/compare.h"
#include "golden/golden_case.h"
#include "golden/loaded_case.h"
#include "golden/model_run.h"

namespace lantern::golden {
namespace {

struct CaseName {
  const char* name;
  int shards;  // some checkpoints are one file, some several with an index
};
constexpr CaseName kCases[] = {
    {"v2lite", 1},        {"v2", 3},        {"v3", 1},         {"v3_fp8", 3},       {"v32", 3},       {"v32_fp8", 1},
    {"v32_bf16", 1},      {"glm5", 2},      {"glm47f", 1},     {"k2", 1},           {"moonlight", 2}, {"v3_kdims", 1},
    {"v3_kdims_bf16", 2}, {"v32_kdims", 2}, {"glm5_kdims", 1}, {"glm47f_kdims", 1},
};
constexpr Schedule kSchedules[] = {Schedule::kOneShot, Schedule::kBatched, Schedule::kChunks, Schedule::kTokenByToken,
                                   Schedule::kMixed};

std::vector<std::vector<int32_t>> inputs(const GoldenCase& golden) {
  return {golden.input_ids(0), golden.input_ids(1)};
}

std::vector<int32_t> lengths(const std::vector<std::vector<int32_t>>& tokens) {
  std::vector<int32_t> result;
  result.reserve(tokens.size());
  for (const auto& ids : tokens) result.push_back(static_cast<int32_t>(ids.size()));
  return result;
}

bool same_bits(const Matrix& a, const Matrix& b) {
  return a.values.size() == b.values.size() &&
         std::memcmp(a.values.data(), b.values.data(), a.values.size() * sizeof(float)) == 0;
}

class Golden : public testing::TestWithParam<std::tuple<CaseName, test::DeviceFactory>> {
 protected:
  void SetUp() override {
    Result<std::unique_ptr<Device>> device = std::get<1>(GetParam()).make();
    if (!device.ok()) GTEST_SKIP() << "no device: " << device.error().message();
    loaded_ = std::make_unique<LoadedCase>(name(), std::get<0>(GetParam()).shards, std::move(device).value());
  }
  const char* name() const { return std::get<0>(GetParam()).name; }

  std::unique_ptr<LoadedCase> loaded_;
};

TEST_P(Golden, EverySchedule) {
  LoadedCase& loaded = *loaded_;
  std::unique_ptr<ModelRun> run = loaded.make_run();
  ASSERT_NE(run, nullptr);
  const auto tokens = inputs(loaded.golden());
  std::vector<SequenceCapture> one_shot;
  for (Schedule schedule : kSchedules) {
    SCOPED_TRACE(to_string(schedule));
    const std::vector<SequenceCapture> captures = run->run(tokens, make_schedule(schedule, lengths(tokens)));
    for (int s = 0; s < loaded.golden().num_sequences(); ++s) {
      const Comparison result = compare_sequence(loaded.golden(), s, captures[static_cast<size_t>(s)]);
      EXPECT_TRUE(result.problems.empty()) << result.summary();
      std::cout << name() << ", " << to_string(schedule) << ", sequence " << s << ": " << result.summary() << "\n";
    }
    if (schedule == Schedule::kOneShot) one_shot = captures;
    // One form of attention, other batches and chunks: the very same bits.
    if (schedule == Schedule::kBatched || schedule == Schedule::kChunks) {
      for (size_t s = 0; s < captures.size(); ++s) {
        EXPECT_TRUE(same_bits(captures[s].logits, one_shot[s].logits)) << "sequence " << s;
      }
    }
  }
}

TEST_P(Golden, PaddingAndThreadsDoNotChangeABit) {
  LoadedCase& loaded = *loaded_;
  const auto tokens = inputs(loaded.golden());
  std::unique_ptr<ModelRun> run = loaded.make_run();
  ASSERT_NE(run, nullptr);
  const std::vector<Step> steps = make_schedule(Schedule::kMixed, lengths(tokens));
  const auto plain = run->run(tokens, steps);
  const auto padded = run->run(tokens, steps, /*padding=*/5);
  for (size_t s = 0; s < plain.size(); ++s) {
    EXPECT_TRUE(same_bits(plain[s].logits, padded[s].logits)) << "padding, sequence " << s;
  }
  if (std::get<1>(GetParam()).name != "cpu") return;
  LoadedCase single(name(), std::get<0>(GetParam()).shards, /*threads=*/1);
  std::unique_ptr<ModelRun> single_run = single.make_run();
  ASSERT_NE(single_run, nullptr);
  const auto one_thread = single_run->run(tokens, steps);
  for (size_t s = 0; s < plain.size(); ++s) {
    EXPECT_TRUE(same_bits(plain[s].logits, one_thread[s].logits)) << "one thread, sequence " << s;
  }
}

TEST_P(Golden, GreedyContinuation) {
  LoadedCase& loaded = *loaded_;
  std::unique_ptr<ModelRun> run = loaded.make_run();
  ASSERT_NE(run, nullptr);
  const GoldenCase& golden = loaded.golden();
  for (int s = 0; s < golden.num_sequences(); ++s) {
    const GoldenTensor& want = golden.of(s, "greedy");
    const GoldenTensor& margin = golden.of(s, "greedy_margin");
    const GoldenTensor& logits = golden.of(s, "logits");
    float largest = 0;
    for (int64_t i = 0; i < logits.rows() * logits.cols(); ++i)
      largest = std::max(largest, std::abs(logits.floats()[i]));
    const std::vector<int32_t> got = run->greedy(golden.input_ids(s), static_cast<int>(want.rows()));
    int compared = 0;
    for (int64_t i = 0; i < want.rows(); ++i, ++compared) {
      // Two logits may each be off by the tolerance; from a closer call on, the texts may part.
      if (margin.floats()[i] < 2 * tolerance_of(golden, run->device_kind()).max * largest) break;
      EXPECT_EQ(got[static_cast<size_t>(i)], want.ints()[i]) << "sequence " << s << ", token " << i;
    }
    if (!golden.rounded()) {
      EXPECT_EQ(compared, want.rows());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, Golden,
                         testing::Combine(testing::ValuesIn(kCases), testing::ValuesIn(test::test_devices())),
                         [](const auto& test) {
                           return std::string(std::get<0>(test.param).name) + "_" + std::get<1>(test.param).name;
                         });

}  // namespace
}  // namespace lantern::golden
