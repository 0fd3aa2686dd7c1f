// Constrained decoding: a request may bring a hook that says before every token which ones may come. It sees accepted
// tokens alone, so a constrained row runs without drafts, and a step that has one is not overlapped with the next: what
// came of it decides what may follow. That is exact for every hook and every sampling setting. Masks for drafts would
// need the drafts on the host before the step that verifies them, which costs the same wait.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"

namespace lantern {

// Called on the engine's thread, between steps, one call at a time; everyone waits meanwhile.
class TokenConstraint {
 public:
  virtual ~TokenConstraint() = default;

  // Allows what may follow `output`, all tokens of choice `choice` so far, by setting bit id % 32 of word id / 32 in
  // `mask` [ceil(vocab / 32)], which comes all zero; bits beyond the vocabulary mean nothing. End-of-sequence tokens
  // are tokens like others. Between the calls for a choice `output` only grows, so that an implementation may keep what
  // it made of the beginning; the same may be asked again (a step that was refused, a preemption). Logit bias, bad
  // words and min_tokens apply within what is allowed.
  // An error, an exception, or a mask that leaves no token ends this choice alone with EndReason::kFailed.
  virtual Status allow(int32_t choice, std::span<const int32_t> output, std::span<uint32_t> mask) = 0;
};

inline int32_t mask_words(int32_t vocab) { return (vocab + 31) / 32; }

// allow() with `mask` made zero before, and after an error again. An exception becomes an error.
Status ask_constraint(TokenConstraint& constraint, int32_t choice, std::span<const int32_t> output,
                      std::span<uint32_t> mask);

}  // namespace lantern
