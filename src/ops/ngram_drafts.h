// Drafts without a drafter: what followed when the last tokens of the text came up before ("prompt lookup", Saxena
// 2023). Of the earlier places whose tokens equal the last n of the history, for the largest n in [min_ngram,
// max_ngram] that has any, the latest one counts; the drafts are the tokens after it. Where they reach the end of the
// history they go on with themselves, so that a repetition is continued to the full length.
#pragma once

#include <cstdint>

#include "device/fixed.h"
#include "device/stream.h"
#include "ops/sampler_slots.h"

namespace lantern {

struct NgramDraftsParams {
  SamplerSlots slots{};  // draft_tokens and num_drafts in it are not read
  SampleRequests requests{};
  DevPtr<const int32_t> wanted{};  // [max_requests]: drafts to make at most for the request
  DevPtr<int32_t> draft_tokens{};  // [slots, max_drafts]
  DevPtr<int32_t> num_drafts{};    // [slots]: 0 where nothing matches, and never past max_model_len
  int32_t min_ngram = 1;
  int32_t max_ngram = 4;
};
// For requests with rows; the drafts of other slots stay as they are.
void ngram_drafts(Stream& stream, const NgramDraftsParams& params);

}  // namespace lantern
