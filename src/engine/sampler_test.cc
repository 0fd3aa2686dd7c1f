#include "engine/sampler.h"

#include <gtest/gtest.h>

#include "ops/sampler_test_support.h"

namespace lantern {
namespace {

constexpr int32_t kVocab = 37;
constexpr int32_t kSlots = 6;
constexpr int32_t kMaxQueryLen = 4;
constexpr int32_t kTop = 5;

// Six sequences with everything that a request can ask for; three drafts each, rows ragged.
struct Batch {
  Batch() {
    const std::vector<SlotText> kinds{
        {.sampling = {.temperature = 0}, .prompt = {1, 2}, .num_logprobs = 2},
        {.sampling = {.temperature = 0.8f, .top_p = 0.9f, .seed = 3}, .prompt = {4}, .output = {5, 6}},
        {.sampling = {.seed = 4, .repetition_penalty = 1.5f, .frequency_penalty = 0.5f},
         .prompt = {7, 7},
         .output = {8},
         .num_logprobs = kTop},
        {.sampling = {.seed = 5}, .logit_bias = {{3, 5.0f}}, .bad_words = {{9}, {1, 2}}, .prompt = {1}},
        {.sampling = {.seed = 6}, .stop_token_ids = {0, 1, 2}, .min_tokens = 3, .prompt = {1}, .num_logprobs = 0},
        {.sampling = {.temperature = 1.3f, .top_k = 9, .seed = 7}, .prompt = {2, 3, 4}},
    };
    texts = kinds;
    for (size_t s = 0; s < texts.size(); ++s) {
      for (int32_t j = 0; j < 3; ++j) texts[s].drafts.push_back((static_cast<int32_t>(s) * 5 + j * 11) % kVocab);
    }
  }

  std::vector<SlotText> texts;
  // Request b is in slot order[b] and has rows[b] rows.
  Tokens order{3, 0, 5, 2, 4, 1};
  Tokens rows{4, 2, 1, 4, 0, 3};
  int32_t num_rows = 14;
};

struct Outcome {
  Tokens tokens, num_tokens, status, samples, ranks, top_tokens;
  std::vector<float> logprobs, top_logprobs;
  bool operator==(const Outcome&) const = default;
};

// The device side of a step, in memory that the device knows.
class Step {
 public:
  explicit Step(const Batch& batch, int32_t rows_at_once, int threads = 1)
      : batch_(batch), device_(make_host_device(threads)), stream_(*device_), rows_at_once_(rows_at_once) {
    sampler_ = Sampler::create(*device_, {.max_slots = kSlots,
                                          .max_requests = kSlots,
                                          .max_query_len = kMaxQueryLen,
                                          .max_model_len = 32,
                                          .vocab = kVocab,
                                          .rows_at_once = rows_at_once,
                                          .max_logprobs = kTop})
                   .value();
    logits_ = make<float>(int64_t{kSlots} * kMaxQueryLen * kVocab);
    ints_ = make<int32_t>(256);
    drafts_ = make<int32_t>(kSlots * kMaxQueryLen);
    masks_ = make<uint32_t>(2);
    row_masks_ = make<int32_t>(kSlots * kMaxQueryLen);
  }

  void write(const std::vector<float>& logits) {
    copy(logits_->fixed(), logits);
    Tokens words{kSlots, 0};  // num_requests, sample_start_loc, slots
    for (const int32_t count : batch_.rows) words.push_back(words.back() + count);
    words.insert(words.end(), batch_.order.begin(), batch_.order.end());
    copy(ints_->fixed(), words);
    Tokens drafts, num_drafts;
    for (const SlotText& text : batch_.texts) {
      drafts.insert(drafts.end(), text.drafts.begin(), text.drafts.end());
      num_drafts.push_back(3);
    }
    drafts.insert(drafts.end(), num_drafts.begin(), num_drafts.end());
    copy(drafts_->fixed(), drafts);
    for (size_t s = 0; s < batch_.texts.size(); ++s) start(static_cast<int32_t>(s));
  }
  // Request 0 may only have even tokens in its row 1.
  void constrain() {
    copy(masks_->fixed(), std::vector<uint32_t>{0x55555555u, 0x15u});
    Tokens row_masks(static_cast<size_t>(batch_.num_rows), -1);
    row_masks[1] = 0;
    copy(row_masks_->fixed(), row_masks);
    constrained_ = true;
  }
  void start(int32_t slot) {
    const SlotText& text = batch_.texts[static_cast<size_t>(slot)];
    Tokens tokens = text.prompt;
    tokens.insert(tokens.end(), text.output.begin(), text.output.end());
    sampler_->start_slot(stream_, slot,
                         {.sampling = text.sampling,
                          .rules = {.logit_bias = text.logit_bias,
                                    .bad_words = text.bad_words,
                                    .stop_token_ids = text.stop_token_ids,
                                    .min_tokens = text.min_tokens},
                          .num_logprobs = text.num_logprobs,
                          .tokens = tokens,
                          .prompt_len = static_cast<int32_t>(text.prompt.size())});
  }
  void launch() {
    const Fixed<int32_t> words = ints_->fixed();
    const Fixed<const int32_t> inputs(words);
    sampler_->begin(stream_, {.requests = {.num_requests = inputs.sub(0, 1),
                                           .sample_start_loc = inputs.sub(1, kSlots + 1),
                                           .slots = inputs.sub(kSlots + 2, kSlots),
                                           .max_requests = kSlots},
                              .draft_tokens = Fixed<const int32_t>(drafts_->fixed().sub(0, kSlots * 3)),
                              .num_drafts = Fixed<const int32_t>(drafts_->fixed().sub(kSlots * 3, kSlots)),
                              .rows = batch_.num_rows,
                              .logprobs = true});
    AllowedTokens allowed;
    if (constrained_) allowed = {.masks = masks_->fixed(), .row_masks = row_masks_->fixed()};
    for (int32_t begin = 0; begin < batch_.num_rows; begin += rows_at_once_) {
      const int32_t rows = std::min(rows_at_once_, batch_.num_rows - begin);
      sampler_->sample(stream_,
                       Fixed<const float>(logits_->fixed().sub(int64_t{begin} * kVocab, int64_t{rows} * kVocab)), begin,
                       rows, allowed);
    }
    sampler_->verify(stream_, words.sub(100, kSlots * kMaxQueryLen), words.sub(130, kSlots), words.sub(140, kSlots));
  }
  Outcome outcome() {
    stream_.synchronize();
    const Fixed<const int32_t> words(ints_->fixed());
    const auto rows = static_cast<int64_t>(batch_.num_rows);
    return {read(words.sub(100, kSlots * kMaxQueryLen)),
            read(words.sub(130, kSlots)),
            read(words.sub(140, kSlots)),
            read(sampler_->samples().sub(0, rows)),
            read(sampler_->ranks().sub(0, rows)),
            read(sampler_->top_tokens().sub(0, rows * kTop)),
            read(sampler_->logprobs().sub(0, rows)),
            read(sampler_->top_logprobs().sub(0, rows * kTop))};
  }
  Outcome run(const std::vector<float>& logits) {
    write(logits);
    launch();
    return outcome();
  }
  Tokens history(int32_t slot) {
    const SamplerSlots slots = sampler_->slots();
    const int32_t* begin = slots.history.get() + slot * 32;
    return {begin, begin + slots.history_len[slot]};
  }
  Stream& stream() { return stream_; }

 private:
  template <class T>
  std::unique_ptr<PersistentBuffer<T>> make(int64_t count) {
    return PersistentBuffer<T>::create(*device_, "test", count).value();
  }
  template <class T>
  void copy(const Fixed<T>& target, const std::vector<T>& source) {
    device_->copy_to_device(target.data(), source.data(), source.size() * sizeof(T));
  }
  template <class T>
  std::vector<T> read(const Fixed<const T>& source) {
    std::vector<T> values(static_cast<size_t>(source.size()));
    device_->copy_to_host(values.data(), source.data(), values.size() * sizeof(T));
    return values;
  }

  const Batch& batch_;
  std::unique_ptr<Device> device_;
  Stream stream_;
  int32_t rows_at_once_;
  std::unique_ptr<Sampler> sampler_;
  std::unique_ptr<PersistentBuffer<float>> logits_;
  std::unique_ptr<PersistentBuffer<int32_t>> ints_, drafts_, row_masks_;
  std::unique_ptr<PersistentBuffer<uint32_t>> masks_;
  bool constrained_ = false;
};

std::vector<float> some_logits(const Batch& batch) { return random_normal(3, int64_t{batch.num_rows} * kVocab, 3.0f); }

TEST(Sampler, DrawsFromTheProcessedLogitsAndScoresWithTheModels) {
  const Batch batch;
  const auto logits = some_logits(batch);
  Step step(batch, 64);
  const Outcome outcome = step.run(logits);
  size_t r = 0;
  for (size_t b = 0; b < batch.order.size(); ++b) {
    const SlotText& text = batch.texts[static_cast<size_t>(batch.order[b])];
    for (size_t j = 0; j < static_cast<size_t>(batch.rows[b]); ++j, ++r) {
      SCOPED_TRACE(testing::Message() << "request " << b << ", row " << j);
      const auto raw = std::span(logits).subspan(r * kVocab, kVocab);
      const auto processed = reference_logits(raw, text, j);
      const auto target = reference_distribution(processed, text.sampling);
      // A draw of this distribution; which one, Speculation.* looks at.
      const auto token = static_cast<size_t>(outcome.samples[r]);
      ASSERT_LT(token, size_t{kVocab});
      EXPECT_GT(target[token], 0.0);

      if (text.num_logprobs < 0) {
        EXPECT_EQ(outcome.logprobs[r], 0.0f);
        EXPECT_EQ(outcome.ranks[r], 0);
      } else {
        double sum = 0;
        for (const float x : raw) sum += std::exp(double{x});
        EXPECT_NEAR(outcome.logprobs[r], double{raw[token]} - std::log(sum), 3e-6);
        EXPECT_EQ(outcome.ranks[r], 1 + std::ranges::count_if(raw, [&](float x) { return x > raw[token]; }));
      }
      std::vector<std::pair<float, int32_t>> order;
      order.reserve(kVocab);
      for (int32_t i = 0; i < kVocab; ++i) order.emplace_back(-raw[static_cast<size_t>(i)], i);
      std::ranges::sort(order);
      for (int32_t i = 0; i < kTop; ++i) {
        EXPECT_EQ(outcome.top_tokens[r * kTop + static_cast<size_t>(i)],
                  i < text.num_logprobs ? order[static_cast<size_t>(i)].second : -1);
      }
    }
  }
  EXPECT_EQ(outcome.status, Tokens(kSlots, 0));
  // The verdict, from the samples alone.
  r = 0;
  for (size_t b = 0; b < batch.order.size(); ++b) {
    const SlotText& text = batch.texts[static_cast<size_t>(batch.order[b])];
    Tokens expected;
    for (int32_t j = 0; j < batch.rows[b]; ++j) {
      expected.push_back(outcome.samples[r + static_cast<size_t>(j)]);
      if (expected.back() != text.drafts[static_cast<size_t>(std::min(j, 2))]) break;
    }
    r += static_cast<size_t>(batch.rows[b]);
    EXPECT_EQ(outcome.num_tokens[b], static_cast<int32_t>(expected.size()));
    Tokens history = text.prompt;
    history.insert(history.end(), text.output.begin(), text.output.end());
    history.insert(history.end(), expected.begin(), expected.end());
    EXPECT_EQ(step.history(batch.order[b]), history);
  }
}

TEST(Sampler, TheNumberOfRowsAtOnceAndOfThreadsChangesNothing) {
  const Batch batch;
  const auto logits = some_logits(batch);
  const Outcome whole = Step(batch, 64).run(logits);
  for (const int32_t rows : {1, 3, 5, 14}) EXPECT_EQ(Step(batch, rows, 3).run(logits), whole) << rows;
}

TEST(Sampler, AMaskBindsItsRowAlone) {
  const Batch batch;
  auto logits = some_logits(batch);
  logits[kVocab + 21] = 60.0f;  // request 0, row 1
  logits[2 * kVocab + 21] = 60.0f;
  Step free(batch, 4);
  EXPECT_EQ(free.run(logits).samples[1], 21);
  Step bound(batch, 4);
  bound.constrain();
  const Outcome outcome = bound.run(logits);
  EXPECT_EQ(outcome.samples[1] % 2, 0);
  EXPECT_EQ(outcome.samples[2], 21);
}

TEST(Sampler, AStepReplaysFromAGraph) {
  const Batch batch;
  const auto logits = some_logits(batch);
  const auto other_logits = random_normal(9, int64_t{batch.num_rows} * kVocab, 2.0f);
  const Outcome eager = Step(batch, 5).run(logits);
  const Outcome other_eager = Step(batch, 5).run(other_logits);
  ASSERT_NE(eager, other_eager);

  Step step(batch, 5);
  ASSERT_TRUE(step.stream().begin_capture({.tokens = batch.num_rows, .requests = kSlots}).ok());
  step.launch();
  auto graph = step.stream().end_capture();
  ASSERT_TRUE(graph.ok()) << graph.error().message();
  step.write(logits);
  (*graph)->replay(step.stream());
  EXPECT_EQ(step.outcome(), eager);
  step.write(other_logits);  // slots begin anew
  (*graph)->replay(step.stream());
  EXPECT_EQ(step.outcome(), other_eager);
}

TEST(Sampler, ASlotBeginsAnewWithoutATraceOfItsLastText) {
  Batch batch;
  const auto logits = some_logits(batch);
  const Outcome fresh = Step(batch, 64).run(logits);
  Step used(batch, 64);
  used.write(logits);
  const std::vector<SlotText> texts = batch.texts;
  for (SlotText& text : batch.texts) {
    text.sampling.repetition_penalty = 3;
    text.logit_bias.assign(kVocab, {1, 50.0f});
    text.bad_words.assign(20, {5, 6, 7});
    text.stop_token_ids.assign(20, 3);
    text.min_tokens = 30;
    text.output = {9, 9, 9, 9, 9, 9, 9, 9};
  }
  for (int32_t slot = 0; slot < kSlots; ++slot) used.start(slot);
  used.launch();
  batch.texts = texts;
  EXPECT_EQ(used.run(logits), fresh);
}

TEST(SamplerDeathTest, MoreThanItsLimitsIsABrokenInvariant) {
  const Batch batch;
  Step step(batch, 4);
  auto device = make_host_device(1);
  Stream stream(*device);
  auto sampler = Sampler::create(*device, {.max_model_len = 4, .vocab = 8}).value();
  const Tokens tokens(5, 1);
  EXPECT_DEATH(sampler->start_slot(stream, 0, {.tokens = tokens, .prompt_len = 5}), "a slot of 4 tokens");
  EXPECT_DEATH(sampler->start_slot(stream, 1, {}), "slot 1 of 1");
  EXPECT_DEATH(sampler->start_slot(stream, 0, {.num_logprobs = 1}), "1 logprobs where -1 can be listed");
  EXPECT_DEATH(sampler->begin(stream, {.rows = 2}), "2 rows of 0 requests");
}

}  // namespace
}  // namespace lantern
