// A request: what a user wants, fixed once it is submitted. A request with `n` choices is served as n sequences that
// share one pass over the prompt.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/engine_settings.h"
#include "engine/token_constraint.h"
#include "ops/sampling.h"

namespace lantern {

// Names a submitted request for as long as one of its choices lives; later requests get other ids. 0 names none.
using RequestId = uint64_t;

struct Request {
  std::vector<int32_t> prompt;  // token ids, special tokens included; at least one
  int32_t max_tokens = 256;     // of each choice; the context's end may come first
  int32_t n = 1;                // choices

  SamplingSettings sampling;
  std::vector<int32_t> stop_token_ids;  // end-of-sequence tokens among them; the one that was met stays in the output
  bool ignore_stop_tokens = false;
  int32_t min_tokens = 0;                       // no stop token is drawn before so many
  std::vector<LogitBias> logit_bias;            // each token at most once
  std::vector<std::vector<int32_t>> bad_words;  // token sequences that the text must not contain
  int32_t logprobs = -1;  // most likely tokens to list for every token of the output; -1: no logprobs at all
  // The same for every token of the prompt but the first. Such a request takes no prefixes from the cache: logits of
  // every position are wanted.
  int32_t prompt_logprobs = -1;
  bool trace_selections = false;  // which context tokens sparse attention read for each token of the output

  // What of this changes logits, as the sampler takes it; a view of this request.
  TokenRules token_rules() const {
    return {
        .logit_bias = logit_bias, .bad_words = bad_words, .stop_token_ids = stop_token_ids, .min_tokens = min_tokens};
  }

  int32_t priority = 0;          // lower is sooner; each unit counts as settings.priority_step of waiting, >= 0
  EngineTime deadline = kNever;  // ended with EndReason::kDeadline when it passes
  std::string cache_salt;        // only requests with the same salt share prefixes
  // Says before every token which ones may come; null: all. The choices share it.
  std::shared_ptr<TokenConstraint> constraint;
};

enum class EndReason : uint8_t {
  kNone,       // not ended
  kStop,       // a stop token, or the output's reader found its end
  kLength,     // max_tokens, or the end of the context
  kCancelled,  // by the user
  kDeadline,   // its deadline passed
  kFailed,     // the step failed for it: logits that are no numbers, no token that may come
};
std::string_view to_string(EndReason reason);  // "stop", "length", "cancelled", "deadline", "failed"

// Tokens that a choice may have, its prompt included.
int32_t max_length(const Request& request, const EngineSettings& settings);

// Errors: what makes no sense (an empty prompt, max_tokens or n below 1, a priority below 0, min_tokens above
// max_tokens), and what could never be served: a prompt that fills the context, more choices than sequences may run,
// a length that the pool cannot hold even alone. Token ids are looked at by check_vocabulary().
Status check_request(const Request& request, const EngineSettings& settings);
// Errors: a token id outside [0, vocab) in the prompt or in one of the lists.
Status check_vocabulary(const Request& request, int32_t vocab);

}  // namespace lantern
