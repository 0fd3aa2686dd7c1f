#include "device/cuda/block_reduce.cuh"
#include "device/cuda/launch.cuh"
#include "ops/cuda_launches.h"
#include "ops/router_math.h"

namespace lantern::cuda {
namespace {

constexpr unsigned kThreads = 128;

// A candidate for "the largest, the lower index among equals".
struct Best {
  float value;
  int32_t index;  // INT32_MAX: none
};
__device__ Best better(Best a, Best b) {
  return b.value > a.value || (b.value == a.value && b.index < a.index) ? b : a;
}
__device__ Best warp_best(Best best) {
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    const Best other{__shfl_xor_sync(~0u, best.value, offset), __shfl_xor_sync(~0u, best.index, offset)};
    best = better(best, other);
  }
  return best;
}

// The largest of values[0 .. count) that is not taken, by one warp.
__device__ Best largest_left(const float* values, const bool* taken, int32_t count) {
  Best best{-INFINITY, INT32_MAX};
  for (int32_t i = static_cast<int32_t>(threadIdx.x % kWarp); i < count; i += kWarp) {
    if (!taken[i]) best = better(best, {values[i], i});
  }
  return warp_best(best);
}

// A block for each token; its first warp chooses.
__global__ void router_kernel(RouterParams p) {
  __shared__ float scores[kMaxRouterExperts], choice[kMaxRouterExperts], groups[kMaxRouterExperts];
  __shared__ bool taken[kMaxRouterExperts], left_out[kMaxRouterExperts];
  __shared__ float shared[kThreads / kWarp];
  const int64_t t = blockIdx.x;
  const float* logits = p.logits.get() + t * p.experts;
  const auto thread = static_cast<int32_t>(threadIdx.x);
  if (p.token_request && p.token_request[t] < 0) {
    for (int32_t k = thread; k < p.experts_per_token; k += kThreads) {
      p.expert_ids[t * p.experts_per_token + k] = -1;
      p.expert_weights[t * p.experts_per_token + k] = 0.0f;
    }
    return;
  }
  if (p.scoring == RouterScoring::kSoftmax) {
    float largest = -INFINITY;
    for (int32_t e = thread; e < p.experts; e += kThreads) largest = fmaxf(largest, logits[e]);
    largest = block_reduce(largest, -INFINITY, shared, [](float a, float b) { return fmaxf(a, b); });
    float sum = 0;
    for (int32_t e = thread; e < p.experts; e += kThreads) {
      scores[e] = expf(logits[e] - largest);
      sum += scores[e];
    }
    sum = block_sum(sum, shared);
    for (int32_t e = thread; e < p.experts; e += kThreads) scores[e] /= sum;
  } else {
    for (int32_t e = thread; e < p.experts; e += kThreads) scores[e] = 1.0f / (1.0f + expf(-logits[e]));
  }
  for (int32_t e = thread; e < p.experts; e += kThreads) {
    const float c = p.bias ? scores[e] + p.bias[e] : scores[e];
    choice[e] = isnan(c) ? -INFINITY : c;
    taken[e] = p.groups > 1;
  }
  const int32_t group_size = p.experts / p.groups;
  __syncthreads();
  if (p.groups > 1) {
    for (int32_t g = thread; g < p.groups; g += kThreads) {
      groups[g] = group_score(choice + g * group_size, group_size, p.group_score);
      left_out[g] = false;
    }
  }
  __syncthreads();
  if (thread >= kWarp) return;
  for (int32_t k = 0; k < p.topk_groups && p.groups > 1; ++k) {
    const Best group = largest_left(groups, left_out, p.groups);
    for (int32_t e = thread; e < group_size; e += kWarp) taken[group.index * group_size + e] = false;
    left_out[group.index] = true;  // by all lanes alike
    __syncwarp();
  }
  float sum = 0;
  for (int32_t k = 0; k < p.experts_per_token; ++k) {
    const Best expert = largest_left(choice, taken, p.experts);
    sum += scores[expert.index];
    if (thread == 0) p.expert_ids[t * p.experts_per_token + k] = expert.index;
    __syncwarp();
    taken[expert.index] = true;
    __syncwarp();
  }
  __syncwarp();
  for (int32_t k = thread; k < p.experts_per_token; k += kWarp) {
    float weight = scores[p.expert_ids[t * p.experts_per_token + k]];
    if (p.normalize) weight /= sum + 1e-20f;
    p.expert_weights[t * p.experts_per_token + k] = weight * p.scale;
  }
}

// One block.
__global__ void count_experts_kernel(CountExpertsParams p) {
  __shared__ int32_t shared[kThreads / kWarp];
  const auto thread = static_cast<int32_t>(threadIdx.x);
  for (int32_t e = thread; e < p.experts; e += kThreads) p.seen[e] = 0;
  __syncthreads();
  for (int64_t i = thread; i < p.tokens * p.experts_per_token; i += kThreads) {
    if (p.expert_ids[i] >= 0) p.seen[p.expert_ids[i]] = 1;  // by all that do with the same value
  }
  __syncthreads();
  int32_t count = 0;
  for (int32_t e = thread; e < p.experts; e += kThreads) count += p.seen[e];
  count = block_sum(count, shared);
  if (thread == 0) p.total[0] = (p.first ? 0 : p.total[0]) + count;
}

}  // namespace

void router(void* stream, const RouterParams& p) {
  launch_kernel(stream, "router", &router_kernel, blocks_for(p.tokens, 1), kThreads, 0, p);
}

void count_experts(void* stream, const CountExpertsParams& p) {
  launch_kernel(stream, "count_experts", &count_experts_kernel, 1, kThreads, 0, p);
}

}  // namespace lantern::cuda
