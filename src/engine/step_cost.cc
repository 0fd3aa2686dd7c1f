#include "engine/step_cost.h"

#include <algorithm>

#include "base/check.h"

namespace lantern {

TokenCost TokenCost::linear(double fixed, double per_token) {
  TokenCost cost;
  for (int32_t i = 0; i < kSizes; ++i) cost.powers_[static_cast<size_t>(i)] = fixed + per_token * (1 << i);
  return cost;
}

TokenCost TokenCost::from_powers(const double* values, int32_t count) {
  CHECK(count >= 1 && count <= kSizes, "{} sizes were measured", count);
  TokenCost cost;
  std::array<double, kSizes>& powers = cost.powers_;
  std::copy_n(values, count, powers.begin());
  for (auto i = static_cast<size_t>(count) - 1; i > 0; --i) powers[i - 1] = std::min(powers[i - 1], powers[i]);
  for (auto i = static_cast<size_t>(count); i < powers.size(); ++i) {
    powers[i] = i == 1 ? 2 * powers[0] : powers[i - 1] + 2 * (powers[i - 1] - powers[i - 2]);
  }
  return cost;
}

double TokenCost::at(double tokens) const {
  if (tokens <= 0) return 0;
  if (tokens <= 1) return powers_[0];
  int32_t i = 0;
  double size = 1;  // 2^i
  while (i + 2 < kSizes && 2 * size <= tokens) {
    ++i;
    size *= 2;
  }
  const double low = powers_[static_cast<size_t>(i)];
  return low + (powers_[static_cast<size_t>(i) + 1] - low) * (tokens / size - 1);
}

double step_time(const StepCost& cost, int32_t num_decodes, int32_t num_tokens, int32_t draft_passes) {
  const double verify = cost.step.at(num_tokens);
  if (draft_passes == 0) return verify;
  return verify + cost.draft_layer.at(num_tokens) + (draft_passes - 1) * cost.draft_layer.at(num_decodes) +
         draft_passes * cost.draft_head.at(num_decodes);
}

}  // namespace lantern
