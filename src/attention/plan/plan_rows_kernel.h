// The first kernel of a plan: judges every request and writes all that depends on one request alone, which is
// everything per request and per token.
//
// What a request needs to know of others are two scans over the raw inputs: the furthest query_start_loc before it
// (`reach`) and whether a prefill stands before it. Neither depends on whether those requests are sound, so every block
// makes them for itself with a few loads per thread, and no block waits for another.
//
// Row blocks (one request each, up to kMostRowBlocks blocks) read the needed part of the request's block table once,
// sixteen bytes a thread, while the scans run, judge all of it at one meeting of the block, and write the request and
// its tokens, each part by another warp. Token ranges of different requests do not
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
#include "attention/plan/plan_launch.h"
#include "attention/plan/plan_outputs.h"

namespace lantern::plan {

constexpr int32_t kRowTokens = 16;  // a longer range is left to the tiles
constexpr int32_t kNoIndex = INT32_MAX;

// The counts as far as the bucket allows.
struct BatchCounts {
  int32_t requests;
  int32_t tokens;
  bool requests_fit;
  bool tokens_fit;
};
LANTERN_HOST_DEVICE inline BatchCounts batch_counts(const StepPlanParams& p) {
  const int32_t num_requests = p.num_requests[0], num_tokens = p.num_tokens[0];
  const int32_t requests = max_of(0, min_of(num_requests, p.bucket.requests));
  const int32_t tokens = max_of(0, min_of(num_tokens, p.bucket.tokens));
  return {requests, tokens, requests == num_requests, tokens == num_tokens};
}

template <class Block>
class RowsKernel {
 public:
  LANTERN_BLOCK_CODE RowsKernel(Block& block, const StepPlanParams& p, const PlanLaunch& launch)
      : block_(block), p_(p), launch_(launch), batch_(batch_counts(p)) {}

  LANTERN_BLOCK_CODE void run() {
    const RowsGrid& grid = launch_.rows;
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
    int32_t rejected = 0;  // drafts
  };

  LANTERN_BLOCK_CODE void rows(int32_t first, int32_t end) {
    if (first == 0 && p_.accepted && p_.draft_query_start_loc) {
      block_.beside(1, [&](int32_t) { p_.draft_query_start_loc[p_.bucket.requests] = batch_.requests; });
    }
    LANTERN_NO_UNROLL
    for (int32_t b = first; b < end; ++b) {
      Judged judged;
      if (b < batch_.requests) {
        RawRow raw;
        judged = judge(b, raw);
        const int32_t range_begin = b == 0 ? 0 : raw.reach;
        const int32_t range_end = further(raw.reach, raw.end);
        if (range_end - range_begin <= kRowTokens) write_tokens(b, judged.row, range_begin, range_end);
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
    int32_t end_reach = 0;
    if (batch_.requests > 0) {
      enum { kReach, kLongRange, kNumMaxima };
      Totals<0, kNumMaxima> all;
      block_.each(batch_.requests + 1, [&](int32_t i) {
        const int32_t start = further(0, p_.query_start_loc[i]);
        const int32_t before = i > 1 ? further(0, p_.query_start_loc[i - 1]) : 0;
        all.raise(kReach, start);
        // True at least for the end of every long range that goes beyond this tile's first token.
        if (start > first && start - before > kRowTokens) all.raise(kLongRange, 1);
      });
      block_.combine(all);
      end_reach = all.maxima[kReach];
      int32_t token = first;
      while (all.maxima[kLongRange] != 0 && token < min_of(end, end_reach)) token = long_range(token, end);
    }
    const int32_t padding = max_of(first, end_reach);
    if (padding < end) write_tokens(-1, PlannedRow(), padding, end);
  }

  // Writes the part of the range that `token` lies in up to `end`, if a tile is to, and returns where that part ends.
  LANTERN_BLOCK_CODE int32_t long_range(int32_t token, int32_t end) {
    Totals<0, 1> next(-kNoIndex);
    block_.each(batch_.requests + 1, [&](int32_t i) {
      const int32_t start = p_.query_start_loc[i];
      if (start > token && start <= batch_.tokens) next.raise(0, -i);
    });
    block_.combine(next);
    const int32_t b = max_of(0, -next.maxima[0] - 1);
    RawRow raw;
    const Judged judged = judge(b, raw);
    const int32_t part_end = p_.query_start_loc[-next.maxima[0]];
    if (further(raw.reach, raw.end) - (b == 0 ? 0 : raw.reach) > kRowTokens) {
      write_tokens(b, judged.row, token, min_of(part_end, end));
    }
    return part_end;
  }

  // The larger of the two, where `start` is one that a batch of these tokens can have.
  LANTERN_BLOCK_CODE int32_t further(int32_t reach, int32_t start) const {
    return start <= batch_.tokens ? max_of(reach, start) : reach;
  }

  // Everything that can be said of request b < batch_.requests, and in `raw` what it was said of. The block meets once
  // for it, and once more for each further cache group.
  LANTERN_BLOCK_CODE Judged judge(int32_t b, RawRow& raw) {
    raw.start = p_.query_start_loc[b];
    raw.end = p_.query_start_loc[b + 1];
    raw.seq_len = p_.seq_lens[b];
    raw.prefilling = p_.prefilling[b] != 0;
    raw.first = b == 0;
    raw.last = b == batch_.requests - 1;
    const int32_t accepted = p_.accepted ? p_.accepted[b] : 0;

    enum { kReach, kAfterPrefill, kBadEntry, kNumMaxima };
    Totals<0, kNumMaxima> all;
    all.maxima[kBadEntry] = -kNoIndex;
    block_.each(b, [&](int32_t i) {
      const int32_t start = p_.query_start_loc[i];
      const bool padding = start == p_.query_start_loc[i + 1] && p_.seq_lens[i] == 0;
      const bool prefilling = p_.prefilling[i] != 0;
      all.raise(kReach, further(0, start));
      if (prefilling && !padding) all.raise(kAfterPrefill, 1);
    });
    bool too_short = bad_entries(p_.groups[0], b, raw.seq_len, [&](int32_t i) { all.raise(kBadEntry, -i); });
    block_.combine(all);
    raw.reach = further(all.maxima[kReach], raw.start);
    raw.after_prefill = all.maxima[kAfterPrefill] != 0;

    Judged judged;
    if (!launch_.usable) return judged;
    judged.fault = row_fault(raw, {batch_.tokens, p_.max_query_len, p_.bucket.query_width, p_.max_model_len});
    if (judged.fault == PlanFault::kNone) {
      judged.fault = table_fault(p_.groups[0], b, too_short, -all.maxima[kBadEntry]);
    }
    LANTERN_NO_UNROLL
    for (int32_t g = 1; g < p_.num_groups && judged.fault == PlanFault::kNone; ++g) {
      Totals<0, 1> bad(-kNoIndex);
      too_short = bad_entries(p_.groups[g], b, raw.seq_len, [&](int32_t i) { bad.raise(0, -i); });
      block_.combine(bad);
      judged.fault = table_fault(p_.groups[g], b, too_short, -bad.maxima[0]);
    }
    if (judged.fault == PlanFault::kNone && p_.accepted && !raw.prefilling && raw.end > raw.start) {
      judged.fault = accepted_fault(accepted, raw.end - raw.start);
    }
    if (judged.fault == PlanFault::kNone && !is_padding(raw)) {
      judged.row = {raw.start, raw.end - raw.start, raw.seq_len};
      judged.rejected = rejected_drafts(judged.row, raw.prefilling, accepted);
    }
    return judged;
  }

  // f(i) for entries of request b's table that its length needs and that no block answers to. Returns whether the table
  // is too short for that length. Nothing is looked at for lengths that could not be planned.
  template <class F>
  LANTERN_BLOCK_CODE bool bad_entries(const PlanGroupParams& g, int32_t b, int32_t seq_len, const F& f) {
    if (seq_len < 0 || seq_len > p_.max_model_len || !launch_.usable) return false;
    const int32_t needed = blocks_of(g, seq_len);
    if (needed > g.group.max_blocks_per_request) return true;
    const int32_t* row = block_table_row(g, b);
    const auto num_blocks = static_cast<uint32_t>(g.group.num_blocks);
    const auto entry = [&](int32_t i, int32_t block) {
      if (static_cast<uint32_t>(block) >= num_blocks) f(i);
    };
    int32_t whole = 0;  // entries that are read four at a time
    if (is_aligned_to_int4(row)) {
      whole = needed / 4 * 4;
      block_.stream(
          whole / 4, [&](int32_t i) { return block_.load4(row + 4 * i); },
          [&](int32_t i, const Int4& four) {
            for (int32_t j = 0; j < 4; ++j) entry(4 * i + j, four.at[j]);
          });
    }
    block_.stream(
        needed - whole, [&](int32_t i) { return row[whole + i]; },
        [&](int32_t i, int32_t block) { entry(whole + i, block); });
    return false;
  }
  // `bad`: the first of those entries, or kNoIndex.
  LANTERN_BLOCK_CODE static PlanFault table_fault(const PlanGroupParams& g, int32_t b, bool too_short, int32_t bad) {
    if (too_short) return PlanFault::kTooFewBlocks;
    return bad == kNoIndex ? PlanFault::kNone
                           : block_fault(block_table_row(g, b)[bad], g.group.num_blocks, kMissingBlock);
  }

  LANTERN_BLOCK_CODE void write_row(int32_t b, const Judged& judged) {
    const PlannedRow& row = judged.row;
    block_.beside(1, [&](int32_t) {
      p_.query_start[b] = row.start;
      p_.query_len[b] = row.query_len;
      p_.seq_len[b] = row.seq_len;
      p_.errors[2 * (int64_t{b} + kMostBatchErrors) + 1] = static_cast<int32_t>(judged.fault);
    });
    if (p_.per_request_context_lens) {
      int32_t* lens = p_.per_request_context_lens.get() + int64_t{b} * p_.bucket.query_width;
      block_.beside(p_.bucket.query_width, [&](int32_t j) { lens[j] = per_request_len(row, j); });
    }
    if (p_.accepted && p_.draft_query_start_loc) {
      block_.beside(p_.draft_steps + 1, [&](int32_t step) {
        if (step > 0) {
          write_draft(p_, b, row, judged.rejected, step);
        } else {
          p_.draft_query_start_loc[b] = min_of(b, batch_.requests);
          p_.draft_token_indices[b] = draft_token_index(row, judged.rejected);
        }
      });
    }
  }

  // Tokens [begin, end), which lie within the range of request b: those of `row` and padding.
  LANTERN_BLOCK_CODE void write_tokens(int32_t b, const PlannedRow& row, int32_t begin, int32_t end) {
    const auto is_real = [&row](int32_t token) { return token >= row.start && token - row.start < row.query_len; };
    block_.beside(end - begin, [&](int32_t i) {
      const int32_t token = begin + i;
      const bool real = is_real(token);
      write_token(p_, token, real ? b : -1, real ? context_len(row.seq_len, row.query_len, token - row.start) : 0);
    });
    LANTERN_NO_UNROLL
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
    LANTERN_NO_UNROLL
    for (int32_t token = begin; token < end; ++token) any_real = any_real || is_real(token);
    if (is_aligned_to_int4(row) && is_aligned_to_int4(out) && width % 4 == 0) {
      block_.stream(
          width / 4, [&](int32_t i) { return any_real ? block_.load4(row + 4 * i) : Int4{}; },
          [&](int32_t i, Int4 four) {
            for (int32_t& block : four.at) block = block_in_pool(block, num_blocks);
            LANTERN_NO_UNROLL
            for (int32_t token = begin; token < end; ++token) {
              block_.store4(out + int64_t{token} * width + 4 * i, is_real(token) ? four : Int4{});
            }
          });
      return;
    }
    block_.each(width, [&](int32_t i) {
      const int32_t block = any_real ? block_in_pool(row[i], num_blocks) : 0;
      LANTERN_NO_UNROLL
      for (int32_t token = begin; token < end; ++token) out[int64_t{token} * width + i] = is_real(token) ? block : 0;
    });
  }

  Block& block_;
  const StepPlanParams& p_;
  const PlanLaunch& launch_;
  const BatchCounts batch_;
};

}  // namespace lantern::plan
