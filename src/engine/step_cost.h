// How long the parts of a step take by the number of their tokens, in seconds or any other unit: what the draft policy
// weighs acceptance against. Values, equal on all ranks, fixed when the engine is made.
#pragma once

#include <array>
#include <cstdint>

namespace lantern {

// Straight lines between the costs of 1, 2, 4, ... tokens; nothing for none, and the last line goes on.
class TokenCost {
 public:
  static constexpr int32_t kSizes = 17;  // up to 65536 tokens

  static TokenCost linear(double fixed, double per_token);
  // Of 2^i tokens for each value, 1 to kSizes; sizes beyond follow the line of the last two (one value: as if all of it
  // were for the token). No size costs more than a larger one: what disturbs a measurement makes it longer.
  static TokenCost from_powers(const double* values, int32_t count);

  double at(double tokens) const;
  const std::array<double, kSizes>& powers() const { return powers_; }

 private:
  std::array<double, kSizes> powers_{};
};

struct StepCost {
  TokenCost step = TokenCost::linear(1.0, 0.005);      // layers, logits and samples of so many tokens of decodes
  TokenCost draft_layer = TokenCost::linear(0.05, 0);  // the drafter over so many tokens
  TokenCost draft_head = TokenCost::linear(0, 0.002);  // and the draft behind each of so many
};

// Time of a step of `num_decodes` rows that verify `num_tokens` tokens together, and of making as many drafts again in
// `draft_passes` passes: the first runs over all of the step's tokens, the others over one of each row. Without
// passes the drafter does not run.
double step_time(const StepCost& cost, int32_t num_decodes, int32_t num_tokens, int32_t draft_passes);

}  // namespace lantern
