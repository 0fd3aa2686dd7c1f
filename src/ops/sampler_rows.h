// What process_logits.h and verify.h do for one row or one request, without a float operation: host and CUDA kernels
// share it and add only who does which.
#pragma once

#include <cstdint>

#include "base/host_device.h"
#include "ops/process_logits.h"
#include "ops/sampler_math.h"
#include "ops/verify.h"

namespace lantern::sampler {

LANTERN_HOST_DEVICE inline int32_t lesser(int32_t a, int32_t b) { return a < b ? a : b; }

LANTERN_HOST_DEVICE inline void clear_sample_row(const SampleRows& rows, int64_t r) {
  rows.slots[r] = -1;
  rows.drafts_before[r] = 0;
  rows.output_positions[r] = 0;
  rows.settings[r] = SamplingSettings{};
  rows.num_logprobs[r] = -1;
}

// The rows of request b, which is not padding; others are cleared.
LANTERN_HOST_DEVICE inline void expand_request(const ExpandSampleRowsParams& p, int32_t b) {
  const int32_t slot = p.requests.slots[b];
  if (!is_slot(p.slots, slot)) return;
  const SlotRules& rules = p.slots.rules[slot];
  const int64_t base = int64_t{p.slots.history_len[slot]} - p.slots.prompt_len[slot];
  const int32_t start = p.requests.sample_start_loc[b];
  const int32_t begin = start > 0 ? start : 0;
  const int32_t end = lesser(p.requests.sample_start_loc[b + 1], p.max_rows);
  for (int32_t r = begin; r < end; ++r) {
    p.rows.slots[r] = slot;
    p.rows.drafts_before[r] = r - begin;
    p.rows.output_positions[r] = base + (r - begin);
    p.rows.settings[r] = rules.sampling;
    p.rows.num_logprobs[r] = rules.num_logprobs;
  }
}

LANTERN_HOST_DEVICE inline int32_t prompt_target(const PromptTargetsParams& p, int64_t r) {
  const int32_t slot = p.row_slots[r];
  const int32_t next = p.positions[r] + 1;
  const bool exists = is_slot(p.slots, slot) && next >= 1 && next < p.slots.prompt_len[slot];
  return exists ? p.slots.history[int64_t{slot} * p.slots.max_model_len + next] : -1;
}

LANTERN_HOST_DEVICE inline void append(const SamplerSlots& slots, int32_t slot, const int32_t* tokens, int32_t count) {
  const int32_t length = slots.history_len[slot];
  // A sequence that ended unknown to the host may come to more than the context holds; what is over is never read.
  const int32_t room = slots.max_model_len - length;
  const int32_t added = room < 0 ? 0 : lesser(room, count);
  int32_t* history = slots.history.get() + int64_t{slot} * slots.max_model_len + length;
  for (int32_t i = 0; i < added; ++i) history[i] = tokens[i];
  slots.history_len[slot] = length + added;
}

// Entry b of the outcome, `num_requests` requests being none of padding.
LANTERN_HOST_DEVICE inline void verify_request(const VerifyParams& p, int32_t b, int32_t num_requests) {
  int32_t* tokens = p.tokens.get() + int64_t{b} * p.max_query_len;
  for (int32_t j = 0; j < p.max_query_len; ++j) tokens[j] = -1;
  p.num_tokens[b] = 0;
  p.status[b] = static_cast<int32_t>(RowStatus::kOk);
  if (b >= num_requests || !is_slot(p.slots, p.requests.slots[b])) return;
  const int32_t slot = p.requests.slots[b];
  const int32_t begin = p.requests.sample_start_loc[b];
  const int32_t rows = lesser(p.requests.sample_start_loc[b + 1] - begin, p.max_query_len);
  if (rows <= 0) return;
  int32_t drafts = drafts_of(p.slots, slot);
  const int32_t* draft_tokens = drafts > 0 ? p.slots.draft_tokens.get() + int64_t{slot} * p.slots.max_drafts : nullptr;
  for (int32_t j = 0; j < rows; ++j) tokens[j] = p.samples[begin + j];
  if (p.synthetic_acceptance >= 0) {
    const uint64_t seed = p.slots.rules[slot].sampling.seed;
    const int64_t position = int64_t{p.slots.history_len[slot]} - p.slots.prompt_len[slot];
    const int32_t checked = lesser(rows - 1, drafts);
    const int32_t accepted = synthetic_hits(p.synthetic_acceptance, seed, position, checked);
    for (int32_t j = 0; j < accepted; ++j) tokens[j] = draft_tokens[j];
    if (accepted < checked) drafts = accepted;
  }
  const Verdict verdict = verify_rows(tokens, p.row_status.get() + begin, rows, draft_tokens, drafts);
  for (int32_t j = verdict.num_tokens; j < p.max_query_len; ++j) tokens[j] = -1;
  p.num_tokens[b] = verdict.num_tokens;
  p.status[b] = static_cast<int32_t>(verdict.status);
  append(p.slots, slot, tokens, verdict.num_tokens);
}

}  // namespace lantern::sampler
