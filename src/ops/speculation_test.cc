// Speculation as a whole: expand, process, sample, verify, step after step, on a "model" whose logits are a table over
// the last two tokens. What comes out must be what a decoder without drafts gives: the same text for the same seed, and
// over many seeds the exact joint distribution, which is computed in double from the definitions.

#include <gtest/gtest.h>

#include <cmath>

#include "ops/sampler_test_support.h"

namespace lantern {
namespace {

// Mistakes that implementations of speculative sampling make; the tests below must see each of them.
enum class Bug {
  kNone,
  kPenaltiesIgnoreDrafts,  // every row of a verify batch counts the history alone
  kDraftIsEmitted,         // the token that is emitted in place of a rejected draft comes from the next row
  kNoiseByRow,             // noise keyed by the row in the batch instead of the output position
  kSeedPerStep,            // every step has the same output position
};

struct Model {
  int32_t vocab = 5;
  std::vector<float> table;  // [vocab, vocab, vocab]: logits after (second last, last)

  explicit Model(uint32_t seed, int32_t tokens = 5, float scale = 1.3f)
      : vocab(tokens), table(random_normal(seed, int64_t{tokens} * tokens * tokens, scale)) {}

  std::span<const float> logits(int32_t second_last, int32_t last) const {
    return std::span(table).subspan(static_cast<size_t>((second_last * vocab + last) * vocab),
                                    static_cast<size_t>(vocab));
  }
  std::span<const float> after(const Tokens& text) const { return logits(text[text.size() - 2], text.back()); }
};

// Drafts of `count` tokens: the likeliest one, or where `seed` asks for it another one, so that acceptance varies.
Tokens guess(const Model& model, Tokens text, int32_t count, uint64_t seed) {
  Tokens drafts;
  for (int32_t i = 0; i < count; ++i) {
    const auto logits = model.after(text);
    const auto best = static_cast<int32_t>(std::ranges::max_element(logits) - logits.begin());
    const auto turn = static_cast<int32_t>((seed * 7 + text.size() * 3 + static_cast<uint64_t>(i)) % 4 == 0);
    drafts.push_back((best + turn) % model.vocab);
    text.push_back(drafts.back());
  }
  return drafts;
}

struct Decoding {
  SlotText request;  // prompt of at least two tokens; output and drafts empty
  int32_t length = 3;
  int32_t drafts = 0;
  bool ragged = false;  // the number of drafts varies from 0 to `drafts`
  Bug bug = Bug::kNone;
};

struct Decoded {
  std::vector<Tokens> outputs;
  int64_t drafts_tried = 0;
  int64_t drafts_accepted = 0;
};

// One output for each of the seeds first_seed, first_seed + 1, ...: all in one batch.
Decoded decode(const Model& model, const Decoding& d, uint64_t first_seed, int32_t count) {
  const int32_t max_query_len = d.drafts + 1;
  const auto prompt_len = static_cast<int32_t>(d.request.prompt.size());
  TestSlots slots(count, model.vocab, prompt_len + d.length + max_query_len, std::max(d.drafts, 1));
  HostOps ops;
  for (int32_t slot = 0; slot < count; ++slot) {
    SlotText text = d.request;
    text.sampling.seed = first_seed + static_cast<uint64_t>(slot);
    slots.set(slot, text);
  }
  Decoded result;
  const auto missing = [&](int32_t slot) {
    return d.length + prompt_len - static_cast<int32_t>(slots.history(slot).size());
  };
  for (int32_t turn = 0;; ++turn) {
    std::vector<TestStep::Row> requests;
    for (int32_t slot = 0; slot < count; ++slot) {
      if (missing(slot) <= 0) continue;
      int32_t drafts = d.drafts;
      if (d.ragged) drafts = (slot + turn) % (d.drafts + 1);
      slots.set_drafts(slot, guess(model, slots.history(slot), drafts, first_seed + static_cast<uint64_t>(slot)));
      requests.push_back({slot, 1 + drafts});
    }
    if (requests.empty()) break;
    TestStep step(requests);
    step.expand(ops, slots);
    std::vector<float> logits;
    for (const TestStep::Row& request : requests) {
      Tokens text = slots.history(request.slot);
      const Tokens drafts = slots.drafts(request.slot);
      for (size_t j = 0; j < static_cast<size_t>(request.count); ++j) {
        if (j > 0) text.push_back(drafts[j - 1]);
        const auto row = model.after(text);
        logits.insert(logits.end(), row.begin(), row.end());
      }
    }
    if (d.bug == Bug::kPenaltiesIgnoreDrafts) std::ranges::fill(step.drafts_before, 0);
    if (d.bug == Bug::kNoiseByRow) std::iota(step.output_positions.begin(), step.output_positions.end(), 0);
    if (d.bug == Bug::kSeedPerStep) {
      for (size_t r = 0; r < step.output_positions.size(); ++r) step.output_positions[r] = step.drafts_before[r];
    }
    const int64_t rows = step.max_rows();
    Tokens row_status(static_cast<size_t>(rows));
    std::vector<std::byte> scratch(static_cast<size_t>(
        std::max(process_logits_scratch_bytes(rows, model.vocab), sample_scratch_bytes(rows, model.vocab))));
    process_logits(ops.stream, {.slots = slots.view(),
                                .logits = Fixed<const float>(fixed(logits)),
                                .processed = fixed(logits),
                                .status = fixed(row_status),
                                .row_slots = Fixed<const int32_t>(fixed(step.row_slots)),
                                .drafts_before = Fixed<const int32_t>(fixed(step.drafts_before)),
                                .rows = rows,
                                .scratch = fixed(scratch),
                                .scratch_bytes = static_cast<int64_t>(scratch.size())});
    Tokens samples(static_cast<size_t>(rows));
    sample(ops.stream, {.logits = Fixed<const float>(fixed(logits)),
                        .settings = Fixed<const SamplingSettings>(fixed(step.settings)),
                        .output_positions = Fixed<const int64_t>(fixed(step.output_positions)),
                        .row_slots = Fixed<const int32_t>(fixed(step.row_slots)),
                        .tokens = fixed(samples),
                        .rows = rows,
                        .vocab = model.vocab,
                        .scratch = fixed(scratch),
                        .scratch_bytes = static_cast<int64_t>(scratch.size())});
    if (d.bug == Bug::kDraftIsEmitted) {
      size_t row = 0;
      for (const TestStep::Row& request : requests) {
        for (int32_t j = 0; j + 1 < request.count; ++j, ++row) {
          if (samples[row] != slots.drafts(request.slot)[static_cast<size_t>(j)]) samples[row] = samples[row + 1];
        }
        ++row;
      }
    }
    Tokens tokens(requests.size() * static_cast<size_t>(max_query_len));
    Tokens num_tokens(requests.size());
    Tokens status(requests.size());
    verify_drafts(ops.stream, {.slots = slots.view(),
                               .requests = step.requests(),
                               .samples = Fixed<const int32_t>(fixed(samples)),
                               .row_status = Fixed<const int32_t>(fixed(row_status)),
                               .tokens = fixed(tokens),
                               .num_tokens = fixed(num_tokens),
                               .status = fixed(status),
                               .max_query_len = max_query_len});
    for (size_t b = 0; b < requests.size(); ++b) {
      EXPECT_EQ(status[b], static_cast<int32_t>(RowStatus::kOk));
      result.drafts_tried += requests[b].count - 1;
      result.drafts_accepted += num_tokens[b] - 1;
    }
  }
  for (int32_t slot = 0; slot < count; ++slot) {
    const Tokens history = slots.history(slot);
    result.outputs.emplace_back(history.begin() + prompt_len, history.begin() + prompt_len + d.length);
  }
  return result;
}

// Probability of every output of `length` tokens, numbered with the first token as the leading digit.
std::vector<double> joint_distribution(const Model& model, const SlotText& request, int32_t length) {
  std::vector<double> joint{1.0};
  std::vector<Tokens> outputs{{}};
  for (int32_t i = 0; i < length; ++i) {
    std::vector<double> next;
    std::vector<Tokens> longer;
    for (size_t o = 0; o < outputs.size(); ++o) {
      SlotText text = request;
      text.output = outputs[o];
      Tokens all = text.prompt;
      all.insert(all.end(), text.output.begin(), text.output.end());
      const auto p = reference_distribution(reference_logits(model.after(all), text, 0), text.sampling);
      for (int32_t token = 0; token < model.vocab; ++token) {
        next.push_back(joint[o] * p[static_cast<size_t>(token)]);
        longer.push_back(outputs[o]);
        longer.back().push_back(token);
      }
    }
    joint = std::move(next);
    outputs = std::move(longer);
  }
  return joint;
}

double deviate(const Model& model, const Decoding& d, int32_t draws) {
  const std::vector<double> expected = joint_distribution(model, d.request, d.length);
  std::vector<int64_t> counts(expected.size(), 0);
  constexpr int32_t kBatch = 500;
  for (int32_t first = 0; first < draws; first += kBatch) {
    for (const Tokens& output : decode(model, d, static_cast<uint64_t>(first), kBatch).outputs) {
      size_t index = 0;
      for (const int32_t token : output) index = index * static_cast<size_t>(model.vocab) + static_cast<size_t>(token);
      ++counts[index];
    }
  }
  return chi_square_deviate(counts, expected);
}

const std::vector<SlotText>& requests() {
  static const std::vector<SlotText> all{
      {.prompt = {0, 1}},
      {.sampling = {.temperature = 0.7f, .top_p = 0.9f}, .prompt = {1, 1}},
      {.sampling = {.top_k = 3, .min_p = 0.1f}, .prompt = {2, 3}},
      {.sampling = {.repetition_penalty = 2.5f}, .prompt = {4, 0}},
      {.sampling = {.presence_penalty = 1.5f, .frequency_penalty = 1.0f}, .prompt = {0, 3}},
      {.sampling = {.presence_penalty = -1.0f, .frequency_penalty = -0.8f}, .prompt = {0, 3}},
      {.sampling =
           {.temperature = 1.5f, .top_p = 0.8f, .top_k = 4, .repetition_penalty = 0.6f, .frequency_penalty = 0.7f},
       .logit_bias = {{2, 0.7f}, {0, -0.5f}},
       .prompt = {3, 2}},
      {.bad_words = {{1, 2}, {3, 3}, {0, 4, 1}}, .prompt = {3, 3}},
      {.stop_token_ids = {0, 4}, .min_tokens = 2, .prompt = {1, 2}},
  };
  return all;
}

constexpr int32_t kDraws = 20000;
// Standard deviations of the normal deviate. Seeds are fixed, so a verdict never changes; chance alone exceeds 4.5 in
// one of 3e5 tests.
constexpr double kSound = 4.5;

TEST(Speculation, OutputsHaveTheTargetsJointDistributionForEverySetting) {
  const Model model(11);
  for (size_t i = 0; i < requests().size(); ++i) {
    for (const int32_t drafts : {0, 1, 3}) {
      SCOPED_TRACE(testing::Message() << "request " << i << ", " << drafts << " drafts");
      EXPECT_LT(deviate(model, {.request = requests()[i], .drafts = drafts, .ragged = drafts == 3}, kDraws), kSound);
    }
  }
}

TEST(Speculation, TheTestOfTheDistributionSeesTheKnownMistakes) {
  const Model model(11);
  const SlotText penalised = requests()[4];
  const Decoding sound{.request = penalised, .drafts = 3};
  EXPECT_LT(deviate(model, sound, kDraws), kSound);
  for (const Bug bug : {Bug::kPenaltiesIgnoreDrafts, Bug::kDraftIsEmitted, Bug::kSeedPerStep}) {
    Decoding broken = sound;
    broken.bug = bug;
    EXPECT_GT(deviate(model, broken, kDraws), 20.0) << "mistake " << static_cast<int>(bug) << " goes unnoticed";
  }
}

TEST(Speculation, GreedyAndSeededTextIsTheSameForEveryDraftLength) {
  constexpr int32_t kVocab = 12;
  const Model model(5, kVocab, 2.0f);
  std::vector<SlotText> all = requests();
  const size_t sampled = all.size();
  for (size_t i = 0; i < sampled; ++i) {
    all.push_back(all[i]);
    all.back().sampling.temperature = 0;
  }
  Decoded total;
  for (const SlotText& request : all) {
    const auto plain = decode(model, {.request = request, .length = 60}, 77, 20).outputs;
    for (int32_t drafts = 1; drafts <= 5; ++drafts) {
      for (const bool ragged : {false, true}) {
        const Decoded other =
            decode(model, {.request = request, .length = 60, .drafts = drafts, .ragged = ragged}, 77, 20);
        EXPECT_EQ(other.outputs, plain) << drafts << " drafts";
        total.drafts_tried += other.drafts_tried;
        total.drafts_accepted += other.drafts_accepted;
      }
    }
  }
  // Both outcomes come up often, or the test would show nothing.
  const double acceptance = static_cast<double>(total.drafts_accepted) / static_cast<double>(total.drafts_tried);
  EXPECT_GT(acceptance, 0.15);
  EXPECT_LT(acceptance, 0.85);
}

TEST(Speculation, TheTestOfTheTextSeesTheKnownMistakes) {
  const Model model(5, 12, 2.0f);
  const SlotText penalised = requests()[4];
  const auto plain = decode(model, {.request = penalised, .length = 60}, 77, 20).outputs;
  for (const Bug bug : {Bug::kPenaltiesIgnoreDrafts, Bug::kDraftIsEmitted, Bug::kNoiseByRow, Bug::kSeedPerStep}) {
    const Decoding broken{.request = penalised, .length = 60, .drafts = 2, .bug = bug};
    EXPECT_NE(decode(model, broken, 77, 20).outputs, plain) << "mistake " << static_cast<int>(bug);
  }
}

}  // namespace
}  // namespace lantern
