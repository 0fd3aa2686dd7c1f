// How a request wants its tokens chosen: numbers (SamplingSettings), lists (TokenRules), and the form in which both lie
// on the device, one SlotRules for each running sequence. What each of them does to the logits is in process_logits.h
// and sampling.h; names, ranges and defaults are those of the OpenAI API and of vLLM.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"

namespace lantern {

struct SamplingSettings {
  float temperature = 1.0f;  // in [0, 100]; 0: greedy (lowest id among equals)
  float top_p = 1.0f;        // in (0, 1]
  int32_t top_k = 0;         // 0 or less: all
  float min_p = 0.0f;        // in [0, 1]
  uint64_t seed = 0;
  float repetition_penalty = 1.0f;  // above 0; of tokens in the prompt or the output
  float presence_penalty = 0.0f;    // in [-2, 2]; of tokens in the output
  float frequency_penalty = 0.0f;   // in [-2, 2]; for each time that the output has the token

  bool has_penalties() const {
    return repetition_penalty != 1.0f || presence_penalty != 0.0f || frequency_penalty != 0.0f;
  }
};

struct LogitBias {
  int32_t token = 0;
  float bias = 0;  // added to the logit; in [-100, 100]
};

// A view of a request's lists.
struct TokenRules {
  std::span<const LogitBias> logit_bias = {};  // each token at most once
  std::span<const std::vector<int32_t>> bad_words =
      {};                                        // token sequences that the text must not contain; none is empty
  std::span<const int32_t> stop_token_ids = {};  // those that min_tokens keeps away
  int32_t min_tokens = 0;                        // tokens of the output before the first stop token
};

// What one request may ask for: the capacities of SlotRules.
constexpr int32_t kMaxLogitBiases = 1024;
constexpr int32_t kMaxStopTokenIds = 128;
constexpr int32_t kMaxBadWords = 128;
constexpr int32_t kMaxBadWordTokens = 1024;  // of all bad words together
constexpr int32_t kMaxLogprobs = 20;         // most likely alternatives of a position

// Errors (invalid_argument, one sentence with the field's name): a number outside the range above, or no number.
Status check_sampling(const SamplingSettings& settings);
// Errors: a list longer than its capacity, an empty bad word, a bias outside [-100, 100] or no number, a token with two
// biases, min_tokens below 0.
Status check_token_rules(const TokenRules& rules);
// Errors: neither -1 (none) nor 0 to kMaxLogprobs.
Status check_num_logprobs(int32_t count, const char* field);
// Errors: a token id outside [0, vocab) in `ids`; `field` names the list.
Status check_token_ids(std::span<const int32_t> ids, int32_t vocab, const char* field);
Status check_token_ids(const TokenRules& rules, int32_t vocab);

// A request's rules on the device (13 KiB). Plain data, so that one copy sets a slot.
struct SlotRules {
  SamplingSettings sampling;
  int32_t min_tokens = 0;
  int32_t num_logprobs = -1;  // alternatives to list for every position; -1: no logprobs at all
  int32_t num_logit_biases = 0;
  int32_t num_stop_token_ids = 0;
  int32_t num_bad_words = 0;
  LogitBias logit_bias[kMaxLogitBiases];
  int32_t stop_token_ids[kMaxStopTokenIds];
  int32_t bad_word_ends[kMaxBadWords];  // word w is bad_word_tokens[end of word w - 1, end of word w)
  int32_t bad_word_tokens[kMaxBadWordTokens];
};
// Preconditions: check_sampling() and check_token_rules() accepted them; num_logprobs is -1 to kMaxLogprobs.
void fill_slot_rules(SlotRules& slot, const SamplingSettings& sampling, const TokenRules& rules, int32_t num_logprobs);

}  // namespace lantern
