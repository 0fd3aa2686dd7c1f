#include "ops/process_logits.h"

#include <gtest/gtest.h>

#include "ops/sampler_test_support.h"

namespace lantern {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

struct Masks {
  std::vector<uint32_t> bits = {};
  std::vector<int32_t> of_row = {};
};

struct Processed {
  std::vector<float> logits;
  std::vector<RowStatus> status;
};

Processed process(TestSlots& slots, TestStep& step, std::vector<float> logits, bool in_place = false, int threads = 1,
                  const Masks& masks = {}) {
  HostOps ops(threads);
  step.expand(ops, slots);
  const SamplerSlots view = slots.view();
  const int64_t rows = step.max_rows();
  Processed result{std::vector<float>(logits.size(), 77.0f), {}};
  Tokens status(static_cast<size_t>(rows), 99);
  if (in_place) result.logits = logits;
  std::vector<std::byte> scratch(static_cast<size_t>(process_logits_scratch_bytes(rows, view.vocab)), std::byte{0xa5});
  ProcessLogitsParams p{.slots = view,
                        .logits = Fixed<const float>(in_place ? fixed(result.logits) : fixed(logits)),
                        .processed = fixed(result.logits),
                        .status = fixed(status),
                        .row_slots = Fixed<const int32_t>(fixed(step.row_slots)),
                        .drafts_before = Fixed<const int32_t>(fixed(step.drafts_before)),
                        .rows = rows,
                        .scratch = fixed(scratch),
                        .scratch_bytes = static_cast<int64_t>(scratch.size())};
  if (!masks.bits.empty()) {
    p.allowed_tokens = fixed(masks.bits);
    p.row_allowed_masks = fixed(masks.of_row);
  }
  process_logits(ops.stream, p);
  for (const int32_t s : status) result.status.push_back(static_cast<RowStatus>(s));
  return result;
}

// One row of one slot.
std::vector<float> process_one(const std::vector<float>& logits, const SlotText& text) {
  TestSlots slots(1, static_cast<int32_t>(logits.size()), 64, 8);
  slots.set(0, text);
  TestStep step({{0, 1}});
  const Processed result = process(slots, step, logits);
  EXPECT_EQ(result.status[0], RowStatus::kOk);
  return result.logits;
}

// Float has 24 bits, values here are below 256 and go through at most five operations: 5 * 2^-17. A penalty counted
// once too often or too rarely moves a logit by 0.05 and more.
constexpr double kTolerance = 4e-5;

void expect_row(std::span<const float> row, const std::vector<double>& expected) {
  ASSERT_EQ(row.size(), expected.size());
  for (size_t i = 0; i < row.size(); ++i) {
    if (std::isinf(expected[i])) {
      EXPECT_EQ(row[i], -kInf) << "token " << i;
    } else {
      EXPECT_NEAR(double{row[i]}, expected[i], kTolerance) << "token " << i;
    }
  }
}

TEST(ProcessLogits, RepetitionPenaltyCountsPromptAndOutputOnce) {
  EXPECT_EQ(
      process_one({2, -2, 2, -2, 3}, {.sampling = {.repetition_penalty = 2}, .prompt = {0, 0, 1}, .output = {1, 3, 3}}),
      (std::vector<float>{1, -4, 2, -4, 3}));
}

TEST(ProcessLogits, FrequencyAndPresenceCountTheOutputAlone) {
  EXPECT_EQ(
      process_one({1, 1, 1, -1}, {.sampling = {.frequency_penalty = 0.5f}, .prompt = {0, 0}, .output = {1, 1, 3}}),
      (std::vector<float>{1, 0, 1, -1.5f}));
  EXPECT_EQ(process_one({1, 1, 1, -1}, {.sampling = {.presence_penalty = 0.5f}, .prompt = {0, 0}, .output = {1, 1, 3}}),
            (std::vector<float>{1, 0.5f, 1, -1.5f}));
  // The repetition penalty comes first: 4 / 2 - 2 * 0.5 - 0.25.
  EXPECT_EQ(
      process_one({4, 1}, {.sampling = {.repetition_penalty = 2, .presence_penalty = 0.25f, .frequency_penalty = 0.5f},
                           .prompt = {1},
                           .output = {0, 0}}),
      (std::vector<float>{0.75f, 0.5f}));
}

TEST(ProcessLogits, ABiasComesBeforeThePenalties) {
  EXPECT_EQ(
      process_one({1, 1, 1}, {.sampling = {.repetition_penalty = 2}, .logit_bias = {{0, 3}, {2, -100}}, .prompt = {0}}),
      (std::vector<float>{2, 1, -99}));
}

TEST(ProcessLogits, ABadWordLosesItsLastTokenWhereTheRestStands) {
  const std::vector<float> flat(6, 1.0f);
  const SlotText words{.bad_words = {{5}, {1, 2}, {3, 1, 4}, {0, 0, 0, 0, 0, 0, 0, 0}}};
  const auto after = [&](Tokens prompt, Tokens output) {
    SlotText text = words;
    text.prompt = std::move(prompt);
    text.output = std::move(output);
    Tokens banned;
    const auto row = process_one(flat, text);
    for (int32_t i = 0; i < 6; ++i) {
      if (row[static_cast<size_t>(i)] == -kInf) banned.push_back(i);
    }
    return banned;
  };
  EXPECT_EQ(after({0}, {}), (Tokens{5}));
  EXPECT_EQ(after({0}, {1}), (Tokens{2, 5}));
  EXPECT_EQ(after({0}, {1, 3}), (Tokens{5}));
  EXPECT_EQ(after({0}, {3, 1}), (Tokens{2, 4, 5}));
  EXPECT_EQ(after({0, 3}, {1}), (Tokens{2, 4, 5})) << "a word may begin in the prompt";
  EXPECT_EQ(after({0, 0, 0, 0, 0, 0, 0}, {}), (Tokens{0, 5}));
  EXPECT_EQ(after({0, 0, 0, 0, 0, 0}, {}), (Tokens{5}));
}

TEST(ProcessLogits, StopTokensWaitForMinTokens) {
  const std::vector<float> flat(4, 1.0f);
  SlotText text{.stop_token_ids = {1, 3}, .min_tokens = 2, .prompt = {0, 0, 0, 0}};
  for (size_t outputs = 0; outputs < 4; ++outputs) {
    text.output.assign(outputs, 2);
    const float expected = outputs < 2 ? -kInf : 1.0f;
    EXPECT_EQ(process_one(flat, text), (std::vector<float>{1, expected, 1, expected})) << outputs;
  }
}

TEST(ProcessLogits, WithoutSettingsNothingChanges) {
  const auto logits = random_normal(3, 100, 20.0f);
  EXPECT_TRUE(same_bits(process_one(logits, {.prompt = {1, 2}, .output = {2, 3}}), logits));
}

// A batch with every setting at random: ragged rows of drafts, masks on some rows, padding behind.
struct RandomBatch {
  static constexpr int32_t kVocab = 70;
  static constexpr int32_t kSlots = 40;
  static constexpr int32_t kMaxDrafts = 5;

  explicit RandomBatch(uint32_t seed) : random(seed), slots(kSlots, kVocab, 64, kMaxDrafts) {
    for (int32_t slot = 0; slot < kSlots; ++slot) {
      texts.push_back(random_text());
      slots.set(slot, texts.back());
      const int32_t drafts = static_cast<int32_t>(texts.back().drafts.size());
      requests.push_back({slot, slot % 7 == 0 ? 0 : 1 + below(drafts + 1)});
    }
    std::ranges::shuffle(requests, random);
  }

  int32_t below(int32_t bound) { return std::uniform_int_distribution<int32_t>(0, bound - 1)(random); }
  bool sometimes() { return below(2) == 0; }
  Tokens some_tokens(int32_t count) {
    Tokens tokens;
    for (int32_t i = 0; i < count; ++i) tokens.push_back(below(8) == 0 ? below(kVocab) : below(6));
    return tokens;
  }
  SlotText random_text() {
    SlotText text;
    if (sometimes()) text.sampling.repetition_penalty = 0.5f + 0.25f * static_cast<float>(below(6));
    if (sometimes()) text.sampling.presence_penalty = 0.25f * static_cast<float>(below(17) - 8);
    if (sometimes()) text.sampling.frequency_penalty = 0.1f * static_cast<float>(below(41) - 20);
    if (sometimes()) {
      std::set<int32_t> biased;
      for (int32_t i = below(6); i > 0; --i) biased.insert(below(kVocab));
      for (const int32_t id : biased) text.logit_bias.push_back({id, 0.5f * static_cast<float>(below(400) - 200)});
    }
    if (sometimes()) {
      for (int32_t i = below(8); i > 0; --i) text.bad_words.push_back(some_tokens(1 + below(3)));
    }
    if (sometimes()) {
      text.stop_token_ids = {1, 69};
      text.min_tokens = below(12);
    }
    text.prompt = some_tokens(1 + below(20));
    text.output = some_tokens(below(12));
    text.drafts = some_tokens(below(kMaxDrafts + 1));
    return text;
  }

  std::mt19937 random;
  TestSlots slots;
  std::vector<SlotText> texts;
  std::vector<TestStep::Row> requests;
};

TEST(ProcessLogits, EveryRowEqualsDoubleAndDraftsCountAsOutput) {
  for (uint32_t seed = 0; seed < 25; ++seed) {
    SCOPED_TRACE(seed);
    RandomBatch batch(seed);
    constexpr auto kVocab = static_cast<size_t>(RandomBatch::kVocab);
    TestStep step(batch.requests, 3);
    const auto logits = random_normal(seed + 100, int64_t{step.max_rows()} * RandomBatch::kVocab, 6.0f);
    // Two masks: the even tokens, and 1 to 40.
    Masks masks{.bits = std::vector<uint32_t>(2 * 3, 0), .of_row = {}};
    std::array<std::set<int32_t>, 2> allowed;
    for (int32_t i = 0; i < RandomBatch::kVocab; ++i) {
      for (size_t m = 0; m < 2; ++m) {
        if (m == 0 ? i % 2 == 0 : i >= 1 && i <= 40) {
          allowed[m].insert(i);
          masks.bits[m * 3 + static_cast<size_t>(i) / 32] |= uint32_t{1} << (i % 32);
        }
      }
    }
    for (int32_t r = 0; r < step.max_rows(); ++r) masks.of_row.push_back(batch.below(3) - 1);

    const Processed result = process(batch.slots, step, logits, false, 1, masks);
    size_t r = 0;
    for (const TestStep::Row& request : batch.requests) {
      for (size_t j = 0; j < static_cast<size_t>(request.count); ++j, ++r) {
        SCOPED_TRACE(testing::Message() << "slot " << request.slot << " after " << j << " drafts");
        const int32_t mask = masks.of_row[r];
        const auto expected = reference_logits(std::span(logits).subspan(r * kVocab, kVocab),
                                               batch.texts[static_cast<size_t>(request.slot)], j,
                                               mask < 0 ? nullptr : &allowed[static_cast<size_t>(mask)]);
        expect_row(std::span(result.logits).subspan(r * kVocab, kVocab), expected);
        EXPECT_EQ(result.status[r], RowStatus::kOk);
      }
    }
    ASSERT_EQ(static_cast<int32_t>(r), step.num_rows());
    for (size_t i = r * kVocab; i < result.logits.size(); ++i) EXPECT_EQ(result.logits[i], 77.0f) << "padding";

    // The same bits in place and on more threads.
    for (const bool in_place : {false, true}) {
      const Processed other = process(batch.slots, step, logits, in_place, 3, masks);
      EXPECT_TRUE(std::equal(other.logits.begin(), other.logits.begin() + static_cast<std::ptrdiff_t>(r * kVocab),
                             result.logits.begin()));
    }
  }
}

TEST(ProcessLogits, ARowWithoutNumbersFailsAlone) {
  for (const float broken : {kNaN, kInf, -kInf}) {
    TestSlots slots(3, 40, 16, 0);
    for (int32_t slot = 0; slot < 3; ++slot) slots.set(slot, {.prompt = {1}});
    TestStep step({{0, 1}, {1, 1}, {2, 1}});
    auto logits = random_normal(5, 120);
    logits[40 + 39] = broken;
    const Processed result = process(slots, step, logits);
    EXPECT_EQ(result.status, (std::vector<RowStatus>{RowStatus::kOk, RowStatus::kNotFinite, RowStatus::kOk}));
    EXPECT_TRUE(std::equal(logits.begin() + 80, logits.end(), result.logits.begin() + 80));
  }
}

TEST(ProcessLogits, ARowWithNothingLeftSaysSo) {
  TestSlots slots(2, 3, 16, 0);
  slots.set(0, {.bad_words = {{0}, {1}}, .stop_token_ids = {2}, .min_tokens = 1, .prompt = {0}});
  slots.set(1, {.bad_words = {{0}, {1}}, .stop_token_ids = {2}, .min_tokens = 1, .prompt = {0}, .output = {2}});
  TestStep step({{0, 1}, {1, 1}});
  const Processed result = process(slots, step, {1, 2, 3, 1, 2, 3});
  EXPECT_EQ(result.status, (std::vector<RowStatus>{RowStatus::kNoToken, RowStatus::kOk}));
}

TEST(ProcessLogits, MoreDraftsThanTheSlotHasCountOnlyThoseItHas) {
  TestSlots slots(1, 3, 16, 4);
  slots.set(0, {.sampling = {.frequency_penalty = 1}, .prompt = {0}, .drafts = {1}});
  TestStep step({{0, 4}});
  const Processed result = process(slots, step, std::vector<float>(12, 5.0f));
  EXPECT_EQ(result.logits, (std::vector<float>{5, 5, 5, 5, 4, 5, 5, 4, 5, 5, 4, 5}));
}

TEST(ProcessLogitsDeathTest, MissingScratchIsABrokenInvariant) {
  HostOps ops;
  EXPECT_DEATH(process_logits(ops.stream, {.slots = {.vocab = 8}, .rows = 1}), "scratch");
}

TEST(ExpandSampleRows, NamesSlotDraftsAndOutputPositionOfEachRow) {
  TestSlots slots(4, 10, 16, 3);
  slots.set(0, {.sampling = {.temperature = 0.5f}, .prompt = {1, 2}, .output = {3}, .num_logprobs = 4});
  slots.set(2, {.sampling = {.seed = 9}, .prompt = {1}, .drafts = {1, 2}});
  slots.set(3, {.prompt = {1, 2, 3}, .output = {1, 2, 3, 4}});
  HostOps ops;
  TestStep step({{2, 3}, {0, 1}, {3, 0}, {-1, 1}, {3, 2}}, 2);
  step.expand(ops, slots);
  EXPECT_EQ(step.row_slots, (Tokens{2, 2, 2, 0, -1, 3, 3, -1, -1}));
  EXPECT_EQ(step.drafts_before, (Tokens{0, 1, 2, 0, 0, 0, 1, 0, 0}));
  EXPECT_EQ(step.output_positions, (std::vector<int64_t>{0, 1, 2, 1, 0, 4, 5, 0, 0}));
  EXPECT_EQ(step.num_logprobs, (Tokens{-1, -1, -1, 4, -1, -1, -1, -1, -1}));
  EXPECT_EQ(step.settings[1].seed, 9u);
  EXPECT_EQ(step.settings[3].temperature, 0.5f);
}

TEST(PromptTargets, AreTheNextTokensOfThePrompt) {
  TestSlots slots(2, 10, 8, 0);
  slots.set(1, {.prompt = {5, 6, 7}, .output = {8}});
  HostOps ops;
  const Tokens row_slots{1, 1, 1, 1, -1, 1};
  const Tokens positions{0, 1, 2, 3, 0, TestSlots::kPoison};
  Tokens targets(6, -77);
  prompt_targets(ops.stream, {.slots = slots.view(),
                              .row_slots = fixed(row_slots),
                              .positions = fixed(positions),
                              .targets = fixed(targets),
                              .rows = 6});
  EXPECT_EQ(targets, (Tokens{6, 7, -1, -1, -1, -1}));
}

}  // namespace
}  // namespace lantern
