#include "device/cuda/block_reduce.cuh"
#include "device/cuda/launch.cuh"
#include "ops/cuda_launches.h"
#include "ops/log_softmax.cuh"

namespace lantern::cuda {
namespace {

constexpr unsigned kThreads = 512;
constexpr int32_t kNoToken = INT32_MAX;

struct Shared {
  float floats[kThreads / kWarp];
  int32_t ints[kThreads / kWarp];
};

__device__ float larger(float a, float b) { return b > a ? b : a; }

__device__ float row_maximum(const float* x, int32_t count, float* shared) {
  float best = -INFINITY;
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < count; i += kThreads) best = larger(best, x[i]);
  return block_reduce(best, -INFINITY, shared, [](float a, float b) { return larger(a, b); });
}

__device__ bool all_finite(const float* x, int32_t count) {
  bool finite = true;
  for (auto i = static_cast<int32_t>(threadIdx.x); i < count; i += static_cast<int32_t>(kThreads)) {
    finite = finite && isfinite(x[i]);
  }
  return __syncthreads_and(static_cast<int>(finite)) != 0;
}

__device__ LogSoftmax log_softmax_of(const float* logits, int32_t count, float maximum) {
  __shared__ double shared[kThreads / kWarp];
  if (maximum == -INFINITY) return {maximum, 0};
  double sum = 0;
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < count; i += kThreads) {
    if (maximum == INFINITY) {
      sum += logits[i] == INFINITY ? 1.0 : 0.0;
    } else if (logits[i] > -INFINITY) {
      sum += static_cast<double>(expf(logits[i] - maximum));
    }
  }
  return {maximum, log(block_sum(sum, shared))};
}

// A token of the order "descending logit, ascending id", NaN being -infinity.
struct Ranked {
  float logit;
  int32_t id;
};
__device__ bool is_before(const Ranked& a, const Ranked& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

__device__ Ranked block_first(Ranked best, Shared& shared) {
  const auto first = [](Ranked a, Ranked b) { return is_before(b, a) ? b : a; };
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    best = first(best, {__shfl_xor_sync(~0u, best.logit, offset), __shfl_xor_sync(~0u, best.id, offset)});
  }
  __syncthreads();
  if (threadIdx.x % kWarp == 0) {
    shared.floats[threadIdx.x / kWarp] = best.logit;
    shared.ints[threadIdx.x / kWarp] = best.id;
  }
  __syncthreads();
  for (unsigned w = 0; w < kThreads / kWarp; ++w) best = first(best, {shared.floats[w], shared.ints[w]});
  return best;
}

__global__ void logprobs_kernel(LogprobParams p) {
  ptx::begin_overlapped();
  __shared__ Shared shared;
  const int64_t r = blockIdx.x;
  const auto thread = static_cast<int32_t>(threadIdx.x);
  const float* logits = p.logits.get() + r * p.vocab;
  const int32_t count = p.counts ? min(p.counts[r], p.k) : p.k;
  const int32_t token = count < 0 ? -1 : p.tokens[r];
  LogSoftmax softmax;
  bool finite = true;
  if (count >= 0) {
    softmax = log_softmax_of(logits, p.vocab, row_maximum(logits, p.vocab, shared.floats));
    finite = all_finite(logits, p.vocab);
  }
  int32_t above = 0;
  if (token >= 0 && p.ranks) {
    const float logit = logits[token] > -INFINITY ? logits[token] : -INFINITY;
    for (int32_t i = thread; i < p.vocab; i += kThreads) above += static_cast<int32_t>(logits[i] > logit);
    above = block_sum(above, shared.ints);
  }
  if (thread == 0) {
    p.logprobs[r] = token < 0 ? 0.0f : finite ? softmax.of(logits[token]) : NAN;
    if (p.ranks) p.ranks[r] = token < 0 ? 0 : above + 1;
  }
  Ranked last{INFINITY, -1};
  for (int32_t j = 0; j < p.k; ++j) {
    Ranked next{-INFINITY, kNoToken};
    if (j < count && last.id != kNoToken) {
      for (int32_t i = thread; i < p.vocab; i += kThreads) {
        const Ranked candidate{logits[i] > -INFINITY ? logits[i] : -INFINITY, i};
        if (is_before(last, candidate) && is_before(candidate, next)) next = candidate;
      }
      next = block_first(next, shared);
    }
    last = next;
    if (thread == 0) {
      const bool exists = next.id != kNoToken;
      p.top_tokens[r * p.k + j] = exists ? next.id : -1;
      p.top_logprobs[r * p.k + j] = !exists ? -INFINITY : finite ? softmax.of(next.logit) : NAN;
    }
  }
}

}  // namespace

void logprobs(void* stream, const LogprobParams& p) {
  launch_overlapped(stream, "logprobs", &logprobs_kernel, blocks_for(p.rows, 1), kThreads, 0, p);
}

}  // namespace lantern::cuda
