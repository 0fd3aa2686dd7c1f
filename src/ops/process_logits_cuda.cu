#include "device/cuda/block_reduce.cuh"
#include "device/cuda/launch.cuh"
#include "ops/cuda_launches.h"
#include "ops/pass_sizes.h"
#include "ops/sampler_rows.h"

namespace lantern::cuda {
namespace {

constexpr unsigned kThreads = 512;
constexpr unsigned kRowThreads = 128;

__device__ void ban(float* logits, int32_t vocab, int32_t token) {
  if (token >= 0 && token < vocab) logits[token] = -INFINITY;
}

__device__ void count_seen(const sampler::TextView& text, int32_t vocab, uint32_t* seen) {
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < vocab; i += kThreads) seen[i] = 0;
  __syncthreads();
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < text.size(); i += kThreads) {
    const int32_t token = text[i];
    if (token < 0 || token >= vocab) continue;
    if (i < text.prompt_len) {
      atomicOr(seen + token, sampler::kInPrompt);
    } else {
      atomicAdd(seen + token, 1u);
    }
  }
  __syncthreads();
}

// A block for each row.
__global__ void process_logits_kernel(ProcessLogitsParams p, int64_t first_row, uint32_t* all_seen) {
  __shared__ int32_t shared[kThreads / kWarp];
  const int64_t r = first_row + blockIdx.x;
  const int32_t slot = p.row_slots[r];
  const int32_t vocab = p.slots.vocab;
  const auto thread = static_cast<int32_t>(threadIdx.x);
  if (!sampler::is_slot(p.slots, slot)) {
    if (thread == 0) p.status[r] = static_cast<int32_t>(RowStatus::kOk);
    return;
  }
  const float* logits = p.logits.get() + r * vocab;
  float* processed = p.processed.get() + r * vocab;
  const SlotRules& rules = p.slots.rules[slot];
  const sampler::TextView text = sampler::text_of(p.slots, slot, p.drafts_before[r]);
  const uint32_t* allowed = p.allowed_tokens && p.row_allowed_masks[r] >= 0
                                ? p.allowed_tokens.get() + int64_t{p.row_allowed_masks[r]} * ((vocab + 31) / 32)
                                : nullptr;
  int32_t not_finite = 0;
  for (int32_t i = thread; i < vocab; i += kThreads) {
    const float logit = logits[i];
    not_finite |= static_cast<int32_t>(!isfinite(logit));
    const bool banned = allowed != nullptr && (allowed[i / 32] >> (i % 32) & 1u) == 0;
    processed[i] = banned ? -INFINITY : logit;
  }
  if (block_sum(not_finite, shared) != 0) {
    if (thread == 0) p.status[r] = static_cast<int32_t>(RowStatus::kNotFinite);
    return;
  }
  // block_sum() is a barrier: from here on a thread may change what another wrote.
  bool banned = allowed != nullptr;
  for (int32_t i = thread; i < rules.num_logit_biases; i += kThreads) {
    const LogitBias& entry = rules.logit_bias[i];
    if (entry.token >= 0 && entry.token < vocab) processed[entry.token] += entry.bias;
  }
  __syncthreads();
  if (rules.num_bad_words > 0) {
    for (int32_t w = thread; w < rules.num_bad_words; w += kThreads) {
      const int32_t begin = w == 0 ? 0 : rules.bad_word_ends[w - 1], end = rules.bad_word_ends[w];
      const int32_t* word = rules.bad_word_tokens + begin;
      if (sampler::would_complete(text, word, end - begin)) ban(processed, vocab, word[end - begin - 1]);
    }
    banned = true;
  }
  if (text.num_outputs() < rules.min_tokens) {
    for (int32_t i = thread; i < rules.num_stop_token_ids; i += kThreads) {
      ban(processed, vocab, rules.stop_token_ids[i]);
    }
    banned = true;
  }
  if (rules.sampling.repetition_penalty != 1.0f || rules.sampling.presence_penalty != 0.0f ||
      rules.sampling.frequency_penalty != 0.0f) {
    uint32_t* seen = all_seen + int64_t{blockIdx.x} * vocab;
    count_seen(text, vocab, seen);
    for (int32_t i = thread; i < vocab; i += kThreads) {
      processed[i] = sampler::penalised(processed[i], seen[i], rules.sampling);
    }
    banned = true;
  }
  if (!banned) {
    if (thread == 0) p.status[r] = static_cast<int32_t>(RowStatus::kOk);
    return;
  }
  __syncthreads();
  int32_t left = 0;
  for (int32_t i = thread; i < vocab; i += kThreads) left |= static_cast<int32_t>(processed[i] > -INFINITY);
  left = block_sum(left, shared);
  if (thread == 0) p.status[r] = static_cast<int32_t>(left != 0 ? RowStatus::kOk : RowStatus::kNoToken);
}

// One block, so that rows are cleared before requests fill them.
__global__ void expand_sample_rows_kernel(ExpandSampleRowsParams p) {
  for (int32_t r = static_cast<int32_t>(threadIdx.x); r < p.max_rows; r += kRowThreads) {
    sampler::clear_sample_row(p.rows, r);
  }
  __syncthreads();
  const int32_t requests = sampler::request_count(p.requests);
  for (int32_t b = static_cast<int32_t>(threadIdx.x); b < requests; b += kRowThreads) sampler::expand_request(p, b);
}

__global__ void prompt_targets_kernel(PromptTargetsParams p) {
  const int64_t r = int64_t{blockIdx.x} * kRowThreads + threadIdx.x;
  if (r < p.rows) p.targets[r] = sampler::prompt_target(p, r);
}

}  // namespace

void process_logits(void* stream, const ProcessLogitsParams& p) {
  for (int64_t first = 0; first < p.rows; first += kRowsAtOnce) {
    launch_kernel(stream, "process_logits", &process_logits_kernel,
                  blocks_for(std::min(kRowsAtOnce, p.rows - first), 1), kThreads, 0, p, first,
                  reinterpret_cast<uint32_t*>(p.scratch.get()));
  }
}
void expand_sample_rows(void* stream, const ExpandSampleRowsParams& p) {
  launch_kernel(stream, "expand_sample_rows", &expand_sample_rows_kernel, 1, kRowThreads, 0, p);
}
void prompt_targets(void* stream, const PromptTargetsParams& p) {
  launch_kernel(stream, "prompt_targets", &prompt_targets_kernel, blocks_for(p.rows, kRowThreads), kRowThreads, 0, p);
}

}  // namespace lantern::cuda
