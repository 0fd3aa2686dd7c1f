// What arrays of a C call hold, looked at where they lie in the host's memory, before an op follows it out of the
// cache. Errors: invalid_argument, with the array, the index and the value.
#pragma once

#include <cstdint>

#include "attention/mla.h"
#include "attention/step_view.h"
#include "base/result.h"

namespace lantern {

// Requests, context lengths, and the block ids of the keys that tokens see.
Status check_visible_keys(const StepView& step, int32_t num_blocks);
// Counts and slots of the lists of tokens that are no padding.
Status check_chosen_keys(const StepView& step, const SelectionView& selection, int64_t num_slots);
Status check_written_slots(const int32_t* slot_mapping, int32_t tokens, int64_t num_slots);

}  // namespace lantern
