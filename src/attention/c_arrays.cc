#include "attention/c_arrays.h"

#include <fmt/format.h>

#include "attention/c_answer.h"

namespace lantern {
namespace {

Status check(const char* array, int64_t index, int64_t value, int64_t least, int64_t most) {
  if (value >= least && value <= most) return {};
  return refuse(fmt::format("{}[{}] is {}, but must be {} to {}", array, index, value, least, most));
}

}  // namespace

Status check_visible_keys(const StepView& step, int32_t num_blocks) {
  const int64_t reach = int64_t{step.block_table_stride} * step.block_size;
  for (int32_t t = 0; t < step.tokens; ++t) {
    const int64_t request = step.token_request[t], keys = step.token_context_len[t];
    RETURN_IF_ERROR(check("token_request", t, request, -1, step.requests - 1));
    if (request < 0) continue;
    RETURN_IF_ERROR(check("token_context_len", t, keys, 0, reach));
    // Tokens of a request are neighbours, and the last sees most: only what is not of the one behind it.
    if (t + 1 < step.tokens && step.token_request[t + 1] == request && step.token_context_len[t + 1] >= keys) continue;
    const int64_t row = request * step.block_table_stride;
    for (int64_t i = 0; i < (keys + step.block_size - 1) / step.block_size; ++i) {
      RETURN_IF_ERROR(check("block_table", row + i, step.block_table[row + i], 0, num_blocks - 1));
    }
  }
  return {};
}

Status check_chosen_keys(const StepView& step, const SelectionView& selection, int64_t num_slots) {
  for (int32_t t = 0; t < step.tokens; ++t) {
    RETURN_IF_ERROR(check("token_request", t, step.token_request[t], -1, step.requests - 1));
    if (step.token_request[t] < 0) continue;
    RETURN_IF_ERROR(check("counts", t, selection.counts[t], 0, selection.top_k));
    const int64_t row = int64_t{t} * selection.top_k;
    for (int64_t i = row; i < row + selection.counts[t]; ++i) {
      RETURN_IF_ERROR(check("slots", i, selection.slots[i], 0, num_slots - 1));
    }
  }
  return {};
}

Status check_written_slots(const int32_t* slot_mapping, int32_t tokens, int64_t num_slots) {
  for (int32_t t = 0; t < tokens; ++t) {
    RETURN_IF_ERROR(check("slot_mapping", t, slot_mapping[t], -1, num_slots - 1));
  }
  return {};
}

}  // namespace lantern
