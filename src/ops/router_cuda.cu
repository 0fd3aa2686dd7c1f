#include "base/host_device.h"
#include "device/cuda/block_reduce.cuh"
#include "device/cuda/float_order.cuh"
#include "device/cuda/launch.cuh"
#include "ops/cuda_launches.h"

namespace lantern::cuda {
namespace {

constexpr int32_t kThreads = 256;

// The largest order among a warp's with the lowest index that has it, in every lane.
struct Best {
  uint32_t order;  // order_of(), or 0: left out
  int32_t index;
};
__device__ Best warp_best(Best own) {
  const uint32_t order = __reduce_max_sync(~0u, own.order);
  return {order, __reduce_min_sync(~0u, own.order == order ? own.index : INT32_MAX)};
}
// This lane's best of orders[0 .. count).
__device__ Best lane_best(const uint32_t* orders, int32_t count) {
  Best best{0, INT32_MAX};
  for (auto i = static_cast<int32_t>(threadIdx.x % kWarp); i < count; i += kWarp) {
    if (orders[i] > best.order) best = {orders[i], i};
  }
  return best;
}
// function(index) for the `keep` largest, largest first, by one warp; they are left out of `orders` then.
template <class Function>
__device__ void take_largest(uint32_t* orders, int32_t count, int32_t keep, const Function& function) {
  const auto lane = static_cast<int32_t>(threadIdx.x % kWarp);
  Best own{}, best{0, lane};
  LANTERN_NO_UNROLL
  for (int32_t k = 0; k < keep; ++k) {
    if (best.index % kWarp == lane) own = lane_best(orders, count);  // at first, and when its best was taken
    best = warp_best(own);
    function(best.index);
    if (best.index % kWarp == lane) orders[best.index] = 0;
  }
  __syncwarp();
}

// The order of group_score() of router_host.cc, by one warp.
__device__ uint32_t group_order(const uint32_t* orders, int32_t count, RouterGroupScore kind) {
  const Best own = lane_best(orders, count), first = warp_best(own);
  if (kind == RouterGroupScore::kMax) return first.order;
  uint32_t next = first.index == own.index ? 0 : own.order;
  if (first.index == own.index) {
    for (auto i = static_cast<int32_t>(threadIdx.x % kWarp); i < count; i += kWarp) {
      if (i != own.index) next = max(next, orders[i]);
    }
  }
  const float sum = value_of(first.order) + value_of(__reduce_max_sync(~0u, next));
  return order_of(isnan(sum) ? -INFINITY : sum);
}

// A block for each token; its first warp chooses.
__global__ void __launch_bounds__(kThreads) router_kernel(RouterParams p) {
  ptx::begin_overlapped();
  __shared__ float scores[kMaxRouterExperts];
  __shared__ uint32_t orders[kMaxRouterExperts], groups[kMaxRouterExperts];  // of the biased scores
  __shared__ bool kept[kMaxRouterExperts];                                   // groups
  __shared__ int32_t chosen[kMaxRouterExperts];
  __shared__ float shared[kThreads / kWarp];
  const int64_t t = blockIdx.x;
  const float* logits = p.logits.get() + t * p.experts;
  int32_t* ids = p.expert_ids.get() + t * p.experts_per_token;
  float* weights = p.expert_weights.get() + t * p.experts_per_token;
  const auto thread = static_cast<int32_t>(threadIdx.x), warp = thread / kWarp;
  if (p.token_request && p.token_request[t] < 0) {
    LANTERN_NO_UNROLL
    for (int32_t k = thread; k < p.experts_per_token; k += kThreads) {
      ids[k] = -1;
      weights[k] = 0.0f;
    }
    return;
  }
  // Of the first expert of each thread, read with its logit.
  const float first_bias = p.bias && thread < p.experts ? p.bias[thread] : 0.0f;
  bool numbers = true;
  if (p.scoring == RouterScoring::kSoftmax) {
    float largest = -INFINITY;
    LANTERN_NO_UNROLL
    for (int32_t e = thread; e < p.experts; e += kThreads) {
      const float logit = scores[e] = logits[e];
      numbers = numbers && isfinite(logit);
      largest = fmaxf(largest, logit);
    }
    largest = block_reduce(largest, -INFINITY, shared, [](float a, float b) { return fmaxf(a, b); });
    float sum = 0;
    LANTERN_NO_UNROLL
    for (int32_t e = thread; e < p.experts; e += kThreads) sum += scores[e] = expf(scores[e] - largest);
    sum = block_sum(sum, shared);
    LANTERN_NO_UNROLL
    for (int32_t e = thread; e < p.experts; e += kThreads) scores[e] /= sum;
  } else {
    LANTERN_NO_UNROLL
    for (int32_t e = thread; e < p.experts; e += kThreads) {
      const float logit = logits[e];
      numbers = numbers && isfinite(logit);
      scores[e] = 1.0f / (1.0f + expf(-logit));
    }
  }
  LANTERN_NO_UNROLL
  for (int32_t e = thread; e < p.experts; e += kThreads) {
    const float c = p.bias ? scores[e] + (e == thread ? first_bias : p.bias[e]) : scores[e];
    numbers = numbers && c < INFINITY;
    orders[e] = order_of(isnan(c) ? -INFINITY : c);
  }
  const float scale = __syncthreads_and(static_cast<int>(numbers)) != 0 ? p.scale : NAN;
  if (p.groups > 1) {
    const int32_t size = p.experts / p.groups;
    LANTERN_NO_UNROLL
    for (int32_t g = warp; g < p.groups; g += kThreads / kWarp) {
      groups[g] = group_order(orders + g * size, size, p.group_score);  // by all lanes alike
      kept[g] = false;
    }
    __syncthreads();
    if (warp == 0) {
      take_largest(groups, p.groups, p.topk_groups, [&](int32_t g) { kept[g] = true; });
    }
    __syncthreads();
    LANTERN_NO_UNROLL
    for (int32_t e = thread; e < p.experts; e += kThreads) {
      if (!kept[e / size]) orders[e] = 0;
    }
    __syncthreads();
  }
  if (warp > 0) return;
  float sum = 0;
  int32_t count = 0;
  take_largest(orders, p.experts, p.experts_per_token, [&](int32_t e) {
    sum += scores[e];
    chosen[count++] = e;
  });
  LANTERN_NO_UNROLL
  for (int32_t k = thread; k < p.experts_per_token; k += kWarp) {
    float weight = scores[chosen[k]];
    if (p.normalize) weight /= sum + 1e-20f;
    ids[k] = chosen[k];
    weights[k] = weight * scale;
  }
}

// One block.
__global__ void count_experts_kernel(CountExpertsParams p) {
  ptx::begin_overlapped();
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
  launch_overlapped(stream, "router", &router_kernel, blocks_for(p.tokens, 1), kThreads, 0, p);
}

void count_experts(void* stream, const CountExpertsParams& p) {
  launch_overlapped(stream, "count_experts", &count_experts_kernel, 1, kThreads, 0, p);
}

}  // namespace lantern::cuda
