// The list of full sizes, laid out but not made: it is too large for most machines.
#include "cli/kernel_cases.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

namespace lantern::cli {
namespace {

struct Laid {
  KernelWork work;
  size_t memory = 0;
};

Laid laid_out(const KernelCase& one) {
  Workspace workspace = Workspace::counting();
  KernelMemory memory(workspace, nullptr);
  KernelWork work = one.make(memory, 132);
  return {.work = std::move(work), .memory = workspace.peak_bytes()};
}

TEST(KernelCases, CountWhatTheyReadAndCompute) {
  std::map<std::string, Laid> all;
  for (const KernelCase& one : kernel_cases(CaseSize::kFull)) {
    Laid laid = laid_out(one);
    EXPECT_GT(laid.work.bytes, 0) << one.name;
    EXPECT_LT(laid.memory, size_t{64} << 30) << one.name << " leaves no room on a GPU";
    EXPECT_TRUE(all.emplace(one.name, std::move(laid)).second) << one.name << " is there twice";
  }
  const auto bytes = [&](const char* name) { return static_cast<double>(all.at(name).work.bytes); };
  const auto flops = [&](const char* name) { return all.at(name).work.flops; };
  // e4m3 and a float for 128x128 of them; activations are floats.
  EXPECT_EQ(bytes("linear fp8 7168x16384 rows 8"), 7168 * 16384 * (1 + 4.0 / 16384) + 8 * (7168 + 16384) * 4);
  EXPECT_EQ(bytes("linear bf16 129280x7168 rows 1"), 129280 * 7168 * 2.0 + (129280 + 7168) * 4);
  EXPECT_EQ(flops("linear fp8 7168x2048 rows 64"), 2.0 * 64 * 7168 * 2048);
  EXPECT_EQ(flops("linear bf16 7168x16384 rows 2048"), 2.0 * 2048 * 7168 * 16384);
  // 64 of the experts, and of 512 pairs all 256; three matrices each.
  const double expert = 3 * 7168 * 2048 * (1 + 4.0 / 16384);
  EXPECT_EQ(bytes("moe fp8 256x7168x2048 tokens 8"), 64 * expert + 8 * 3 * 7168 * 4);
  EXPECT_EQ(bytes("moe fp8 256x7168x2048 tokens 64"), 256 * expert + 64 * 3 * 7168 * 4);
  EXPECT_EQ(flops("moe fp8 256x7168x2048 tokens 64"), 6.0 * 512 * 7168 * 2048);
  EXPECT_GT(all.at("moe fp8 256x7168x2048 tokens 1").memory, size_t{11'270'000'000});
  // 2048 keys of 656 bytes; queries and outputs are floats.
  EXPECT_EQ(bytes("mla_decode sparse fp8 heads 128 batch 1 n 1, 2048 of 32768 keys each"),
            2048 * 656 + 128 * (2 * 512 + 64 + 1) * 4 + 2048 * 4);
  EXPECT_EQ(flops("mla_decode sparse fp8 heads 128 batch 128 n 2, 2048 of 32768 keys each"),
            2.0 * 256 * 128 * 1088 * 2048);
  // Two choices of 2048 among 32768 have 128 in common on average.
  const double both = bytes("mla_decode sparse fp8 heads 128 batch 128 n 2, 2048 of 32768 keys each") -
                      256.0 * (128 * (2 * 512 + 64 + 1) * 4 + 2048 * 4);
  EXPECT_NEAR(both / 656 / 128, 2 * 2048 - 128, 16);
  EXPECT_EQ(bytes("mla_decode dense bf16 heads 128 batch 128 n 1, 32768 keys each"),
            128 * 32768 * 1152.0 + 128.0 * 128 * (2 * 512 + 64 + 1) * 4);
  // 132 bytes a key.
  EXPECT_EQ(bytes("index_select fp8 heads 64 batch 1, 2048 of 1048576 keys each"),
            1048576.0 * 132 + (64 * 129 + 2 * 2048) * 4);
  EXPECT_EQ(flops("index_select fp8 heads 64 batch 8, 2048 of 131072 keys each"), 2.0 * 64 * 128 * 8 * 131072);
  EXPECT_EQ(bytes("add_rms_norm 7168 rows 1"), 5 * 7168 * 4);
}

TEST(KernelCases, GoalsAreMicrosecondsAboveAShareOfTheFloor) {
  EXPECT_FALSE(KernelGoal{}.is_set());
  EXPECT_EQ((KernelGoal{.us = 450}).most_us(7), 450);
  EXPECT_NEAR((KernelGoal{.share = 0.7}).most_us(70), 100, 1e-9);
  EXPECT_NEAR((KernelGoal{.share = 0.5, .us = 25}).most_us(70), 165, 1e-9);
  std::set<std::string> with_goals;
  for (const KernelCase& one : kernel_cases(CaseSize::kFull)) {
    if (one.goal.is_set()) with_goals.insert(one.name.substr(0, one.name.find(' ')));
  }
  EXPECT_EQ(with_goals, (std::set<std::string>{"index_select", "linear", "mla_decode", "moe"}));
  for (const KernelCase& one : kernel_cases(CaseSize::kSmall)) EXPECT_FALSE(one.goal.is_set()) << one.name;
}

TEST(KernelCases, SmallOnesAreSmall) {
  for (const KernelCase& one : kernel_cases(CaseSize::kSmall)) {
    EXPECT_LT(laid_out(one).memory, size_t{96} << 20) << one.name;
  }
}

// The same code counts and fills: as much is used as was counted, and inputs are random numbers.
TEST(KernelMemory, FillsWhatItCounted) {
  const auto device = make_host_device(1);
  Stream stream(*device);
  const auto lay_out = [](KernelMemory& memory) {
    const Fixed<float> floats = memory.floats(1000, 2.0f);
    const QuantizedMatrix w = memory.fp8(130, 200);
    const DecodeStep step = decode_step(memory, {.requests = 3, .query_len = 2, .context = 150});
    const LatentCacheView cache = latent_cache(memory, step.shape, LatentLayout::kFp8);
    const KernelSelection selection = random_selection(memory, step, 40);
    return std::tuple(floats, w, step, cache, selection);
  };
  Workspace counted = Workspace::counting();
  KernelMemory counting(counted, nullptr);
  lay_out(counting);
  Workspace workspace = std::move(Workspace::create(*device, counted.peak_bytes())).value();
  KernelMemory memory(workspace, &stream);
  const auto [floats, w, step, cache, selection] = lay_out(memory);
  EXPECT_EQ(workspace.peak_bytes(), counted.peak_bytes());
  std::set<float> values;
  for (int64_t i = 0; i < 1000; ++i) values.insert(floats.data()[i]);
  EXPECT_GT(values.size(), 990u);
  EXPECT_LE(*values.rbegin(), 2.0f);
  EXPECT_NE(dequantized(w, 129, 199), dequantized(w, 0, 0));
  EXPECT_EQ(w.scale_row_stride, 2);
  // Every slot but those of the null block holds a latent of its own.
  std::set<std::string> rows;
  for (int64_t slot = 0; slot < step.shape.pool_blocks() * 64; ++slot) {
    rows.emplace(reinterpret_cast<const char*>(cache.data.get()) + slot * 656, 656);
  }
  EXPECT_EQ(rows.size(), 9u * 64 + 1);
  EXPECT_EQ(step.view.token_context_len[4], 149);
  EXPECT_EQ(step.view.token_context_len[5], 150);
  for (int32_t t = 0; t < 6; ++t) {
    EXPECT_EQ(selection.view.counts[t], 40);
    for (int32_t i = 0; i < 40; ++i) {
      const int32_t position = selection.view.positions[t * 40 + i];
      ASSERT_LT(position, step.view.token_context_len[t]);
      ASSERT_GT(position, i > 0 ? selection.view.positions[t * 40 + i - 1] : -1);
      const int32_t* table = step.view.block_table.get() + int64_t{t / 2} * step.view.block_table_stride;
      ASSERT_EQ(selection.view.slots[t * 40 + i], step.view.slot_of(table, position));
    }
  }
}

}  // namespace
}  // namespace lantern::cli
