// The arithmetic of process_logits.h, verify.h and ngram_drafts.h for one logit, one row or one request, as host and
// CUDA kernels share it: kernels add only who computes what.
#pragma once

#include <cstdint>

#include "base/host_device.h"
#include "ops/philox.h"
#include "ops/sampler_slots.h"

namespace lantern::sampler {

// The text of a slot as the row after some drafts sees it: the history, then these drafts.
struct TextView {
  const int32_t* history = nullptr;
  const int32_t* drafts = nullptr;
  int32_t history_len = 0;
  int32_t prompt_len = 0;
  int32_t num_drafts = 0;

  LANTERN_HOST_DEVICE int32_t size() const { return history_len + num_drafts; }
  LANTERN_HOST_DEVICE int32_t num_outputs() const { return size() - prompt_len; }
  LANTERN_HOST_DEVICE int32_t operator[](int32_t i) const {
    return i < history_len ? history[i] : drafts[i - history_len];
  }
};

LANTERN_HOST_DEVICE inline int32_t drafts_of(const SamplerSlots& slots, int32_t slot) {
  if (!slots.draft_tokens) return 0;
  const int32_t count = slots.num_drafts[slot];
  return count < 0 ? 0 : count < slots.max_drafts ? count : slots.max_drafts;
}

LANTERN_HOST_DEVICE inline TextView text_of(const SamplerSlots& slots, int32_t slot, int32_t drafts_before) {
  const int32_t drafts = drafts_of(slots, slot);
  return {.history = slots.history.get() + int64_t{slot} * slots.max_model_len,
          .drafts = slots.draft_tokens ? slots.draft_tokens.get() + int64_t{slot} * slots.max_drafts : nullptr,
          .history_len = slots.history_len[slot],
          .prompt_len = slots.prompt_len[slot],
          .num_drafts = drafts_before < drafts ? drafts_before : drafts};
}

// Whether `slot` can be followed; padding has -1.
LANTERN_HOST_DEVICE inline bool is_slot(const SamplerSlots& slots, int32_t slot) {
  return slot >= 0 && slot < slots.num_slots;
}

LANTERN_HOST_DEVICE inline int32_t request_count(const SampleRequests& requests) {
  const int32_t count = requests.num_requests[0];
  return count < 0 ? 0 : count < requests.max_requests ? count : requests.max_requests;
}

// Whether the text ends with all but the last token of `word`, so that this token would complete it.
LANTERN_HOST_DEVICE inline bool would_complete(const TextView& text, const int32_t* word, int32_t length) {
  const int32_t rest = length - 1;
  if (rest > text.size()) return false;
  for (int32_t i = 0; i < rest; ++i) {
    if (text[text.size() - rest + i] != word[i]) return false;
  }
  return true;
}

// How often a token was seen: the upper bit says "in the prompt", the others count the output.
constexpr uint32_t kInPrompt = uint32_t{1} << 31;

LANTERN_HOST_DEVICE inline float penalised(float logit, uint32_t seen, const SamplingSettings& s) {
  if (seen == 0) return logit;
  logit = logit > 0 ? logit / s.repetition_penalty : logit * s.repetition_penalty;
  const uint32_t count = seen & ~kInPrompt;
  if (count == 0) return logit;
  // Two roundings, as in a build that never fuses a product with a sum (-ffp-contract=off, nvcc --fmad=false).
  const float frequency = s.frequency_penalty * static_cast<float>(count);
  logit = logit - frequency;
  return logit - s.presence_penalty;
}

// Verification of one request's `rows` rows.
struct Verdict {
  int32_t num_tokens;  // samples of the first so many rows are new
  RowStatus status;
};
LANTERN_HOST_DEVICE inline Verdict verify_rows(const int32_t* samples, const int32_t* row_status, int32_t rows,
                                               const int32_t* drafts, int32_t num_drafts) {
  for (int32_t j = 0; j < rows; ++j) {
    const auto status = static_cast<RowStatus>(row_status[j]);
    if (status != RowStatus::kOk) return {j, status};
    if (j >= num_drafts || j + 1 == rows || samples[j] != drafts[j]) return {j + 1, RowStatus::kOk};
  }
  return {0, RowStatus::kOk};
}

// Drafts that benchmarks accept: before the first that misses the chance. The noise is that of another seed, so that it
// says nothing of the samples.
LANTERN_HOST_DEVICE inline int32_t synthetic_hits(double chance, uint64_t seed, int64_t output_position,
                                                  int32_t num_drafts) {
  int32_t hits = 0;
  while (hits < num_drafts && philox_uniform_53(~seed, static_cast<uint64_t>(output_position + hits)) < chance) {
    ++hits;
  }
  return hits;
}

// Tokens, at most `most`, in which the text before `end` agrees with the end of the history, counted backwards.
LANTERN_HOST_DEVICE inline int32_t match_length(const int32_t* history, int32_t history_len, int32_t end,
                                                int32_t most) {
  int32_t length = 0;
  while (length < most && length < end && history[end - 1 - length] == history[history_len - 1 - length]) ++length;
  return length;
}

// Draft i of a continuation from `begin`: past the history's end it repeats the drafts before it.
LANTERN_HOST_DEVICE inline int32_t continued(const int32_t* history, int32_t history_len, int32_t begin, int32_t i) {
  return history[begin + i % (history_len - begin)];
}

}  // namespace lantern::sampler
