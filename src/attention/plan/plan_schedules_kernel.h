// The second kernel of a plan: what depends on all requests together. One block for each wanted list, so that they run
// beside each other. And beside the first kernel: a list is made from the raw inputs while the first kernel judges
// them. When that has ended and every row stands, the list is right as it is; otherwise it is made again, of what
// stands.
//
// Counts and errors are sums and a compaction; the paged MQA schedules are a prefix sum over requests and a binary
// search for each worker. FlashMLA's tile scheduler is a greedy walk (plan_schedule_math.h) which is not sequential at
// heart:
//
// Lay the requests on a line, request r from boundary P[r] to P[r + 1] = P[r] + blocks(r) + overhead. A part that
// starts at x may take `payload` of the line. With g = payload - overhead the next part starts at x + g, or at the
// boundary that lies within the next `overhead` from there (no two do). So starts are a lattice of step g, shifted
// where it meets a boundary: after boundary c it goes through c if some lattice point lies in [c - overhead, c], and
// else goes on as it was. All that the walk has to remember is the lattice's phase, x mod g:
//
//     phase' = (c - phase) mod g <= overhead ? c mod g : phase
//
// That is Lattice::pass(); CudaBlock::walk() says how four warps do many at once. What remains are prefix sums: how
// many parts start within each request.
#pragma once

#include <type_traits>

#include "attention/plan/plan_block.h"
#include "attention/plan/plan_rows_kernel.h"
#include "attention/plan/plan_schedules.h"

namespace lantern::plan {

// Int: int32_t where launch.int32_schedules, else int64_t.
template <class Int>
struct SchedulesShared {
  alignas(16) Int sums[kBlockItems];
  Int boundaries[kBlockItems];          // P of the requests' ends; in the summary, faults
  Int starts[kBlockItems];              // the first part's that starts there or later
  Int counts[kBlockItems];              // see mla_piece
  int32_t part_request[kMostMlaParts];  // where each part starts
  int32_t part_block[kMostMlaParts];
};

template <class Block, class Int>
class SchedulesKernel {
 public:
  // Reads inputs of the plan only.
  LANTERN_BLOCK_CODE SchedulesKernel(Block& block, SchedulesShared<Int>& shared, const StepPlanParams& p,
                                     const PlanLaunch& launch)
      : block_(block),
        shared_(shared),
        p_(p),
        launch_(launch),
        list_(launch.lists[block.index()]),
        batch_(batch_counts(p)),
        rows_{p, false, batch_.requests} {}

  LANTERN_BLOCK_CODE void run() {
    // Chunks lie in memory that the first kernel fills. MLA tiles are made of lengths alone.
    const bool early = list_ == PlanList::kMlaTiles || (list_ != PlanList::kPrefillChunks && raw_rows_are_plausible());
    LANTERN_NO_UNROLL
    for (int32_t pass = early ? 0 : 1; pass < 2; ++pass) {
      rows_.planned = pass == 1;
      if (pass == 1 && !early) block_.wait_for_rows();
      if (write_list() || pass == 1) return;
    }
  }

 private:
  static constexpr bool kIsInt32 = sizeof(Int) == sizeof(int32_t);

  // Whether the list is right. Where it is made of planned rows, it is.
  LANTERN_BLOCK_CODE bool write_list() {
    switch (list_) {
      case PlanList::kSummary: summary(); break;
      case PlanList::kMqaSm90: mqa(MqaSm90{p_, rows_}); break;
      case PlanList::kMqaSm100: mqa(MqaSm100{p_, rows_}); break;
      case PlanList::kMlaTiles: return mla();
      case PlanList::kPrefillChunks: prefill_chunks(); break;
      case PlanList::kNumLists: break;
    }
    return rows_stand();
  }

  // Whether lists can be made of the raw rows without leaving their memory: the token ranges lie one after the other,
  // and no length is beyond what schedules_fit_int32() counts on.
  LANTERN_BLOCK_CODE bool raw_rows_are_plausible() {
    Totals<0, 1> bad;
    block_.each(batch_.requests, [&](int32_t b) {
      const int32_t start = p_.query_start_loc[b], end = p_.query_start_loc[b + 1], seq_len = p_.seq_lens[b];
      if (start < 0 || end < start || end > batch_.tokens || seq_len < end - start || seq_len > p_.max_model_len) {
        bad.raise(0, 1);
      }
    });
    block_.combine(bad);
    return launch_.usable && bad.maxima[0] == 0;
  }
  // A barrier that tells whether the rows that the list was made of are those that stand.
  LANTERN_BLOCK_CODE bool rows_stand() {
    if (rows_.planned) {
      block_.barrier();
      return true;
    }
    block_.wait_for_rows();
    return !block_.any(p_.bucket.requests, [&](int32_t b) {
      bool stands = p_.seq_len[b] == rows_.raw_seq_len(b);
      if (list_ != PlanList::kMlaTiles) stands = stands && p_.query_len[b] == rows_.raw_query_len(b);
      return !stands || (list_ == PlanList::kSummary && fault_code(b) != 0);
    });
  }

  LANTERN_BLOCK_CODE void summary() {
    enum { kStanding, kPrefills, kTokens, kPrefillTokens, kFaults, kNumSums };
    enum { kFirstPrefill, kPad, kNumMaxima };
    Totals<kNumSums, kNumMaxima> all;
    all.maxima[kFirstPrefill] = -batch_.requests;
    block_.each(p_.bucket.requests, [&](int32_t b) {
      if (rows_.planned && fault_code(b) != 0) ++all.sums[kFaults];
      if (b >= batch_.requests) return;
      const int32_t query_len = rows_.query_len(b);
      const bool standing = query_len > 0 || rows_.seq_len(b) > 0;
      const bool prefilling = p_.prefilling[b] != 0;
      all.sums[kTokens] += query_len;
      if (standing) ++all.sums[kStanding];
      if (standing && prefilling) {
        ++all.sums[kPrefills];
        all.sums[kPrefillTokens] += query_len;
        all.raise(kFirstPrefill, -b);
      }
      if (launch_.usable && !prefilling && query_len != p_.bucket.query_width) all.raise(kPad, 1);
    });
    block_.combine(all);
    errors(all.sums[kFaults]);
    block_.beside(1, [&](int32_t) {
      const int32_t first = -all.maxima[kFirstPrefill];
      p_.counts[kNumDecodes] = all.sums[kStanding] - all.sums[kPrefills];
      p_.counts[kNumPrefills] = all.sums[kPrefills];
      p_.counts[kNumDecodeTokens] = all.sums[kTokens] - all.sums[kPrefillTokens];
      p_.counts[kNumPrefillTokens] = all.sums[kPrefillTokens];
      p_.counts[kPrefillRequestBegin] = first;
      p_.counts[kPrefillTokenBegin] = first < batch_.requests ? rows_.query_start(first) : batch_.tokens;
      p_.counts[kRequiresPadding] = all.maxima[kPad];
      if (!p_.prefill_chunks) p_.counts[kNumPrefillChunks] = 0;
    });
  }

  // Where the first kernel leaves a request's fault: in the place of an error, whose other half is nobody's until then.
  LANTERN_BLOCK_CODE int32_t fault_code(int32_t b) const { return p_.errors[2 * (int64_t{b} + kMostBatchErrors) + 1]; }
  LANTERN_BLOCK_CODE void put_error(int64_t index, int32_t request, int32_t code) const {
    p_.errors[2 * index] = request;
    p_.errors[2 * index + 1] = code;
  }

  // Faults of the batch first, at most kMostBatchErrors, then those of requests, moved forward from where the first
  // kernel left them. A piece is read whole before any of it is written, and nothing is written beyond what is read.
  // Without faults there is nothing to move, and before the rows are planned nobody but the first kernel says so.
  LANTERN_BLOCK_CODE void errors(int32_t row_faults) {
    int32_t count = 0;
    const auto batch_error = [&](PlanFault fault) {
      block_.beside(1, [&](int32_t) { put_error(count, -1, static_cast<int32_t>(fault)); });
      ++count;
    };
    if (!batch_.requests_fit) batch_error(PlanFault::kNumRequests);
    if (!batch_.tokens_fit) batch_error(PlanFault::kNumTokens);
    if (!launch_.usable) batch_error(PlanFault::kCompressRatio);
    if (launch_.usable && batch_.requests == 0) {  // no row is there to be at fault
      if (p_.query_start_loc[0] != 0) {
        batch_error(PlanFault::kQueryStart);
      } else if (batch_.tokens != 0) {
        batch_error(PlanFault::kQueryEnd);
      }
    }
    LANTERN_NO_UNROLL
    for (int32_t first = 0; row_faults > 0 && first < p_.bucket.requests; first += kBlockItems) {
      const int32_t n = min_of(kBlockItems, p_.bucket.requests - first);
      block_.each(n, [&](int32_t i) { shared_.boundaries[i] = fault_code(first + i); });
      block_.barrier();
      const auto found = static_cast<int32_t>(
          block_.scan(shared_.sums, n, [&](int32_t i) { return Int{shared_.boundaries[i] != 0}; }));
      block_.each(n, [&](int32_t i) {
        if (shared_.boundaries[i] == 0) return;
        put_error(count + shared_.sums[i] - 1, first + i, static_cast<int32_t>(shared_.boundaries[i]));
      });
      block_.barrier();
      count += found;
    }
    block_.each(p_.bucket.requests + kMostBatchErrors - count, [&](int32_t i) {
      const int64_t index = int64_t{count} + i;
      p_.errors[2 * index] = -1;
      if (rows_.planned || index < kMostBatchErrors) p_.errors[2 * index + 1] = static_cast<int32_t>(PlanFault::kNone);
    });
    block_.beside(1, [&](int32_t) { p_.counts[kNumErrors] = count; });
  }

  // Least i of [0, n) with sum(i) > value; n when there is none.
  template <class Sum>
  LANTERN_BLOCK_CODE static int32_t first_above(Int value, int32_t n, const Sum& sum) {
    int32_t low = 0, high = n;
    LANTERN_NO_UNROLL
    while (low < high) {
      const int32_t middle = (low + high) / 2;
      if (sum(middle) > value) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    return low;
  }

  // Of all requests' weights.
  template <class Weight>
  LANTERN_BLOCK_CODE Int total_of(int32_t requests, const Weight& weight) {
    Int total = 0;
    LANTERN_NO_UNROLL
    for (int32_t first = 0; first < requests; first += kBlockItems) {
      total += scan_piece(first, min_of(kBlockItems, requests - first), weight);
    }
    return total;
  }
  // Leaves the running sums of a piece of requests in shared_.sums and returns their total.
  template <class Weight>
  LANTERN_BLOCK_CODE Int scan_piece(int32_t first, int32_t n, const Weight& weight) {
    return block_.scan(shared_.sums, n, [&](int32_t i) { return static_cast<Int>(weight(first + i)); });
  }

  template <class Schedule>
  LANTERN_BLOCK_CODE void mqa(const Schedule& schedule) {
    const int32_t requests = p_.bucket.requests;
    const auto units = [&](int32_t b) { return schedule.units(b); };
    const Int total = total_of(requests, units);
    const MqaShare<Int> share(total, p_.workers);
    Int before = 0;  // units of earlier pieces
    LANTERN_NO_UNROLL
    for (int32_t first = 0; first < requests; first += kBlockItems) {
      const int32_t n = min_of(kBlockItems, requests - first);
      const Int here = requests <= kBlockItems ? total : scan_piece(first, n, units);
      block_.barrier();
      block_.each(p_.workers + 1, [&](int32_t s) {
        const Int start = schedule.start(share, s) - before;
        if (start < 0 || start >= here) return;
        const int32_t i = first_above(start, n, [&](int32_t at) { return shared_.sums[at]; });
        write_mqa_entry(schedule, s, schedule.entry(first + i, start - (i > 0 ? shared_.sums[i - 1] : 0)));
      });
      block_.barrier();
      before += here;
    }
    block_.each(p_.workers + 1, [&](int32_t s) {
      if (schedule.start(share, s) >= total) write_mqa_entry(schedule, s, schedule.sentinel());
    });
  }

  // Where the walk over the line of requests stands between two pieces of them.
  struct Walk {
    Lattice<Int> lattice;
    Int boundary = 0;  // of the first request that is still to come
    Int start = 0;     // the first part's that starts there or later
    Int parts = 0;     // that start before it
    Int shared = 0;    // requests before it in whose midst a part starts right after their boundary was passed
  };

  LANTERN_BLOCK_CODE Int overhead() const { return p_.mla.fixed_overhead_blocks; }
  LANTERN_BLOCK_CODE int32_t keys_of(int32_t b) const { return mla_keys(rows_.seq_len(b), p_.mla.topk); }
  LANTERN_BLOCK_CODE Int cost_of(int32_t b) const { return mla_blocks(keys_of(b)) + overhead(); }
  LANTERN_BLOCK_CODE int32_t* tile(int64_t part) const { return p_.mla_tiles.get() + part * kMlaTileInts; }

  LANTERN_BLOCK_CODE auto by_parts() const {
    if constexpr (kIsInt32) {
      return launch_.mla_parts;
    } else {
      return Int{p_.mla.parts};
    }
  }
  LANTERN_BLOCK_CODE bool mla() {
    const int32_t requests = batch_.requests;
    const Int total = block_.template sum<Int>(requests, [&](int32_t b) { return cost_of(b); });
    const Int step = total > 0 ? quotient(static_cast<Int>(total + p_.mla.parts - 1), by_parts()) : 1;
    Walk walk{Lattice<Int>(step, overhead())};
    LANTERN_NO_UNROLL
    for (int32_t first = 0; first < requests; first += kBlockItems) {
      if (first > 0) block_.barrier();
      mla_piece(walk, first, min_of(kBlockItems, requests - first));
    }
    const auto splits = static_cast<int32_t>(walk.parts + walk.shared);
    block_.beside(1, [&](int32_t) { p_.mla_num_splits[0] = 0; });
    block_.beside(p_.bucket.requests - requests, [&](int32_t i) { p_.mla_num_splits[requests + i + 1] = splits; });
    // Asked here, where a barrier is due in any case and the first kernel has most likely ended.
    const bool stand = rows_stand();
    if (stand) finish_tiles(static_cast<int32_t>(walk.parts));
    return stand;
  }

  // Requests [first, first + n): num_splits, and of each part that starts within them request, block and split.
  LANTERN_BLOCK_CODE void mla_piece(Walk& walk, int32_t first, int32_t n) {
    const Int step = walk.lattice.step;
    const Int *boundaries = shared_.boundaries, *starts = shared_.starts;
    block_.walk(walk.lattice, n, [&](int32_t i) { return cost_of(first + i); }, shared_.boundaries, shared_.starts);
    block_.barrier();
    const Int first_boundary = walk.boundary, first_start = walk.start;
    const auto begin_of = [&](int32_t i) { return i == 0 ? first_boundary : boundaries[i - 1]; };
    const auto start_of = [&](int32_t i) { return i == 0 ? first_start : starts[i - 1]; };
    // In one word, so that one scan does: parts that start within a request, and (upper half) whether the part before
    // them has taken its beginning.
    constexpr int kHalf = 4 * sizeof(Int);
    const auto low_half = [](Int word) { return word & ((Int{1} << kHalf) - 1); };
    Int* counts = shared_.counts;
    const Int in_piece = block_.scan(counts, n, [&](int32_t i) {
      const Int room = boundaries[i] - overhead() - start_of(i);
      const Int parts = room > 0 ? quotient(static_cast<Int>(room + step - 1), walk.lattice.by_step) : 0;
      const Int begun = start_of(i) > begin_of(i) ? 1 : 0;
      return parts + (begun << kHalf);
    });
    block_.barrier();
    // Seldom more than two in a request, unless there are few requests.
    block_.each(n, [&](int32_t i) {
      const Int before = i == 0 ? 0 : counts[i - 1];
      const Int parts = low_half(counts[i]) - low_half(before), begun = (counts[i] >> kHalf) - (before >> kHalf);
      p_.mla_num_splits[first + i + 1] =
          static_cast<int32_t>(walk.parts + low_half(counts[i]) + walk.shared + (counts[i] >> kHalf));
      Int part = walk.parts + low_half(before), block = start_of(i) - begin_of(i);
      LANTERN_NO_UNROLL
      for (Int nth = 0; nth < parts; ++nth, ++part, block += step) {
        shared_.part_request[part] = first + i;
        shared_.part_block[part] = static_cast<int32_t>(block);
        tile(part)[4] = static_cast<int32_t>(nth + begun);
      }
    });
    walk.parts += low_half(in_piece);
    walk.shared += in_piece >> kHalf;
    walk.boundary = boundaries[n - 1];
    walk.start = starts[n - 1];
  }

  // A part ends where the next one starts; unused parts say that there is no work.
  LANTERN_BLOCK_CODE void finish_tiles(int32_t used) {
    block_.each(p_.mla.parts, [&](int32_t part) {
      int32_t* t = tile(part);
      t[7] = 0;
      if (part >= used) {
        t[0] = p_.bucket.requests;
        t[1] = p_.bucket.requests - 1;
        t[2] = t[3] = t[4] = t[5] = t[6] = 0;
        return;
      }
      const int32_t request = shared_.part_request[part], block = shared_.part_block[part];
      const int32_t next_request = part + 1 < used ? shared_.part_request[part + 1] : batch_.requests;
      const int32_t next_block = part + 1 < used ? shared_.part_block[part + 1] : 0;
      const int32_t last = next_block > 0 ? next_request : next_request - 1;
      const int32_t last_keys = keys_of(last);
      int32_t first_is_split = block > 0 ? 1 : 0;
      int32_t last_is_split = next_block > 0 ? 1 : 0;
      if (request == last) first_is_split = last_is_split = first_is_split | last_is_split;
      t[0] = request;
      t[1] = last;
      t[2] = block;
      t[3] = next_block > 0 ? next_block : (last_keys == 0 ? 0 : mla_blocks(last_keys));
      t[5] = first_is_split;
      t[6] = last_is_split;
    });
  }

  // The rule is greedy over prefilling requests, few of which are in a batch; decodes are skipped by all threads.
  LANTERN_BLOCK_CODE void prefill_chunks() {
    Totals<0, 1> first(-batch_.requests);
    block_.each(batch_.requests, [&](int32_t b) {
      if (p_.prefilling[b] != 0 && (p_.query_len[b] > 0 || p_.seq_len[b] > 0)) first.raise(0, -b);
    });
    block_.combine(first);
    block_.beside(1, [&](int32_t) {
      p_.counts[kNumPrefillChunks] = write_prefill_chunks(p_, -first.maxima[0], batch_.requests);
    });
  }

  Block& block_;
  SchedulesShared<Int>& shared_;
  const StepPlanParams& p_;
  const PlanLaunch& launch_;
  const PlanList list_;
  const BatchCounts batch_;
  PlanRows rows_;
};

}  // namespace lantern::plan
