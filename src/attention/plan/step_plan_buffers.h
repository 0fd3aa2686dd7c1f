// Owns every output of the plan, at addresses and capacities fixed by StepPlanConfig alone, and makes the launch
// parameters of a bucket over them.
#pragma once

#include <array>
#include <cstdint>

#include "attention/plan/int_arena.h"
#include "attention/plan/step_inputs.h"
#include "attention/plan/step_plan.h"
#include "attention/step_view.h"

namespace lantern {

class StepPlanBuffers {
 public:
  Status create(Device& device, const StepPlanConfig& config);
  // The same in `memory`, which outlives every launch. invalid_argument when it has fewer elements than ints_needed().
  Status create_in(const Fixed<int32_t>& memory, const StepPlanConfig& config);
  static Result<int64_t> ints_needed(const StepPlanConfig& config);

  // The outputs that the config asks for, with the bucket's launch shape. Broken invariant when the bucket exceeds
  // the limits.
  StepPlanParams params(const StepInputs& inputs, const BucketShape& bucket) const;
  // What attention kernels see of such a step in a cache group; the first `decode_tokens` tokens belong to decodes.
  StepView view(const StepInputs& inputs, const BucketShape& bucket, int32_t decode_tokens, int32_t group = 0) const;
  // How many faults the last plan reported: copied from the device, so ask only where outputs are read anyway.
  int32_t num_errors(Device& device) const;
  Fixed<const int32_t> counts() const { return counts_; }  // [kNumCounts]
  const StepPlanConfig& config() const { return config_; }
  // Every pointer and the configuration; no bucket, no inputs.
  const StepPlanParams& outputs() const { return outputs_; }
  // Every output, wanted or not by a bucket, and the gaps between.
  Fixed<const int32_t> all() const { return arena_.all(); }
  void poison(Device& device) const { arena_.fill(device, kPlanPoison); }

 private:
  void configure(const StepPlanConfig& config);
  void lay_out(plan::IntArena& arena);

  StepPlanConfig config_;
  plan::IntArena arena_;
  Fixed<int32_t> counts_, token_request_, token_context_len_;
  std::array<Fixed<int32_t>, kMaxCacheGroups> slot_mappings_;
  StepPlanParams outputs_;
};

}  // namespace lantern
