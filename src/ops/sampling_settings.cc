#include "ops/sampling_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <unordered_set>

#include "base/check.h"

namespace lantern {
namespace {

Error invalid(std::string message) { return {ErrorCode::kInvalidArgument, std::move(message)}; }

// False for NaN.
bool lies_within(float value, float lowest, float highest) { return value >= lowest && value <= highest; }

}  // namespace

Status check_sampling(const SamplingSettings& s) {
  if (!lies_within(s.temperature, 0.0f, 100.0f)) {
    return invalid(fmt::format("temperature {} is outside [0, 100]", s.temperature));
  }
  if (!(s.top_p > 0.0f && s.top_p <= 1.0f)) return invalid(fmt::format("top_p {} is outside (0, 1]", s.top_p));
  if (!lies_within(s.min_p, 0.0f, 1.0f)) return invalid(fmt::format("min_p {} is outside [0, 1]", s.min_p));
  if (!(s.repetition_penalty > 0.0f) || std::isinf(s.repetition_penalty)) {
    return invalid(
        fmt::format("repetition_penalty {} is not a number above 0; 1 changes nothing", s.repetition_penalty));
  }
  if (!lies_within(s.presence_penalty, -2.0f, 2.0f)) {
    return invalid(fmt::format("presence_penalty {} is outside [-2, 2]", s.presence_penalty));
  }
  if (!lies_within(s.frequency_penalty, -2.0f, 2.0f)) {
    return invalid(fmt::format("frequency_penalty {} is outside [-2, 2]", s.frequency_penalty));
  }
  return {};
}

Status check_token_rules(const TokenRules& rules) {
  if (rules.logit_bias.size() > kMaxLogitBiases) {
    return invalid(
        fmt::format("logit_bias has {} tokens; at most {} can have one", rules.logit_bias.size(), kMaxLogitBiases));
  }
  std::unordered_set<int32_t> biased;
  for (const LogitBias& entry : rules.logit_bias) {
    if (!lies_within(entry.bias, -100.0f, 100.0f)) {
      return invalid(fmt::format("logit_bias {} of token {} is outside [-100, 100]", entry.bias, entry.token));
    }
    if (!biased.insert(entry.token).second) {
      return invalid(fmt::format("logit_bias has token {} twice; give it one bias", entry.token));
    }
  }
  if (rules.stop_token_ids.size() > kMaxStopTokenIds) {
    return invalid(
        fmt::format("stop_token_ids has {} tokens; give at most {}", rules.stop_token_ids.size(), kMaxStopTokenIds));
  }
  if (rules.bad_words.size() > kMaxBadWords) {
    return invalid(fmt::format("bad_words has {} words; give at most {}", rules.bad_words.size(), kMaxBadWords));
  }
  size_t tokens = 0;
  for (const std::vector<int32_t>& word : rules.bad_words) {
    if (word.empty()) return invalid("bad_words has an empty word; give each at least one token");
    tokens += word.size();
  }
  if (tokens > kMaxBadWordTokens) {
    return invalid(fmt::format("bad_words has {} tokens in all; give at most {}", tokens, kMaxBadWordTokens));
  }
  if (rules.min_tokens < 0) return invalid(fmt::format("min_tokens is {}; it cannot be below 0", rules.min_tokens));
  return {};
}

Status check_num_logprobs(int32_t count, const char* field) {
  if (count >= -1 && count <= kMaxLogprobs) return {};
  return invalid(fmt::format("{} is {}; between 0 and {} alternatives can be listed", field, count, kMaxLogprobs));
}

Status check_token_ids(std::span<const int32_t> ids, int32_t vocab, const char* field) {
  for (const int32_t id : ids) {
    if (id < 0 || id >= vocab) {
      return invalid(fmt::format("{} has token id {}, which is outside the vocabulary of {}", field, id, vocab));
    }
  }
  return {};
}

Status check_token_ids(const TokenRules& rules, int32_t vocab) {
  for (const LogitBias& entry : rules.logit_bias) {
    RETURN_IF_ERROR(check_token_ids({&entry.token, 1}, vocab, "logit_bias"));
  }
  for (const std::vector<int32_t>& word : rules.bad_words) RETURN_IF_ERROR(check_token_ids(word, vocab, "bad_words"));
  return check_token_ids(rules.stop_token_ids, vocab, "stop_token_ids");
}

void fill_slot_rules(SlotRules& slot, const SamplingSettings& sampling, const TokenRules& rules, int32_t num_logprobs) {
  CHECK(num_logprobs >= -1 && num_logprobs <= kMaxLogprobs, "{} logprobs were asked for", num_logprobs);
  CHECK(rules.logit_bias.size() <= kMaxLogitBiases && rules.stop_token_ids.size() <= kMaxStopTokenIds &&
            rules.bad_words.size() <= kMaxBadWords,
        "rules of {} biases, {} stop tokens and {} bad words were not checked", rules.logit_bias.size(),
        rules.stop_token_ids.size(), rules.bad_words.size());
  slot.sampling = sampling;
  slot.min_tokens = rules.min_tokens;
  slot.num_logprobs = num_logprobs;
  slot.num_logit_biases = static_cast<int32_t>(rules.logit_bias.size());
  std::ranges::copy(rules.logit_bias, slot.logit_bias);
  slot.num_stop_token_ids = static_cast<int32_t>(rules.stop_token_ids.size());
  std::ranges::copy(rules.stop_token_ids, slot.stop_token_ids);
  slot.num_bad_words = static_cast<int32_t>(rules.bad_words.size());
  int32_t end = 0;
  for (size_t w = 0; w < rules.bad_words.size(); ++w) {
    const std::vector<int32_t>& word = rules.bad_words[w];
    CHECK(!word.empty() && word.size() <= static_cast<size_t>(kMaxBadWordTokens - end), "bad words were not checked");
    std::ranges::copy(word, slot.bad_word_tokens + end);
    end += static_cast<int32_t>(word.size());
    slot.bad_word_ends[w] = end;
  }
}

}  // namespace lantern
