// The first kernel of a plan: judges every request and writes all that depends on one request alone, which is
// everything per request and per token.
//
// What a request needs to know of others are two scans over the raw inputs: the furthest query_start_loc before it
// (`reach`) and whether a prefill stands before it. Neither depends on whether those requests are sound, so every block
// makes them for itself with a few loads per thread, and no block waits for another.
//
// Row blocks (one request each, up to kMostRowBlocks blocks) read the needed part of the request's block table once,
// sixteen bytes a thread, judge it, and write the request and its tokens. Token ranges of different requests do not
// meet, faults or not: request b answers for the tokens [reach(b), reach(b + 1)), which for a sound request are exactly
// its own, so that each token is written once, as a real one or as padding, and nothing is filled beforehand.
//
// Tile blocks (kTileTokens tokens each) take the ranges that are too long for one block, which are prefills, and the
// padding beyond the last request. They judge those requests once more: reading a block table of 10 KiB again costs
// less than waiting for another block. In a decode step they find nothing but padding, by one pass over
// query_start_loc.
//
// The fault of request b travels to the second kernel (plan_schedules_kernel.h) in the place of error b + 3; the second
// kernel moves the errors together.
#pragma once

#include "attention/plan/plan_block.h"
#include "attention/plan/plan_outputs.h"

namespace lantern::plan {

constexpr int32_t kMostRowBlocks = 512;
constexpr int32_t kMostTileBlocks = 1024;
constexpr int32_t kTileTokens = 32;
constexpr int32_t kRowTokens = 16;  // a longer range is left to the tiles
constexpr int32_t kNoIndex = INT32_MAX;

struct RowsGrid {
  int32_t row_blocks;
  int32_t rows_per_block;
  int32_t tile_blocks;
  int32_t tile_tokens;
};
// A function of the bucket alone.
LANTERN_HOST_DEVICE constexpr RowsGrid rows_grid(const BucketShape& bucket) {
  const int32_t rows = max_of(1, bucket.requests);
  const int32_t rows_per_block = ceil_div(rows, kMostRowBlocks);
  const int32_t tile_tokens = kTileTokens * max_of(1, ceil_div(ceil_div(bucket.tokens, kTileTokens), kMostTileBlocks));
  return {ceil_div(rows, rows_per_block), rows_per_block, ceil_div(bucket.tokens, tile_tokens), tile_tokens};
}

// The counts as far as the bucket allows.
struct BatchCounts {
  int32_t requests;
  int32_t tokens;
  bool usable;  // false: no slot of some cache can be named, every request is padding
};
LANTERN_HOST_DEVICE inline BatchCounts batch_counts(const StepPlanParams& p) {
  BatchCounts batch{max_of(0, min_of(p.num_requests[0], p.bucket.requests)),
                    max_of(0, min_of(p.num_tokens[0], p.bucket.tokens)), true};
  for (int32_t g = 0; g < p.num_groups; ++g) {
    if (p.groups[g].group.block_size % p.groups[g].group.compress_ratio != 0) batch.usable = false;
  }
  return batch;
}

template <class Block>
class RowsKernel {
 public:
  LANTERN_BLOCK_CODE RowsKernel(Block& block, const StepPlanParams& p)
      : block_(block), p_(p), batch_(batch_counts(p)) {}

  LANTERN_BLOCK_CODE void run() {
    const RowsGrid grid = rows_grid(p_.bucket);
    if (block_.index() < grid.row_blocks) {
      const int32_t first = block_.index() * grid.rows_per_block;
      rows(first, min_of(first + grid.rows_per_block, p_.bucket.requests));
    } else {
      const int32_t first = (block_.index() - grid.row_blocks) * grid.tile_tokens;
      tile(first, min_of(first + grid.tile_tokens, p_.bucket.tokens));
    }
  }

 private:
  // A request and what the plan makes of it.
  struct Judged {
    PlannedRow row;
    PlanFault fault = PlanFault::kNone;
  };

  LANTERN_BLOCK_CODE void rows(int32_t first, int32_t end) {
    if (first == 0 && p_.accepted && p_.draft_query_start_loc) {
      block_.store(&p_.draft_query_start_loc[p_.bucket.requests], batch_.requests);
    }
    const int32_t before = min_of(first, batch_.requests);
    int32_t reach = reach_of(before);
    bool after_prefill = has_prefill_before(before);
    for (int32_t b = first; b < end; ++b) {
      Judged judged;
      if (b < batch_.requests) {
        const RawRow raw = raw_row(b, reach, after_prefill);
        judged = judge(b, raw);
        const int32_t range_begin = b == 0 ? 0 : raw.reach;
        const int32_t range_end = further(raw.reach, raw.end);
        if (range_end - range_begin <= kRowTokens) write_tokens(b, judged.row, range_begin, range_end);
        reach = raw.reach;
        after_prefill = after_prefill || (raw.prefilling && !is_padding(raw));
      }
      write_row(b, judged);
    }
  }

  LANTERN_BLOCK_CODE void tile(int32_t first, int32_t end) {
    if (p_.prefill_chunks) {
      int32_t* chunks = p_.prefill_chunks.get() + int64_t{first} * kPrefillChunkInts;
      block_.each((end - first) * kPrefillChunkInts, [&](int32_t i) { chunks[i] = 0; });
    }
    // Where the last request's range ends; without requests, all tokens are padding.
    const int32_t end_reach = batch_.requests == 0 ? 0 : reach_of(batch_.requests + 1);
    int32_t token = first;
    if (block_.any(batch_.requests, [&](int32_t b) { return may_reach_into(b, first); })) {
      while (token < min_of(end, end_reach)) token = long_range(token, end);
    }
    token = max_of(token, end_reach);
    if (token < end) write_tokens(-1, PlannedRow(), token, end);
  }

  // True at least for every request whose range goes beyond `token` and is long.
  LANTERN_BLOCK_CODE bool may_reach_into(int32_t b, int32_t token) const {
    const int32_t start = further(0, p_.query_start_loc[b]);
    const int32_t end = further(b == 0 ? start : 0, p_.query_start_loc[b + 1]);
    return end > token && end - (b == 0 ? 0 : start) > kRowTokens;
  }

  // Writes the part of the range that `token` lies in up to `end`, if a tile is to, and returns where that part ends.
  LANTERN_BLOCK_CODE int32_t long_range(int32_t token, int32_t end) {
    const int32_t next = block_.min_of(batch_.requests + 1, kNoIndex, [&](int32_t i) {
      const int32_t start = p_.query_start_loc[i];
      return start > token && start <= batch_.tokens ? i : kNoIndex;
    });
    const int32_t b = max_of(0, next - 1);
    const int32_t before = reach_of(b);
    const bool after_prefill = has_prefill_before(b);
    const RawRow raw = raw_row(b, before, after_prefill);
    const int32_t part_end = p_.query_start_loc[next];
    if (further(raw.reach, raw.end) - (b == 0 ? 0 : raw.reach) > kRowTokens) {
      write_tokens(b, judge(b, raw).row, token, min_of(part_end, end));
    }
    return part_end;
  }

  // The larger of the two, where `start` is one that a batch of these tokens can have.
  LANTERN_BLOCK_CODE int32_t further(int32_t reach, int32_t start) const {
    return start <= batch_.tokens ? max_of(reach, start) : reach;
  }
  // Over the first `count` entries of query_start_loc.
  LANTERN_BLOCK_CODE int32_t reach_of(int32_t count) {
    return block_.max_of(count, 0, [&](int32_t i) { return further(0, p_.query_start_loc[i]); });
  }
  LANTERN_BLOCK_CODE bool has_prefill_before(int32_t b) {
    return block_.any(b, [&](int32_t i) {
      const bool padding = p_.query_start_loc[i] == p_.query_start_loc[i + 1] && p_.seq_lens[i] == 0;
      return p_.prefilling[i] != 0 && !padding;
    });
  }

  // `reach`: over the requests before b.
  LANTERN_BLOCK_CODE RawRow raw_row(int32_t b, int32_t reach, bool after_prefill) const {
    RawRow raw;
    raw.start = p_.query_start_loc[b];
    raw.end = p_.query_start_loc[b + 1];
    raw.seq_len = p_.seq_lens[b];
    raw.prefilling = p_.prefilling[b] != 0;
    raw.first = b == 0;
    raw.last = b == batch_.requests - 1;
    raw.reach = further(reach, raw.start);
    raw.after_prefill = after_prefill;
    return raw;
  }

  LANTERN_BLOCK_CODE Judged judge(int32_t b, const RawRow& raw) {
    Judged judged;
    if (!batch_.usable) return judged;
    judged.fault = row_fault(raw, {batch_.tokens, p_.max_query_len, p_.bucket.query_width, p_.max_model_len});
    for (int32_t g = 0; g < p_.num_groups && judged.fault == PlanFault::kNone; ++g) {
      judged.fault = table_fault(p_.groups[g], b, raw.seq_len);
    }
    if (judged.fault == PlanFault::kNone && p_.accepted && !raw.prefilling && raw.end > raw.start) {
      judged.fault = accepted_fault(p_.accepted[b], raw.end - raw.start);
    }
    if (judged.fault == PlanFault::kNone && !is_padding(raw)) {
      judged.row = {raw.start, raw.end - raw.start, raw.seq_len};
    }
    return judged;
  }

  LANTERN_BLOCK_CODE PlanFault table_fault(const PlanGroupParams& g, int32_t b, int32_t seq_len) {
    const int32_t needed = ceil_div(seq_len, g.group.block_size);
    if (needed > g.group.max_blocks_per_request) return PlanFault::kTooFewBlocks;
    const int32_t* row = block_table_row(g, b);
    const int32_t num_blocks = g.group.num_blocks;
    const auto entry = [&](int32_t i) { return row[i] < 0 || row[i] >= num_blocks ? i : kNoIndex; };
    int32_t bad = kNoIndex;
    if (is_aligned_to_int4(row)) {
      bad = block_.min_of(ceil_div(needed, 4), kNoIndex, [&](int32_t i) {
        int32_t first = kNoIndex;
        if (4 * i + 4 <= needed) {
          const Int4 four = block_.load4(row + 4 * i);
          for (int32_t j = 3; j >= 0; --j) {
            if (four.at[j] < 0 || four.at[j] >= num_blocks) first = 4 * i + j;
          }
        } else {
          for (int32_t j = needed - 1; j >= 4 * i; --j) first = min_of(first, entry(j));
        }
        return first;
      });
    } else {
      bad = block_.min_of(needed, kNoIndex, entry);
    }
    return bad == kNoIndex ? PlanFault::kNone : block_fault(row[bad], num_blocks, kMissingBlock);
  }

  LANTERN_BLOCK_CODE void write_row(int32_t b, const Judged& judged) {
    const PlannedRow& row = judged.row;
    block_.store(&p_.query_start[b], row.start);
    block_.store(&p_.query_len[b], row.query_len);
    block_.store(&p_.seq_len[b], row.seq_len);
    block_.store(&p_.errors[2 * (int64_t{b} + kMostBatchErrors) + 1], static_cast<int32_t>(judged.fault));
    if (p_.per_request_context_lens) {
      int32_t* lens = p_.per_request_context_lens.get() + int64_t{b} * p_.bucket.query_width;
      block_.each(p_.bucket.query_width, [&](int32_t j) { lens[j] = per_request_len(row, j); });
    }
    if (p_.accepted && p_.draft_query_start_loc) {
      block_.each(1, [&](int32_t) {
        p_.draft_query_start_loc[b] = min_of(b, batch_.requests);
        write_drafts(p_, b, row);
      });
    }
  }

  // Tokens [begin, end), which lie within the range of request b: those of `row` and padding.
  LANTERN_BLOCK_CODE void write_tokens(int32_t b, const PlannedRow& row, int32_t begin, int32_t end) {
    const auto is_real = [&row](int32_t token) { return token >= row.start && token - row.start < row.query_len; };
    block_.each(end - begin, [&](int32_t i) {
      const int32_t token = begin + i;
      const bool real = is_real(token);
      write_token(p_, token, real ? b : -1, real ? context_len(row.seq_len, row.query_len, token - row.start) : 0);
    });
    for (int32_t g = 0; g < p_.num_groups; ++g) {
      if (p_.groups[g].expanded_block_table) expand(p_.groups[g], b, begin, end, is_real);
    }
  }

  template <class IsReal>
  LANTERN_BLOCK_CODE void expand(const PlanGroupParams& g, int32_t b, int32_t begin, int32_t end,
                                 const IsReal& is_real) {
    const int32_t width = g.group.max_blocks_per_request;
    const int32_t num_blocks = g.group.num_blocks;
    const int32_t* row = block_table_row(g, max_of(0, b));
    int32_t* out = g.expanded_block_table.get();
    bool any_real = false;
    for (int32_t token = begin; token < end; ++token) any_real = any_real || is_real(token);
    if (is_aligned_to_int4(row) && is_aligned_to_int4(out) && width % 4 == 0) {
      block_.each(width / 4, [&](int32_t i) {
        Int4 four{};
        if (any_real) {
          four = block_.load4(row + 4 * i);
          for (int32_t& block : four.at) block = block_in_pool(block, num_blocks);
        }
        for (int32_t token = begin; token < end; ++token) {
          block_.store4(out + int64_t{token} * width + 4 * i, is_real(token) ? four : Int4{});
        }
      });
      return;
    }
    block_.each(width, [&](int32_t i) {
      const int32_t block = any_real ? block_in_pool(row[i], num_blocks) : 0;
      for (int32_t token = begin; token < end; ++token) out[int64_t{token} * width + i] = is_real(token) ? block : 0;
    });
  }

  Block& block_;
  const StepPlanParams& p_;
  const BatchCounts batch_;
};

}  // namespace lantern::plan
