// From logits to a token. Filters apply in this order: temperature, top_k, top_p, min_p, all on the distribution that
// the previous one left (renormalised), as vLLM and llama.cpp users expect. The random number of a draw depends on
// (seed, output position) only, so that a seeded text is the same however it was batched.
//
// Logits that are not the model's own but changed by penalties and such come from process_logits.h.
//
// Every filter keeps a prefix of the tokens ordered by descending probability, equals by ascending id:
//   temperature  0 (or less, or NaN): greedy; else logits are divided by it
//   top_k        exactly the first k tokens
//   top_p        the shortest prefix with mass >= top_p of what top_k left; at least one token
//   min_p        tokens with at least min_p times the largest probability
// A draw walks the kept tokens by ascending id and takes the first whose cumulated mass exceeds u times the total.
// Unusual logits: NaN counts as -infinity, which has probability 0. +infinity takes all probability, shared evenly
// among its equals. A row with no logit above -infinity yields token 0 with logprob -infinity: the sign that the model
// broke.
#pragma once

#include <cstdint>

#include "device/fixed.h"
#include "device/stream.h"
#include "ops/sampling_settings.h"

namespace lantern {

struct SampleParams {
  DevPtr<const float> logits{};               // [rows, vocab]
  DevPtr<const SamplingSettings> settings{};  // [rows]
  DevPtr<const int64_t> output_positions{};   // [rows]: index of the token to be drawn within its output
  DevPtr<const int32_t> row_slots{};          // optional [rows]: a row with -1 is padding and gets token -1, logprob 0
  DevPtr<int32_t> tokens{};                   // [rows]
  DevPtr<float> logprobs{};                   // optional [rows]: log softmax of the raw logits at the token
  int64_t rows = 0;
  int32_t vocab = 0;
  DevPtr<std::byte> scratch{};  // sample_scratch_bytes()
  int64_t scratch_bytes = 0;
};
int64_t sample_scratch_bytes(int64_t max_rows, int32_t vocab);
void sample(Stream& stream, const SampleParams& params);

// Uniform in [0, 1) from a counter-based generator (Philox 4x32-10, Salmon et al. 2011): the same on every device. The
// upper 24 bits of the first output word; draws use 53 bits of the first two words of the same block (ops/philox.h).
float philox_uniform(uint64_t seed, uint64_t counter);

// logprob of chosen tokens and the k most likely alternatives per row, from raw logits; in float with the
// maximum subtracted and the sum in double. A row in which any logit is NaN or infinite has none: all its logprobs are
// NaN, its ranks and alternatives those that the order above gives.
struct LogprobParams {
  DevPtr<const float> logits{};    // [rows, vocab]
  DevPtr<const int32_t> tokens{};  // [rows]; -1: none, logprob 0, rank 0
  DevPtr<const int32_t> counts{};  // optional [rows]: alternatives of this row; -1: the row is skipped. Null: k each
  DevPtr<float> logprobs{};        // [rows]
  DevPtr<int32_t> ranks{};         // optional [rows]: 1 + the number of tokens that are more likely
  DevPtr<int32_t> top_tokens{};    // [rows, k], most likely first, ties to the lower id; -1 behind the row's count
  DevPtr<float> top_logprobs{};    // [rows, k]; -infinity behind the row's count
  int64_t rows = 0;
  int32_t vocab = 0;
  int32_t k = 0;
};
void logprobs(Stream& stream, const LogprobParams& params);

}  // namespace lantern
