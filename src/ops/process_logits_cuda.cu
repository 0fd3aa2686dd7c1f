#include "device/cuda/block_reduce.cuh"
#include "device/cuda/launch.cuh"
#include "device/cuda/quads.cuh"
#include "ops/cuda_launches.h"
#include "ops/cuda_scratch.h"
#include "ops/pass_sizes.h"
#include "ops/sampler_rows.h"

namespace lantern::cuda {
namespace {

constexpr int32_t kThreads = 1024;
constexpr unsigned kRowThreads = 128;
constexpr int kPartQuads = kCudaVocabPart / (kThreads * kQuad);

// What a part of a row says of it.
constexpr int32_t kIsFinite = 1, kHasToken = 2;

// The tokens of one block.
struct Part {
  int32_t begin, end;
  float* logits;   // [end - begin], shared
  uint32_t* seen;  // [end - begin], shared

  __device__ bool has(int32_t token) const { return token >= begin && token < end; }
  __device__ void ban(int32_t token) const {
    if (has(token)) logits[token - begin] = -INFINITY;
  }
};

__device__ void count_seen(const sampler::TextView& text, const Part& part) {
  constexpr int kAtOnce = 8;
  const auto thread = static_cast<int32_t>(threadIdx.x);
  for (int32_t i = thread; i < part.end - part.begin; i += kThreads) part.seen[i] = 0;
  __syncthreads();
  for (int32_t first = thread; first < text.size(); first += kAtOnce * kThreads) {
    int32_t tokens[kAtOnce];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const int32_t i = first + k * kThreads;
      tokens[k] = i < text.size() ? text[i] : -1;
    }
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      if (!part.has(tokens[k])) continue;
      if (first + k * kThreads < text.prompt_len) {
        atomicOr(part.seen + (tokens[k] - part.begin), sampler::kInPrompt);
      } else {
        atomicAdd(part.seen + (tokens[k] - part.begin), 1u);
      }
    }
  }
  __syncthreads();
}

// The rules of `slot` on a part whose logits are finite; returns whether they can leave the row without a token.
__device__ bool apply_rules(const SlotRules& rules, const sampler::TextView& text, const Part& part) {
  const auto thread = static_cast<int32_t>(threadIdx.x);
  bool banned = false;
  for (int32_t i = thread; i < rules.num_logit_biases; i += kThreads) {
    const LogitBias entry = rules.logit_bias[i];
    if (part.has(entry.token)) part.logits[entry.token - part.begin] += entry.bias;
  }
  __syncthreads();
  if (rules.num_bad_words > 0) {
    for (int32_t w = thread; w < rules.num_bad_words; w += kThreads) {
      const int32_t begin = w == 0 ? 0 : rules.bad_word_ends[w - 1], end = rules.bad_word_ends[w];
      const int32_t* word = rules.bad_word_tokens + begin;
      const int32_t last = word[end - begin - 1];
      if (part.has(last) && sampler::would_complete(text, word, end - begin)) part.ban(last);
    }
    banned = true;
  }
  if (text.num_outputs() < rules.min_tokens) {
    for (int32_t i = thread; i < rules.num_stop_token_ids; i += kThreads) part.ban(rules.stop_token_ids[i]);
    banned = true;
  }
  const SamplingSettings& settings = rules.sampling;
  if (settings.repetition_penalty != 1.0f || settings.presence_penalty != 0.0f || settings.frequency_penalty != 0.0f) {
    count_seen(text, part);
    for (int32_t i = thread; i < part.end - part.begin; i += kThreads) {
      part.logits[i] = sampler::penalised(part.logits[i], part.seen[i], settings);
    }
    banned = true;
  }
  __syncthreads();
  return banned;
}

// A block for each part of each row, from its logits to what it says of the row. A part that is not finite ends the
// row, whatever becomes of the others.
__global__ void __launch_bounds__(kThreads)
    process_part_kernel(ProcessLogitsParams p, int64_t first_row, int32_t* says) {
  ptx::begin_overlapped();
  extern __shared__ __align__(16) float shared_logits[];
  const int64_t r = first_row + blockIdx.y;
  const int32_t slot = p.row_slots[r];
  if (!sampler::is_slot(p.slots, slot)) return;
  const int32_t vocab = p.slots.vocab;
  const auto thread = static_cast<int32_t>(threadIdx.x), first = static_cast<int32_t>(blockIdx.x) * kCudaVocabPart;
  const Part part{.begin = first,
                  .end = min(vocab, first + kCudaVocabPart),
                  .logits = shared_logits,
                  .seen = reinterpret_cast<uint32_t*>(shared_logits + kCudaVocabPart)};
  const int32_t mask = p.allowed_tokens ? p.row_allowed_masks[r] : -1;
  const uint32_t* allowed = mask >= 0 ? p.allowed_tokens.get() + int64_t{mask} * ((vocab + 31) / 32) : nullptr;
  const float* logits = p.logits.get() + r * vocab;
  float* processed = p.processed.get() + r * vocab;
  const bool aligned = is_aligned(logits), store_aligned = is_aligned(processed);
  float v[kPartQuads][kQuad];
  bool finite = true;
#pragma unroll
  for (int k = 0; k < kPartQuads; ++k) {
    load_quad(v[k], logits, first + (k * kThreads + thread) * kQuad, vocab, aligned, 0.0f);
  }
#pragma unroll
  for (int k = 0; k < kPartQuads; ++k) {
    const int32_t i = (k * kThreads + thread) * kQuad;
    // Of four tokens from a multiple of four on, whose bits are in one word.
    const uint32_t bits = allowed != nullptr && first + i < vocab ? allowed[(first + i) / 32] >> (first + i) % 32 : ~0u;
#pragma unroll
    for (int j = 0; j < kQuad; ++j) {
      finite = finite && isfinite(v[k][j]);
      if ((bits >> j & 1u) == 0) v[k][j] = -INFINITY;
    }
    store_quad(part.logits, i, kCudaVocabPart, true, v[k]);
  }
  finite = __syncthreads_and(static_cast<int>(finite)) != 0;
  bool has_token = true;
  if (finite) {
    const sampler::TextView text = sampler::text_of(p.slots, slot, p.drafts_before[r]);
    has_token = !apply_rules(p.slots.rules[slot], text, part) && allowed == nullptr;
  }
#pragma unroll
  for (int k = 0; k < kPartQuads; ++k) {
    const int32_t i = (k * kThreads + thread) * kQuad;
    load_quad(v[k], part.logits, i, kCudaVocabPart, true, 0.0f);
    store_quad(processed, first + i, vocab, store_aligned, v[k]);
#pragma unroll
    for (int j = 0; j < kQuad; ++j) has_token = has_token || (first + i + j < vocab && v[k][j] > -INFINITY);
  }
  has_token = __syncthreads_or(static_cast<int>(has_token)) != 0;
  if (thread == 0) {
    says[blockIdx.y * gridDim.x + blockIdx.x] = (finite ? kIsFinite : 0) | (has_token ? kHasToken : 0);
  }
}

// A warp for each row.
__global__ void join_parts_kernel(ProcessLogitsParams p, int64_t first_row, const int32_t* says) {
  ptx::begin_overlapped();
  const int64_t r = first_row + blockIdx.x;
  int32_t all = kIsFinite, any = kHasToken;
  if (sampler::is_slot(p.slots, p.row_slots[r])) {
    any = 0;
    const int32_t parts = cuda_vocab_parts(p.slots.vocab);
    for (auto i = static_cast<int32_t>(threadIdx.x); i < parts; i += kWarp) {
      all &= says[static_cast<int32_t>(blockIdx.x) * parts + i];
      any |= says[static_cast<int32_t>(blockIdx.x) * parts + i];
    }
    all = warp_reduce(all, [](int32_t a, int32_t b) { return a & b; });
    any = warp_reduce(any, [](int32_t a, int32_t b) { return a | b; });
  }
  if (threadIdx.x != 0) return;
  const RowStatus status = (all & kIsFinite) == 0   ? RowStatus::kNotFinite
                           : (any & kHasToken) == 0 ? RowStatus::kNoToken
                                                    : RowStatus::kOk;
  p.status[r] = static_cast<int32_t>(status);
}

// One block, so that rows are cleared before requests fill them.
__global__ void expand_sample_rows_kernel(ExpandSampleRowsParams p) {
  ptx::begin_overlapped();
  for (int32_t r = static_cast<int32_t>(threadIdx.x); r < p.max_rows; r += kRowThreads) {
    sampler::clear_sample_row(p.rows, r);
  }
  __syncthreads();
  const int32_t requests = sampler::request_count(p.requests);
  for (int32_t b = static_cast<int32_t>(threadIdx.x); b < requests; b += kRowThreads) sampler::expand_request(p, b);
}

__global__ void prompt_targets_kernel(PromptTargetsParams p) {
  ptx::begin_overlapped();
  const int64_t r = int64_t{blockIdx.x} * kRowThreads + threadIdx.x;
  if (r < p.rows) p.targets[r] = sampler::prompt_target(p, r);
}

}  // namespace

void process_logits(void* stream, const ProcessLogitsParams& p) {
  constexpr size_t kShared = size_t{kCudaVocabPart} * (sizeof(float) + sizeof(uint32_t));
  auto* says = reinterpret_cast<int32_t*>(p.scratch.get());
  for (int64_t first = 0; first < p.rows; first += kRowsAtOnce) {
    const unsigned rows = blocks_for(std::min(kRowsAtOnce, p.rows - first), 1);
    const dim3 parts(static_cast<unsigned>(cuda_vocab_parts(p.slots.vocab)), rows);
    launch_overlapped(stream, "process_logits, parts", &process_part_kernel, parts, kThreads, kShared, p, first, says);
    launch_overlapped(stream, "process_logits", &join_parts_kernel, rows, kWarp, 0, p, first, says);
  }
}
void expand_sample_rows(void* stream, const ExpandSampleRowsParams& p) {
  launch_overlapped(stream, "expand_sample_rows", &expand_sample_rows_kernel, 1, kRowThreads, 0, p);
}
void prompt_targets(void* stream, const PromptTargetsParams& p) {
  launch_overlapped(stream, "prompt_targets", &prompt_targets_kernel, blocks_for(p.rows, kRowThreads), kRowThreads, 0,
                    p);
}

}  // namespace lantern::cuda
