#include "device/cuda/block_reduce.cuh"
#include "device/cuda/launch.cuh"
#include "ops/cuda_launches.h"
#include "ops/sampler_rows.h"

namespace lantern::cuda {
namespace {

constexpr unsigned kThreads = 128;

// A thread for each request.
__global__ void verify_drafts_kernel(VerifyParams p) {
  ptx::begin_overlapped();
  const auto b = static_cast<int32_t>(blockIdx.x * kThreads + threadIdx.x);
  if (b < p.requests.max_requests) sampler::verify_request(p, b, sampler::request_count(p.requests));
}

// A block for each request: the longest match, the latest among equals.
__global__ void ngram_drafts_kernel(NgramDraftsParams p) {
  ptx::begin_overlapped();
  __shared__ uint64_t shared[kThreads / kWarp];
  const auto b = static_cast<int32_t>(blockIdx.x);
  if (b >= sampler::request_count(p.requests)) return;
  const int32_t slot = p.requests.slots[b];
  if (p.requests.sample_start_loc[b + 1] <= p.requests.sample_start_loc[b] || !sampler::is_slot(p.slots, slot)) return;
  const int32_t* history = p.slots.history.get() + int64_t{slot} * p.slots.max_model_len;
  const int32_t length = p.slots.history_len[slot];
  // The last draft is still followed by a sample that the context has room for.
  const int32_t count = min(min(p.wanted[b], p.slots.max_drafts), p.slots.max_model_len - length - 1);
  uint64_t best = 0;  // length of the match, then where it ends
  for (int32_t end = p.min_ngram + static_cast<int32_t>(threadIdx.x); count > 0 && end < length; end += kThreads) {
    const int32_t match = sampler::match_length(history, length, end, p.max_ngram);
    if (match < p.min_ngram) continue;
    best = max(best, static_cast<uint64_t>(match) << 32 | static_cast<uint32_t>(end));
  }
  best = block_reduce(best, uint64_t{0}, shared, [](uint64_t x, uint64_t y) { return max(x, y); });
  if (threadIdx.x == 0) p.num_drafts[slot] = best != 0 ? count : 0;
  int32_t* drafts = p.draft_tokens.get() + int64_t{slot} * p.slots.max_drafts;
  for (int32_t i = static_cast<int32_t>(threadIdx.x); best != 0 && i < count; i += kThreads) {
    drafts[i] = sampler::continued(history, length, static_cast<int32_t>(best), i);
  }
}

}  // namespace

void verify_drafts(void* stream, const VerifyParams& p) {
  launch_overlapped(stream, "verify_drafts", &verify_drafts_kernel, blocks_for(p.requests.max_requests, kThreads),
                    kThreads, 0, p);
}
void ngram_drafts(void* stream, const NgramDraftsParams& p) {
  launch_overlapped(stream, "ngram_drafts", &ngram_drafts_kernel, blocks_for(p.requests.max_requests, 1), kThreads, 0,
                    p);
}

}  // namespace lantern::cuda
