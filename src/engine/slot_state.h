// What the device keeps of each running sequence, by slot, beside its text and settings (sampler.h). The host says how
// a slot begins and which blocks it has; everything else changes on the device alone (step_kernels.h).
#pragma once

#include <cstdint>

#include "attention/plan/int_arena.h"
#include "attention/plan/step_limits.h"
#include "device/device.h"
#include "device/fixed.h"

namespace lantern {

// As kernels see it. S slots, one for each of limits.max_requests and the dummy's, which stays empty (step_batch.h).
struct SlotArrays {
  DevPtr<int32_t> seq_len;      // [S] tokens that have run
  DevPtr<int32_t> max_len;      // [S] tokens that the sequence may have
  DevPtr<int32_t> last_token;   // [S] accepted, but not run yet
  DevPtr<int32_t> num_drafts;   // [S]
  DevPtr<int32_t> drafts;       // [S][max_drafts]
  DevPtr<int32_t> block_table;  // [S][block_table_stride]; the null block where none was given
  int32_t max_drafts = 0;
  int32_t block_table_stride = 0;
};

class SlotState {
 public:
  // Sized by the limits alone. Errors: out_of_memory with numbers.
  Status create(Device& device, const StepLimits& limits);
  const SlotArrays& arrays() const { return arrays_; }
  Fixed<int32_t> all() const { return arena_.all(); }               // every array
  const Fixed<int32_t>& drafts() const { return drafts_; }          // [S, max_drafts]
  const Fixed<int32_t>& num_drafts() const { return num_drafts_; }  // [S]

 private:
  plan::IntArena arena_;
  Fixed<int32_t> drafts_, num_drafts_;
  SlotArrays arrays_;
};

}  // namespace lantern
