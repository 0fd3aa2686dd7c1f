// The multi-token-prediction layer against our own PyTorch (which agrees with transformers' layer where that exists).
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <tuple>

#include "device/devices_test.h"
#include "golden/compare.h"
#include "golden/golden_case.h"
#include "golden/loaded_case.h"
#include "golden/model_run.h"

namespace lantern::golden {
namespace {

int32_t argmax(const float* values, int64_t count) {
  return static_cast<int32_t>(std::max_element(values, values + count) - values);
}

using MtpCase = std::tuple<const char*, test::DeviceFactory>;
class Mtp : public testing::TestWithParam<MtpCase> {};

TEST_P(Mtp, DraftsOfEveryPositionAndTwoChained) {
  const auto& [name, factory] = GetParam();
  Result<std::unique_ptr<Device>> device = factory.make();
  if (!device.ok()) GTEST_SKIP() << "no device: " << device.error().message();
  LoadedCase loaded(name, 2, std::move(device).value());
  const GoldenCase& golden = loaded.golden();
  std::unique_ptr<ModelRun> run = loaded.make_run();
  ASSERT_NE(run, nullptr);
  ASSERT_TRUE(run->model().has_mtp());
  const std::vector<std::vector<int32_t>> tokens{golden.input_ids(0), golden.input_ids(1)};
  std::vector<int32_t> lengths;
  std::vector<std::vector<int32_t>> next_tokens;
  for (int s = 0; s < golden.num_sequences(); ++s) {
    std::vector<int32_t> next(tokens[static_cast<size_t>(s)].begin() + 1, tokens[static_cast<size_t>(s)].end());
    next.push_back(golden.of(s, "mtp.tokens").ints()[0]);
    lengths.push_back(static_cast<int32_t>(next.size()));
    next_tokens.push_back(std::move(next));
  }
  const auto target = run->run(tokens, make_schedule(Schedule::kOneShot, lengths));
  const std::vector<Matrix> hidden{target[0].final, target[1].final};
  for (Schedule schedule : {Schedule::kBatched, Schedule::kChunks, Schedule::kTokenByToken}) {
    SCOPED_TRACE(to_string(schedule));
    const auto drafts = run->run_mtp(hidden, next_tokens, make_schedule(schedule, lengths));
    for (int s = 0; s < golden.num_sequences(); ++s) {
      const auto index = static_cast<size_t>(s);
      const Comparison result = compare_mtp(golden, s, drafts[index]);
      EXPECT_TRUE(result.problems.empty()) << result.summary();
      std::cout << name << " MTP, " << to_string(schedule) << ", sequence " << s << ": " << result.summary() << "\n";
      const int32_t first = argmax(drafts[index].logits.row(lengths[index] - 1), drafts[index].logits.cols);
      ASSERT_EQ(first, golden.of(s, "mtp.tokens").ints()[1]);

      // The second draft: one position on, fed with the layer's own output at the last one.
      const bool normed = run->model().config().mtp_chains_normed;
      std::vector<Matrix> chained = hidden;
      const Matrix& output = normed ? drafts[index].final : drafts[index].layers[0].hidden;
      chained[index].append(output.row(lengths[index] - 1), 1);
      std::vector<std::vector<int32_t>> chained_tokens = next_tokens;
      chained_tokens[index].push_back(first);
      const auto second = run->run_mtp(chained, chained_tokens, {{{s, lengths[index], 1, true}}});
      const Difference off =
          difference(second[index].logits,
                     golden.of(s, normed ? "mtp.second_logits_after_norm" : "mtp.second_logits_before_norm"), {0}, {});
      EXPECT_LE(off.max, tolerance_of(golden).max) << "second draft of sequence " << s;
      if (!run->model().config().mtp_shares_selection) continue;

      // The same with the keys of the first draft, which the run of its one token leaves behind.
      run->run_mtp(hidden, next_tokens, {{{s, lengths[index] - 1, 1, true}}});
      const auto shared =
          run->run_mtp(chained, chained_tokens, {{{s, lengths[index], 1, true}}}, Model::MtpSelection::kReused);
      const Difference with_its_keys =
          difference(shared[index].logits, golden.of(s, "mtp.second_logits_shared"), {0}, {});
      EXPECT_LE(with_its_keys.max, tolerance_of(golden).max) << "second draft of sequence " << s << " by the first's";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, Mtp,
                         testing::Combine(testing::Values("v3", "v32", "glm5", "glm47f"),
                                          testing::ValuesIn(test::test_devices())),
                         [](const testing::TestParamInfo<MtpCase>& test) {
                           return std::string(std::get<0>(test.param)) + "_" + std::get<1>(test.param).name;
                         });

}  // namespace
}  // namespace lantern::golden
