#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>

#include "base/check.h"
#include "ops/cuda_ops.h"
#include "ops/moe.h"

namespace lantern {
namespace {

constexpr float kLowest = -std::numeric_limits<float>::infinity();

using Scores = std::array<float, kMaxRouterExperts>;

void softmax(const float* logits, size_t count, Scores& scores) {
  float largest = kLowest;
  for (size_t e = 0; e < count; ++e) largest = std::max(largest, logits[e]);
  float sum = 0;
  for (size_t e = 0; e < count; ++e) {
    scores[e] = std::exp(logits[e] - largest);
    sum += scores[e];
  }
  for (size_t e = 0; e < count; ++e) scores[e] /= sum;
}

void sigmoid(const float* logits, size_t count, Scores& scores) {
  for (size_t e = 0; e < count; ++e) scores[e] = 1.0f / (1.0f + std::exp(-logits[e]));
}

// Puts the indices of the `keep` largest values into `best`, largest first, equals by ascending index.
void select_largest(const float* values, const bool* excluded, int32_t count, int32_t keep, int32_t* best) {
  int32_t kept = 0;
  for (int32_t i = 0; i < count; ++i) {
    if (excluded[i]) continue;
    int32_t place = kept;
    // An index moves up past strictly smaller values only.
    while (place > 0 && values[best[place - 1]] < values[i]) --place;
    if (place >= keep) continue;
    for (int32_t j = std::min(kept, keep - 1); j > place; --j) best[j] = best[j - 1];
    best[place] = i;
    kept = std::min(kept + 1, keep);
  }
}

// Of a group of `count` biased scores.
float group_score(const float* choice, int32_t count, RouterGroupScore kind) {
  float first = kLowest;
  float second = kLowest;
  for (int32_t i = 0; i < count; ++i) {
    if (choice[i] > first) {
      second = first;
      first = choice[i];
    } else if (choice[i] > second) {
      second = choice[i];
    }
  }
  return kind == RouterGroupScore::kMax ? first : first + second;
}

void route_token(const RouterParams& p, int64_t t) {
  const auto experts = static_cast<size_t>(p.experts);
  const float* logits = p.logits.get() + t * p.experts;
  int32_t* ids = p.expert_ids.get() + t * p.experts_per_token;
  float* weights = p.expert_weights.get() + t * p.experts_per_token;
  if (p.token_request && p.token_request[t] < 0) {
    std::fill_n(ids, p.experts_per_token, -1);
    std::fill_n(weights, p.experts_per_token, 0.0f);
    return;
  }

  Scores scores;
  if (p.scoring == RouterScoring::kSoftmax) {
    softmax(logits, experts, scores);
  } else {
    sigmoid(logits, experts, scores);
  }
  Scores choice;
  bool numbers = true;
  for (size_t e = 0; e < experts; ++e) {
    const float c = p.bias ? scores[e] + p.bias[static_cast<int64_t>(e)] : scores[e];
    numbers = numbers && std::isfinite(logits[e]) && c < -kLowest;
    choice[e] = std::isnan(c) ? kLowest : c;
  }

  std::array<bool, kMaxRouterExperts> excluded{};
  if (p.groups > 1) {
    const int32_t group_size = p.experts / p.groups;
    Scores scores_of_groups;
    for (int32_t g = 0; g < p.groups; ++g) {
      scores_of_groups[static_cast<size_t>(g)] = group_score(choice.data() + g * group_size, group_size, p.group_score);
    }
    std::array<int32_t, kMaxRouterExperts> kept;
    select_largest(scores_of_groups.data(), excluded.data(), p.groups, p.topk_groups, kept.data());
    std::fill_n(excluded.begin(), experts, true);
    for (int32_t k = 0; k < p.topk_groups; ++k) {
      std::fill_n(excluded.begin() + kept[static_cast<size_t>(k)] * group_size, group_size, false);
    }
  }
  select_largest(choice.data(), excluded.data(), p.experts, p.experts_per_token, ids);

  float sum = 0;
  for (int32_t k = 0; k < p.experts_per_token; ++k) {
    weights[k] = scores[static_cast<size_t>(ids[k])];
    sum += weights[k];
  }
  for (int32_t k = 0; k < p.experts_per_token; ++k) {
    if (p.normalize) weights[k] /= sum + 1e-20f;
    weights[k] *= numbers ? p.scale : std::numeric_limits<float>::quiet_NaN();
  }
}

void router_kernel(const RouterParams& p, HostContext& context) {
  const int64_t grain = std::max<int64_t>(1, 2048 / std::max(1, p.experts));
  context.threads.parallel_for(p.tokens, grain, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) route_token(p, t);
  });
}

void count_experts_kernel(const CountExpertsParams& p, HostContext&) {
  std::fill_n(p.seen.get(), p.experts, 0);
  int32_t count = p.first ? 0 : p.total[0];
  for (int64_t i = 0; i < p.tokens * p.experts_per_token; ++i) {
    const int32_t id = p.expert_ids[i];
    if (id < 0) continue;
    count += p.seen[id] == 0 ? 1 : 0;
    p.seen[id] = 1;
  }
  p.total[0] = count;
}

}  // namespace

void count_experts(Stream& stream, const CountExpertsParams& params) {
  launch_op(stream, "count_experts", &count_experts_kernel, &CudaOps::count_experts, params);
}

void router(Stream& stream, const RouterParams& params) {
  const RouterParams& p = params;
  CHECK(p.experts >= 1 && p.experts <= kMaxRouterExperts, "a router over {} experts; 1 to {} are possible", p.experts,
        kMaxRouterExperts);
  CHECK(p.groups >= 1 && p.experts % p.groups == 0, "{} experts do not split into {} groups", p.experts, p.groups);
  CHECK(p.groups == 1 || p.group_score == RouterGroupScore::kMax || p.experts / p.groups >= 2,
        "the two best of groups of {} expert cannot be added", p.experts / p.groups);
  CHECK(p.topk_groups >= 1 && p.topk_groups <= p.groups, "{} of {} groups cannot be kept", p.topk_groups, p.groups);
  const int32_t reachable = p.groups > 1 ? p.experts / p.groups * p.topk_groups : p.experts;
  CHECK(p.experts_per_token >= 1 && p.experts_per_token <= reachable, "{} experts per token cannot be chosen among {}",
        p.experts_per_token, reachable);
  launch_op(stream, "router", &router_kernel, &CudaOps::router, p);
}

}  // namespace lantern
