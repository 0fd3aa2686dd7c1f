#include "ops/sampling_settings.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

namespace lantern {
namespace {

std::string message(const Status& status) { return status.ok() ? "" : std::string(status.error().message()); }

TEST(CheckSampling, NamesTheFieldItsValueAndItsRange) {
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const auto check = [](const SamplingSettings& settings) { return message(check_sampling(settings)); };
  EXPECT_EQ(check({}), "");
  EXPECT_EQ(check({.temperature = 0,
                   .top_p = 1e-3f,
                   .top_k = -1,
                   .min_p = 1,
                   .repetition_penalty = 1e-3f,
                   .presence_penalty = -2,
                   .frequency_penalty = 2}),
            "");
  EXPECT_EQ(check({.temperature = -1}), "temperature -1 is outside [0, 100]");
  EXPECT_EQ(check({.temperature = kNaN}), "temperature nan is outside [0, 100]");
  EXPECT_EQ(check({.top_p = 0}), "top_p 0 is outside (0, 1]");
  EXPECT_EQ(check({.min_p = 1.5f}), "min_p 1.5 is outside [0, 1]");
  for (const float value : {0.0f, -1.0f, kNaN, kInf}) {
    EXPECT_NE(check({.repetition_penalty = value}).find("is not a number above 0; 1 changes nothing"),
              std::string::npos);
  }
  EXPECT_EQ(check({.presence_penalty = 2.5f}), "presence_penalty 2.5 is outside [-2, 2]");
  EXPECT_EQ(check({.frequency_penalty = kNaN}), "frequency_penalty nan is outside [-2, 2]");
}

TEST(CheckTokenRules, EveryFaultIsOneSentence) {
  const auto check = [](const TokenRules& rules) { return message(check_token_rules(rules)); };
  EXPECT_EQ(check({}), "");
  const std::vector<LogitBias> extremes{{1, 100}, {2, -100}};
  EXPECT_EQ(check({.logit_bias = extremes}), "");
  const std::vector<LogitBias> far{{1, 100.5f}};
  EXPECT_EQ(check({.logit_bias = far}), "logit_bias 100.5 of token 1 is outside [-100, 100]");
  const std::vector<LogitBias> twice{{7, 1}, {7, 1}};
  EXPECT_EQ(check({.logit_bias = twice}), "logit_bias has token 7 twice; give it one bias");
  const std::vector<LogitBias> many(kMaxLogitBiases + 1);
  EXPECT_EQ(check({.logit_bias = many}), "logit_bias has 1025 tokens; at most 1024 can have one");
  const std::vector<std::vector<int32_t>> empty{{1}, {}};
  EXPECT_EQ(check({.bad_words = empty}), "bad_words has an empty word; give each at least one token");
  const std::vector<std::vector<int32_t>> long_words(2, std::vector<int32_t>(600, 1));
  EXPECT_EQ(check({.bad_words = long_words}), "bad_words has 1200 tokens in all; give at most 1024");
  const std::vector<std::vector<int32_t>> many_words(kMaxBadWords + 1, {1});
  EXPECT_EQ(check({.bad_words = many_words}), "bad_words has 129 words; give at most 128");
  const std::vector<int32_t> stops(kMaxStopTokenIds + 1, 1);
  EXPECT_EQ(check({.stop_token_ids = stops}), "stop_token_ids has 129 tokens; give at most 128");
  EXPECT_EQ(check({.min_tokens = -1}), "min_tokens is -1; it cannot be below 0");
}

TEST(CheckTokenIds, LookAtEveryList) {
  const std::vector<LogitBias> bias{{9, 1}, {10, 1}};
  const std::vector<std::vector<int32_t>> words{{1}, {2, 10}};
  const std::vector<int32_t> stops{-1};
  const auto check = [](const TokenRules& rules) { return message(check_token_ids(rules, 10)); };
  EXPECT_EQ(check({}), "");
  EXPECT_EQ(check({.logit_bias = bias}), "logit_bias has token id 10, which is outside the vocabulary of 10");
  EXPECT_EQ(check({.bad_words = words}), "bad_words has token id 10, which is outside the vocabulary of 10");
  EXPECT_EQ(check({.stop_token_ids = stops}), "stop_token_ids has token id -1, which is outside the vocabulary of 10");
  EXPECT_EQ(message(check_num_logprobs(-1, "logprobs")), "");
  EXPECT_EQ(message(check_num_logprobs(20, "logprobs")), "");
  EXPECT_EQ(message(check_num_logprobs(21, "logprobs")), "logprobs is 21; between 0 and 20 alternatives can be listed");
}

TEST(FillSlotRules, KeepsListsOfFullCapacityInOrder) {
  std::vector<LogitBias> bias(kMaxLogitBiases);
  for (int32_t i = 0; i < kMaxLogitBiases; ++i) bias[static_cast<size_t>(i)] = {i, static_cast<float>(i)};
  const std::vector<std::vector<int32_t>> words{{4}, {5, 6}, std::vector<int32_t>(kMaxBadWordTokens - 3, 7)};
  const std::vector<int32_t> stops(kMaxStopTokenIds, 8);
  SlotRules slot;
  fill_slot_rules(slot, {.seed = 3}, {.logit_bias = bias, .bad_words = words, .stop_token_ids = stops, .min_tokens = 2},
                  5);
  EXPECT_EQ(slot.sampling.seed, 3u);
  EXPECT_EQ(slot.num_logprobs, 5);
  EXPECT_EQ(slot.min_tokens, 2);
  EXPECT_EQ(slot.num_logit_biases, kMaxLogitBiases);
  EXPECT_EQ(slot.logit_bias[kMaxLogitBiases - 1].token, kMaxLogitBiases - 1);
  EXPECT_EQ(slot.num_stop_token_ids, kMaxStopTokenIds);
  EXPECT_EQ(slot.num_bad_words, 3);
  EXPECT_EQ(slot.bad_word_ends[0], 1);
  EXPECT_EQ(slot.bad_word_ends[1], 3);
  EXPECT_EQ(slot.bad_word_ends[2], kMaxBadWordTokens);
  EXPECT_EQ(slot.bad_word_tokens[2], 6);
  EXPECT_EQ(slot.bad_word_tokens[kMaxBadWordTokens - 1], 7);
  fill_slot_rules(slot, {}, {}, -1);
  EXPECT_EQ(slot.num_logit_biases + slot.num_stop_token_ids + slot.num_bad_words, 0);
}

}  // namespace
}  // namespace lantern
