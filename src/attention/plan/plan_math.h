// The arithmetic of a step plan, one row or one token at a time: shared by the host kernel, which walks rows in order,
// and by a CUDA kernel, which gives each to a thread.
#pragma once

#include <cstdint>

#include "attention/plan/plan_faults.h"
#include "base/host_device.h"

namespace lantern::plan {

LANTERN_HOST_DEVICE constexpr int32_t min_of(int32_t a, int32_t b) { return a < b ? a : b; }
LANTERN_HOST_DEVICE constexpr int32_t max_of(int32_t a, int32_t b) { return a < b ? b : a; }
LANTERN_HOST_DEVICE constexpr int32_t ceil_div(int32_t a, int32_t b) { return a / b + (a % b != 0 ? 1 : 0); }

// Division of 0 .. 2^31 - 1 by one positive number, by a multiplication: with 2^k the least power of two that is not
// less, multiplier = ceil(2^(31 + k) / divisor) fits 32 bits and the quotient is exact (Granlund and Montgomery 1994).
struct Divider {
  uint32_t multiplier = uint32_t{1} << 31;
  int32_t shift = 31;

  constexpr Divider() = default;
  constexpr explicit Divider(int32_t divisor) {
    while ((int64_t{1} << (shift - 31)) < divisor) ++shift;
    const uint64_t power = uint64_t{1} << shift;
    multiplier = static_cast<uint32_t>((power + static_cast<uint64_t>(divisor) - 1) / static_cast<uint64_t>(divisor));
  }
  LANTERN_HOST_DEVICE constexpr int32_t quotient(int32_t value) const {
    return static_cast<int32_t>((static_cast<uint64_t>(static_cast<uint32_t>(value)) * multiplier) >> shift);
  }
};

LANTERN_HOST_DEVICE constexpr int32_t quotient(int32_t value, const Divider& by) { return by.quotient(value); }

// Keys that the j-th of a request's query_len tokens sees, its own included.
LANTERN_HOST_DEVICE constexpr int32_t context_len(int32_t seq_len, int32_t query_len, int32_t j) {
  return max_of(0, seq_len - query_len + 1 + j);
}

// Slot of a block's entry; -1 in the null block.
LANTERN_HOST_DEVICE constexpr int32_t slot_of(int32_t block, int32_t in_block, int32_t block_size) {
  return block == 0 ? -1 : block * block_size + in_block;
}

// Slot in a cache that keeps one entry per window of `ratio` tokens, in blocks of block_size / ratio entries; -1 where
// no window ends.
LANTERN_HOST_DEVICE constexpr int32_t compressed_slot_of(int32_t block, int32_t position, int32_t block_size,
                                                         int32_t ratio) {
  if (block == 0 || (position + 1) % ratio != 0) return -1;
  return block * (block_size / ratio) + position % block_size / ratio;
}

// How many of the first `len` tokens a rank holds when runs of `interleave` go round `world` ranks.
LANTERN_HOST_DEVICE constexpr int32_t local_context_len(int32_t len, int32_t world, int32_t rank, int32_t interleave) {
  const int32_t base = len / interleave / world * interleave;
  const int32_t rest = len - base * world - rank * interleave;
  return base + max_of(0, min_of(rest, interleave));
}

// One request as the raw inputs describe it, with what is known of the requests before it.
struct RawRow {
  int32_t start = 0;  // query_start_loc[b]
  int32_t end = 0;    // query_start_loc[b + 1]
  int32_t seq_len = 0;
  bool prefilling = false;
  bool first = false;
  bool last = false;
  int32_t reach = 0;           // largest entry of query_start_loc[0 .. b] that lies in [0, num_tokens]
  bool after_prefill = false;  // a request before it is prefilling
};

struct RowLimits {
  int32_t num_tokens = 0;
  int32_t max_query_len = 0;
  int32_t query_width = 0;  // of the bucket
  int32_t max_model_len = 0;
};

// A request without tokens and without keys: padding by contract, whatever else its row says.
LANTERN_HOST_DEVICE constexpr bool is_padding(const RawRow& row) { return row.start == row.end && row.seq_len == 0; }

// Everything that can be said of a row without its block table.
LANTERN_HOST_DEVICE constexpr PlanFault row_fault(const RawRow& row, const RowLimits& limits) {
  if (row.first && row.start != 0) return PlanFault::kQueryStart;
  if (row.end < row.start || row.start < row.reach) return PlanFault::kQueryDecreases;
  if (row.end > limits.num_tokens || (row.last && row.end != limits.num_tokens)) return PlanFault::kQueryEnd;
  const int32_t query_len = row.end - row.start;
  if (!row.prefilling && !is_padding(row)) {
    if (row.after_prefill) return PlanFault::kDecodeAfterPrefill;
    if (query_len > limits.max_query_len) return PlanFault::kQueryTooLong;
    if (query_len > limits.query_width) return PlanFault::kQueryWiderThanBucket;
  }
  if (row.seq_len > limits.max_model_len) return PlanFault::kSeqLenTooLong;
  return row.seq_len < query_len ? PlanFault::kSeqLenTooShort : PlanFault::kNone;
}

// A block-table entry that a length needs.
LANTERN_HOST_DEVICE constexpr PlanFault block_fault(int32_t block, int32_t num_blocks, int32_t missing_block) {
  if (block == missing_block) return PlanFault::kTooFewBlocks;
  return block < 0 || block >= num_blocks ? PlanFault::kBlockOutsidePool : PlanFault::kNone;
}

// Drafts of a decode's `query_len` tokens that were accepted, the bonus token not counted.
LANTERN_HOST_DEVICE constexpr PlanFault accepted_fault(int32_t accepted, int32_t query_len) {
  return accepted < 0 || accepted > query_len - 1 ? PlanFault::kAccepted : PlanFault::kNone;
}

// Where MTP step `step` (1, 2, ...) of a request stands that had seq_len keys before `rejected` of them were taken
// back. Beyond max_model_len nothing is written: position 0, one key, no slot.
struct DraftRow {
  int32_t position = 0;
  int32_t seq_len = 1;
  bool beyond = true;
};
LANTERN_HOST_DEVICE constexpr DraftRow draft_row(int32_t seq_len, int32_t rejected, int32_t step,
                                                 int32_t max_model_len) {
  const int32_t position = seq_len - rejected + step - 1;
  if (position >= max_model_len) return {};
  return {position, position + 1, false};
}

}  // namespace lantern::plan
