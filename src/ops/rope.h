// Rotary position embedding. Which elements form a pair is a property of the consumer, never a constant: DeepSeek's
// main attention rotates neighbours (2i, 2i+1), V3.2's indexer rotates halves (i, i + dim/2), GLM-5's indexer
// neighbours.
#pragma once

#include <cstdint>
#include <vector>

#include "device/fixed.h"
#include "device/stream.h"

namespace lantern {

enum class RopePairing : uint8_t { kInterleaved, kHalves };

// YaRN (arXiv 2309.00071) as DeepSeek's configs parameterise it. factor <= 1 means plain RoPE.
struct RopeScaling {
  double factor = 1.0;
  double original_max_position = 4096;
  double beta_fast = 32;
  double beta_slow = 1;
  double mscale = 1.0;
  double mscale_all_dim = 0.0;  // 0: not given
};

// Inverse frequencies [dim / 2], computed in double and rounded to float.
std::vector<float> rope_inverse_frequencies(int dim, double theta, const RopeScaling& scaling);
// m(s, k) = 0.1 k ln s + 1 for s > 1, else 1.
double yarn_mscale(double factor, double k);
// What cos and sin are multiplied by: m(s, mscale) / m(s, mscale_all_dim).
double rope_attention_factor(const RopeScaling& scaling);
// What the softmax scale is multiplied by: m(s, mscale_all_dim)^2; 1 without mscale_all_dim.
double yarn_softmax_factor(const RopeScaling& scaling);

// cos_sin[t] = {cos(p f_0) .. cos(p f_{dim/2-1}), sin(p f_0) ..} * attention_factor with p = context_len[t] - 1; the
// angle p * f is rounded to float as the published implementations do. Padding (context_len 0) gets p = 0.
struct RopeTableParams {
  DevPtr<const int32_t> context_len{};        // [tokens]
  DevPtr<const float> inverse_frequencies{};  // [dim / 2]
  DevPtr<float> cos_sin{};                    // [tokens, dim]
  int64_t tokens = 0;
  int32_t dim = 0;
  float attention_factor = 1.0f;
};
void rope_table(Stream& stream, const RopeTableParams& params);

// Rotates x[t, h, offset .. offset + dim) in place for every token and head.
struct RopeParams {
  DevPtr<float> x{};  // element (t, h, i) at x + t * token_stride + h * head_stride + i
  int64_t token_stride = 0;
  int64_t head_stride = 0;
  int32_t heads = 1;
  int32_t offset = 0;             // first rotated element within a head
  int32_t dim = 0;                // rotated elements
  DevPtr<const float> cos_sin{};  // [tokens, dim], from rope_table
  int64_t tokens = 0;
  RopePairing pairing = RopePairing::kInterleaved;
};
void rope(Stream& stream, const RopeParams& params);

}  // namespace lantern
