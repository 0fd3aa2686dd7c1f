#include "engine/slot_state.h"

#include "engine/step_batch.h"

namespace lantern {

Status SlotState::create(Device& device, const StepLimits& limits) {
  const int64_t slots = dummy_slot(limits) + 1;
  arrays_.max_drafts = limits.max_query_len - 1;
  arrays_.block_table_stride = limits.max_blocks_per_request;
  return arena_.create(device, "slot state", [&](plan::IntArena& arena) {
    arrays_.seq_len = arena.take(slots);
    arrays_.max_len = arena.take(slots);
    arrays_.last_token = arena.take(slots);
    arrays_.num_drafts = num_drafts_ = arena.take(slots);
    arrays_.drafts = drafts_ = arena.take(slots * arrays_.max_drafts);
    arrays_.block_table = arena.take(slots * arrays_.block_table_stride);
  });
}

}  // namespace lantern
