#include <algorithm>
#include <limits>

#include "base/check.h"
#include "ops/cuda_ops.h"
#include "ops/pass_sizes.h"
#include "ops/process_logits.h"
#include "ops/row_math_host.h"
#include "ops/sampler_rows.h"

namespace lantern {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

constexpr int64_t row_scratch_bytes(int32_t vocab) {
  return (int64_t{vocab} * static_cast<int64_t>(sizeof(uint32_t)) + 255) / 256 * 256;
}

void apply_allowed(float* logits, int32_t vocab, const uint32_t* allowed) {
  for (int32_t i = 0; i < vocab; ++i) {
    if ((allowed[i / 32] >> (i % 32) & 1u) == 0) logits[i] = -kInfinity;
  }
}

void ban(float* logits, int32_t vocab, int32_t token) {
  if (token >= 0 && token < vocab) logits[token] = -kInfinity;
}

void apply_bad_words(float* logits, int32_t vocab, const SlotRules& rules, const sampler::TextView& text) {
  int32_t begin = 0;
  for (int32_t w = 0; w < rules.num_bad_words; ++w) {
    const int32_t end = rules.bad_word_ends[w];
    const int32_t* word = rules.bad_word_tokens + begin;
    if (sampler::would_complete(text, word, end - begin)) ban(logits, vocab, word[end - begin - 1]);
    begin = end;
  }
}

void apply_penalties(float* logits, int32_t vocab, const SamplingSettings& settings, const sampler::TextView& text,
                     uint32_t* seen) {
  std::fill(seen, seen + vocab, 0u);
  for (int32_t i = 0; i < text.size(); ++i) {
    const int32_t token = text[i];
    if (token < 0 || token >= vocab) continue;
    if (i < text.prompt_len) {
      seen[token] |= sampler::kInPrompt;
    } else {
      ++seen[token];
    }
  }
  for (int32_t i = 0; i < vocab; ++i) logits[i] = sampler::penalised(logits[i], seen[i], settings);
}

RowStatus process_row(const ProcessLogitsParams& p, int64_t r, std::byte* scratch) {
  const int32_t slot = p.row_slots[r];
  const int32_t vocab = p.slots.vocab;
  if (!sampler::is_slot(p.slots, slot)) return RowStatus::kOk;
  const float* logits = p.logits.get() + r * vocab;
  float* processed = p.processed.get() + r * vocab;
  if (processed != logits) std::copy(logits, logits + vocab, processed);
  if (!all_finite(logits, vocab)) return RowStatus::kNotFinite;

  const SlotRules& rules = p.slots.rules[slot];
  const sampler::TextView text = sampler::text_of(p.slots, slot, p.drafts_before[r]);
  bool banned = false;
  if (p.allowed_tokens && p.row_allowed_masks[r] >= 0) {
    apply_allowed(processed, vocab, p.allowed_tokens.get() + int64_t{p.row_allowed_masks[r]} * ((vocab + 31) / 32));
    banned = true;
  }
  for (int32_t i = 0; i < rules.num_logit_biases; ++i) {
    const LogitBias& entry = rules.logit_bias[i];
    if (entry.token >= 0 && entry.token < vocab) processed[entry.token] += entry.bias;
  }
  if (rules.num_bad_words > 0) {
    apply_bad_words(processed, vocab, rules, text);
    banned = true;
  }
  if (text.num_outputs() < rules.min_tokens) {
    for (int32_t i = 0; i < rules.num_stop_token_ids; ++i) ban(processed, vocab, rules.stop_token_ids[i]);
    banned = true;
  }
  if (rules.sampling.has_penalties()) {
    apply_penalties(processed, vocab, rules.sampling, text, reinterpret_cast<uint32_t*>(scratch));
    banned = true;  // a product beyond the range of float
  }
  if (banned && row_maximum(processed, vocab) == -kInfinity) return RowStatus::kNoToken;
  return RowStatus::kOk;
}

void process_logits_kernel(const ProcessLogitsParams& p, HostContext& context) {
  for (int64_t first = 0; first < p.rows; first += kRowsAtOnce) {
    context.threads.parallel_for(std::min(kRowsAtOnce, p.rows - first), 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t r = begin; r < end; ++r) {
        const RowStatus status = process_row(p, first + r, p.scratch.get() + r * row_scratch_bytes(p.slots.vocab));
        p.status[first + r] = static_cast<int32_t>(status);
      }
    });
  }
}

void expand_sample_rows_kernel(const ExpandSampleRowsParams& p, HostContext&) {
  for (int64_t r = 0; r < p.max_rows; ++r) sampler::clear_sample_row(p.rows, r);
  const int32_t requests = sampler::request_count(p.requests);
  for (int32_t b = 0; b < requests; ++b) sampler::expand_request(p, b);
}

void prompt_targets_kernel(const PromptTargetsParams& p, HostContext&) {
  for (int64_t r = 0; r < p.rows; ++r) p.targets[r] = sampler::prompt_target(p, r);
}

}  // namespace

int64_t process_logits_scratch_bytes(int64_t max_rows, int32_t vocab) {
  return std::min(max_rows, kRowsAtOnce) * row_scratch_bytes(vocab);
}

void process_logits(Stream& stream, const ProcessLogitsParams& params) {
  const int64_t needed = process_logits_scratch_bytes(params.rows, params.slots.vocab);
  CHECK(params.slots.vocab > 0 && params.scratch_bytes >= needed,
        "processing {} rows of {} logits has {} bytes of scratch, needs {}", params.rows, params.slots.vocab,
        params.scratch_bytes, needed);
  launch_op(stream, "process_logits", &process_logits_kernel, &CudaOps::process_logits, params);
}

void expand_sample_rows(Stream& stream, const ExpandSampleRowsParams& params) {
  launch_op(stream, "expand_sample_rows", &expand_sample_rows_kernel, &CudaOps::expand_sample_rows, params);
}

void prompt_targets(Stream& stream, const PromptTargetsParams& params) {
  launch_op(stream, "prompt_targets", &prompt_targets_kernel, &CudaOps::prompt_targets, params);
}

}  // namespace lantern
