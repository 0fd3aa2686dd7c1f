// Mixture of experts: router choice, routed experts, and the gated MLP that dense layers and shared experts use.
#pragma once

#include <cstdint>

#include "device/fixed.h"
#include "device/row_count.h"
#include "device/stream.h"
#include "ops/linear.h"
#include "ops/quantized_matrix.h"

namespace lantern {

enum class RouterScoring : uint8_t { kSoftmax, kSigmoid };
enum class RouterGroupScore : uint8_t { kMax, kTop2Sum };  // V2: max; V3: sum of the two largest biased scores

// Chooses experts from router logits, all in float:
//   s = scoring(logits); c = s + bias; with groups > 1 only the topk_groups groups with the largest group score stay
//   (others are excluded, i.e. minus infinity); the top experts_per_token of c; weights are s (not c) there;
//   if normalize: weights /= (sum + 1e-20); weights *= scale.
// Ties go to the lower index. Chosen experts are written in descending order of c. A NaN c counts as minus infinity, so
// that the ids are valid whatever the logits are. Where a logit is NaN or infinite, or a c is NaN or plus infinity, all
// weights of the token are NaN: which experts it should have is not known.
inline constexpr int32_t kMaxRouterExperts = 1024;
struct RouterParams {
  DevPtr<const float> logits{};           // [tokens, experts]
  DevPtr<const float> bias{};             // optional [experts]: e_score_correction_bias
  DevPtr<const int32_t> token_request{};  // optional [tokens]: a token with -1 is padding, and gets ids -1, weights 0
  DevPtr<int32_t> expert_ids{};           // [tokens, experts_per_token]
  DevPtr<float> expert_weights{};         // [tokens, experts_per_token]
  int64_t tokens = 0;
  int32_t experts = 0;  // at most kMaxRouterExperts
  int32_t experts_per_token = 0;
  int32_t groups = 1;  // of experts / groups neighbours each; at least two for kTop2Sum
  int32_t topk_groups = 1;
  RouterScoring scoring = RouterScoring::kSigmoid;
  RouterGroupScore group_score = RouterGroupScore::kTop2Sum;
  bool normalize = true;
  float scale = 1.0f;
};
void router(Stream& stream, const RouterParams& params);

// total[0] = how many different experts the tokens chose, added to what it was unless `first`: what a layer reads.
struct CountExpertsParams {
  DevPtr<const int32_t> expert_ids{};  // [tokens, experts_per_token]; -1: none
  DevPtr<int32_t> seen{};              // [experts]: scratch
  DevPtr<int32_t> total{};             // [1]
  int64_t tokens = 0;
  int32_t experts = 0;
  int32_t experts_per_token = 0;
  bool first = false;
};
void count_experts(Stream& stream, const CountExpertsParams& params);

// One expert (or dense MLP): down(silu(gate x) * (up x)).
struct ExpertWeights {
  QuantizedMatrix gate{};  // [intermediate, hidden]
  QuantizedMatrix up{};    // [intermediate, hidden]
  QuantizedMatrix down{};  // [hidden, intermediate]
};

// y[t, :] (+)= MLP(x[t, :]) for all tokens.
struct MlpParams {
  DevPtr<const float> x{};  // [tokens, hidden], contiguous
  DevPtr<float> y{};        // [tokens, hidden], contiguous
  int64_t tokens = 0;
  RowCount real_tokens{};  // of these
  ExpertWeights weights{};
  bool accumulate = false;
  DevPtr<std::byte> scratch{};  // mlp_scratch_bytes()
  int64_t scratch_bytes = 0;
};
int64_t mlp_scratch_bytes(int64_t max_tokens, int64_t hidden, int64_t intermediate);
void mlp(Stream& stream, const MlpParams& params);

// y[t, :] += sum_j expert_weights[t, j] * Expert(expert_ids[t, j])(x[t, :]), added in order of j, so that a token's
// result does not depend on the other tokens. Padded tokens have expert_ids -1 and add nothing.
struct MoeParams {
  DevPtr<const float> x{};                // [tokens, hidden], contiguous
  DevPtr<float> y{};                      // [tokens, hidden], contiguous; added to
  DevPtr<const int32_t> expert_ids{};     // [tokens, experts_per_token]
  DevPtr<const float> expert_weights{};   // [tokens, experts_per_token]
  DevPtr<const ExpertWeights> experts{};  // [experts]; all of one shape, format and alignment
  ExpertWeights first_expert{};           // experts[0], for the choice of kernels
  int64_t tokens = 0;
  int32_t experts_per_token = 0;
  int32_t num_experts = 0;
  int64_t hidden = 0;
  int64_t intermediate = 0;
  DevPtr<std::byte> scratch{};  // moe_scratch_bytes()
  int64_t scratch_bytes = 0;
};
int64_t moe_scratch_bytes(int64_t max_tokens, int32_t experts_per_token, int32_t num_experts, int64_t hidden,
                          int64_t intermediate);
void moe(Stream& stream, const MoeParams& params);

}  // namespace lantern
