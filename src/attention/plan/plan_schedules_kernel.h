// The second kernel of a plan: what depends on all requests together. One block for each wanted list; each starts from
// the planned rows of the first kernel, so that the blocks run beside each other.
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
// Such steps do not combine into anything small, but a step that takes effect forgets the past. So for every boundary
// the phase at the end of its group of kGroup boundaries is computed for the case that the lattice goes through it, by
// all threads at once; then one pass over the groups finds in each the first boundary that the incoming phase meets, by
// one vote of a warp. What remains are prefix sums: how many parts start within each request.
#pragma once

#include "attention/plan/plan_block.h"
#include "attention/plan/plan_rows_kernel.h"
#include "attention/plan/plan_schedules.h"

namespace lantern::plan {

enum class PlanList { kSummary, kMqaSm90, kMqaSm100, kMlaTiles, kPrefillChunks, kNumLists };

LANTERN_HOST_DEVICE inline bool is_wanted(const StepPlanParams& p, PlanList list) {
  switch (list) {
    case PlanList::kSummary: return true;
    case PlanList::kMqaSm90: return static_cast<bool>(p.paged_mqa_sm90);
    case PlanList::kMqaSm100: return static_cast<bool>(p.paged_mqa_sm100);
    case PlanList::kMlaTiles: return p.mla_tiles && p.mla_num_splits;
    case PlanList::kPrefillChunks: return static_cast<bool>(p.prefill_chunks);
    case PlanList::kNumLists: break;
  }
  return false;
}
// The list of block `index`, kNumLists when there is no such block.
LANTERN_HOST_DEVICE inline PlanList list_of_block(const StepPlanParams& p, int32_t index) {
  for (int32_t i = 0; i < static_cast<int32_t>(PlanList::kNumLists); ++i) {
    const auto list = static_cast<PlanList>(i);
    if (is_wanted(p, list) && index-- == 0) return list;
  }
  return PlanList::kNumLists;
}
LANTERN_HOST_DEVICE inline int32_t schedule_blocks(const StepPlanParams& p) {
  int32_t count = 0;
  while (list_of_block(p, count) != PlanList::kNumLists) ++count;
  return count;
}

struct SchedulesShared {
  int64_t sums[kBlockItems];
  int64_t boundary[kBlockItems];  // P of the requests' ends
  int64_t phase[kBlockItems];     // of each boundary
  int64_t leaves[kBlockItems];    // phase at the end of the group if the lattice goes through the boundary
  int64_t enters[kBlockItems];    // by group: phase before its first boundary. Later: see mla_piece
};

template <class Block>
class SchedulesKernel {
 public:
  LANTERN_BLOCK_CODE SchedulesKernel(Block& block, SchedulesShared& shared, const StepPlanParams& p)
      : block_(block), shared_(shared), p_(p), batch_(batch_counts(p)) {}

  LANTERN_BLOCK_CODE void run() {
    switch (list_of_block(p_, block_.index())) {
      case PlanList::kSummary:
        counts();
        errors();
        break;
      case PlanList::kMqaSm90: mqa(MqaSm90{p_}); break;
      case PlanList::kMqaSm100: mqa(MqaSm100{p_}); break;
      case PlanList::kMlaTiles: mla(); break;
      case PlanList::kPrefillChunks: prefill_chunks(); break;
      case PlanList::kNumLists: break;
    }
  }

 private:
  static constexpr int32_t kGroup = 16;

  LANTERN_BLOCK_CODE bool is_standing(int32_t b) const { return p_.query_len[b] > 0 || p_.seq_len[b] > 0; }
  LANTERN_BLOCK_CODE bool is_prefill(int32_t b) const { return is_standing(b) && p_.prefilling[b] != 0; }
  LANTERN_BLOCK_CODE int32_t first_prefill() {
    return block_.min_of(batch_.requests, batch_.requests,
                         [&](int32_t b) { return is_prefill(b) ? b : batch_.requests; });
  }

  LANTERN_BLOCK_CODE void counts() {
    const int32_t prefills = block_.sum_of(batch_.requests, [&](int32_t b) { return is_prefill(b) ? 1 : 0; });
    const int32_t standing = block_.sum_of(batch_.requests, [&](int32_t b) { return is_standing(b) ? 1 : 0; });
    const int32_t prefill_tokens =
        block_.sum_of(batch_.requests, [&](int32_t b) { return is_prefill(b) ? p_.query_len[b] : 0; });
    const int32_t tokens = block_.sum_of(batch_.requests, [&](int32_t b) { return p_.query_len[b]; });
    const int32_t first = first_prefill();
    const bool pad = batch_.usable && block_.any(batch_.requests, [&](int32_t b) {
      return p_.prefilling[b] == 0 && p_.query_len[b] != p_.bucket.query_width;
    });
    block_.each(1, [&](int32_t) {
      p_.counts[kNumDecodes] = standing - prefills;
      p_.counts[kNumPrefills] = prefills;
      p_.counts[kNumDecodeTokens] = tokens - prefill_tokens;
      p_.counts[kNumPrefillTokens] = prefill_tokens;
      p_.counts[kPrefillRequestBegin] = first;
      p_.counts[kPrefillTokenBegin] = first < batch_.requests ? p_.query_start[first] : batch_.tokens;
      p_.counts[kRequiresPadding] = pad ? 1 : 0;
      if (!p_.prefill_chunks) p_.counts[kNumPrefillChunks] = 0;
    });
  }

  LANTERN_BLOCK_CODE void write_error(int32_t index, int32_t request, PlanFault fault) {
    block_.each(1, [&](int32_t) {
      p_.errors[2 * int64_t{index}] = request;
      p_.errors[2 * int64_t{index} + 1] = static_cast<int32_t>(fault);
    });
  }

  // Faults of the batch first, at most kMostBatchErrors, then those of requests, moved forward from where the first
  // kernel left them. A piece is read whole before any of it is written, and nothing is written beyond what is read.
  LANTERN_BLOCK_CODE void errors() {
    int32_t count = 0;
    if (p_.num_requests[0] != batch_.requests) write_error(count++, -1, PlanFault::kNumRequests);
    if (p_.num_tokens[0] != batch_.tokens) write_error(count++, -1, PlanFault::kNumTokens);
    if (!batch_.usable) write_error(count++, -1, PlanFault::kCompressRatio);
    if (batch_.usable && batch_.requests == 0) {  // no row is there to be at fault
      if (p_.query_start_loc[0] != 0) {
        write_error(count++, -1, PlanFault::kQueryStart);
      } else if (batch_.tokens != 0) {
        write_error(count++, -1, PlanFault::kQueryEnd);
      }
    }
    for (int32_t first = 0; first < p_.bucket.requests; first += kBlockItems) {
      const int32_t n = min_of(kBlockItems, p_.bucket.requests - first);
      block_.each(n, [&](int32_t i) {
        const int32_t code = p_.errors[2 * (int64_t{first} + i + kMostBatchErrors) + 1];
        shared_.phase[i] = code;
        shared_.sums[i] = code != 0 ? 1 : 0;
      });
      const auto found = static_cast<int32_t>(block_.scan(shared_.sums, n));
      block_.each(n, [&](int32_t i) {
        if (shared_.phase[i] == 0) return;
        const int64_t at = count + shared_.sums[i] - 1;
        p_.errors[2 * at] = first + i;
        p_.errors[2 * at + 1] = static_cast<int32_t>(shared_.phase[i]);
      });
      count += found;
    }
    block_.each(p_.bucket.requests + kMostBatchErrors - count, [&](int32_t i) {
      p_.errors[2 * (int64_t{count} + i)] = -1;
      p_.errors[2 * (int64_t{count} + i) + 1] = static_cast<int32_t>(PlanFault::kNone);
    });
    block_.store(&p_.counts[kNumErrors], count);
  }

  // Fills shared_.sums with the running sums of a piece of requests and returns their total.
  template <class Weight>
  LANTERN_BLOCK_CODE int64_t scan_piece(int32_t first, int32_t n, const Weight& weight) {
    block_.each(n, [&](int32_t i) { shared_.sums[i] = weight(first + i); });
    return block_.scan(shared_.sums, n);
  }

  // Least i of [0, n) with sum(i) > value; n when there is none.
  template <class Sum>
  LANTERN_BLOCK_CODE static int32_t first_above(int64_t value, int32_t n, const Sum& sum) {
    int32_t low = 0, high = n;
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

  template <class Schedule>
  LANTERN_BLOCK_CODE void mqa(const Schedule& schedule) {
    const int32_t requests = p_.bucket.requests;
    const auto units = [&](int32_t b) { return schedule.units(b); };
    int64_t total = 0;
    for (int32_t first = 0; first < requests; first += kBlockItems) {
      total += scan_piece(first, min_of(kBlockItems, requests - first), units);
    }
    int64_t before = 0;  // units of earlier pieces
    for (int32_t first = 0; first < requests; first += kBlockItems) {
      const int32_t n = min_of(kBlockItems, requests - first);
      const int64_t here = requests <= kBlockItems ? total : scan_piece(first, n, units);
      block_.each(p_.workers + 1, [&](int32_t s) {
        const int64_t start = schedule.start(total, s) - before;
        if (start < 0 || start >= here) return;
        const int32_t i = first_above(start, n, [&](int32_t at) { return shared_.sums[at]; });
        write_mqa_entry(schedule, s, schedule.entry(first + i, start - (i > 0 ? shared_.sums[i - 1] : 0)));
      });
      before += here;
    }
    block_.each(p_.workers + 1, [&](int32_t s) {
      if (schedule.start(total, s) >= total) write_mqa_entry(schedule, s, schedule.sentinel());
    });
  }

  // Where the walk over the line of requests stands between two pieces of them.
  struct Walk {
    int64_t payload = 0;   // of a part
    int64_t step = 0;      // g
    int64_t boundary = 0;  // of the first request that is still to come
    int64_t start = 0;     // the first part's that starts there or later
    int64_t parts = 0;     // that start before it
    int64_t shared = 0;    // requests before it in whose midst a part starts right after their boundary was passed
  };

  LANTERN_BLOCK_CODE int64_t overhead() const { return p_.mla.fixed_overhead_blocks; }
  LANTERN_BLOCK_CODE int32_t keys_of(int32_t b) const { return mla_keys(p_.seq_len[b], p_.mla.topk); }
  LANTERN_BLOCK_CODE int64_t cost_of(int32_t b) const { return mla_blocks(keys_of(b)) + overhead(); }
  LANTERN_BLOCK_CODE int32_t* tile(int64_t part) const { return p_.mla_tiles.get() + part * kMlaTileInts; }

  // value mod step for a value of (-step, step).
  LANTERN_BLOCK_CODE static int64_t wrap(int64_t value, int64_t step) { return value < 0 ? value + step : value; }
  LANTERN_BLOCK_CODE bool meets(int64_t phase, int64_t boundary_phase, int64_t step) const {
    return wrap(boundary_phase - phase, step) <= overhead();
  }

  LANTERN_BLOCK_CODE void mla() {
    const int32_t requests = batch_.requests;
    const auto cost = [&](int32_t b) { return cost_of(b); };
    int64_t total = 0;
    for (int32_t first = 0; first < requests; first += kBlockItems) {
      total += scan_piece(first, min_of(kBlockItems, requests - first), cost);
    }
    Walk walk;
    walk.step = total / p_.mla.parts + (total % p_.mla.parts != 0 ? 1 : 0);
    walk.payload = walk.step + overhead();
    block_.store(&p_.mla_num_splits[0], 0);
    for (int32_t first = 0; first < requests; first += kBlockItems) {
      const int32_t n = min_of(kBlockItems, requests - first);
      const int64_t length = requests <= kBlockItems ? total : scan_piece(first, n, cost);
      mla_piece(walk, first, n, length);
    }
    const auto splits = static_cast<int32_t>(walk.parts + walk.shared);
    block_.each(p_.bucket.requests - requests, [&](int32_t i) { p_.mla_num_splits[requests + i + 1] = splits; });
    finish_tiles(static_cast<int32_t>(walk.parts));
  }

  // Requests [first, first + n), the running sums of whose costs are in shared_.sums: num_splits, and of each part that
  // starts within them request, block and split.
  LANTERN_BLOCK_CODE void mla_piece(Walk& walk, int32_t first, int32_t n, int64_t length) {
    const int64_t step = walk.step;
    block_.each(n, [&](int32_t i) {
      shared_.boundary[i] = walk.boundary + shared_.sums[i];
      shared_.phase[i] = shared_.boundary[i] % step;
    });
    const auto follow = [&](int64_t phase, int32_t begin, int32_t end) {
      for (int32_t i = begin; i < end; ++i) {
        if (meets(phase, shared_.phase[i], step)) phase = shared_.phase[i];
      }
      return phase;
    };
    block_.each(n, [&](int32_t i) {
      shared_.leaves[i] = follow(shared_.phase[i], i + 1, min_of(n, i / kGroup * kGroup + kGroup));
    });
    int64_t phase = walk.start % step;
    for (int32_t begin = 0; begin < n; begin += kGroup) {
      block_.store(&shared_.enters[begin / kGroup], phase);
      const int32_t in_group = min_of(kGroup, n - begin);
      const int32_t i =
          block_.first_of_warp(in_group, [&](int32_t at) { return meets(phase, shared_.phase[begin + at], step); });
      if (i < in_group) phase = shared_.leaves[begin + i];
    }
    block_.barrier();

    // starts[i]: the first part's that starts at boundary i or later.
    int64_t* starts = shared_.leaves;
    block_.each(n, [&](int32_t i) {
      const int64_t after = follow(shared_.enters[i / kGroup], i / kGroup * kGroup, i + 1);
      starts[i] = shared_.boundary[i] + wrap(after - shared_.phase[i], step);
    });
    const int64_t first_boundary = walk.boundary, first_start = walk.start;
    const auto begin_of = [&](int32_t i) { return i == 0 ? first_boundary : shared_.boundary[i - 1]; };
    const auto start_of = [&](int32_t i) { return i == 0 ? first_start : starts[i - 1]; };
    // In one word, so that one scan does: parts that start within a request, and (upper half) whether the part before
    // them has taken its beginning.
    int64_t* counts = shared_.enters;
    block_.each(n, [&](int32_t i) {
      const int64_t room = shared_.boundary[i] - overhead() - start_of(i);
      const int64_t parts = room > 0 ? (room + step - 1) / step : 0;
      const int64_t begun = start_of(i) > begin_of(i) ? 1 : 0;
      counts[i] = parts + (begun << 32);
    });
    const int64_t in_piece = block_.scan(counts, n);
    const auto parts_before = [&](int32_t i) { return walk.parts + (i == 0 ? 0 : low_half(counts[i - 1])); };
    block_.each(n, [&](int32_t i) {
      const int64_t parts = walk.parts + low_half(counts[i]);
      const int64_t begun = walk.shared + (counts[i] >> 32);
      p_.mla_num_splits[first + i + 1] = static_cast<int32_t>(parts + begun);
    });
    block_.each(static_cast<int32_t>(low_half(in_piece)), [&](int32_t at) {
      const int32_t i = first_above(at, n, [&](int32_t j) { return low_half(counts[j]); });
      const int64_t part = walk.parts + at;
      const int64_t nth = part - parts_before(i);
      const int64_t begun = start_of(i) > begin_of(i) ? 1 : 0;
      tile(part)[0] = first + i;
      tile(part)[2] = static_cast<int32_t>(start_of(i) + nth * step - begin_of(i));
      tile(part)[4] = static_cast<int32_t>(nth + begun);
    });
    walk.parts += low_half(in_piece);
    walk.shared += in_piece >> 32;
    walk.boundary += length;
    walk.start = walk.boundary + wrap(phase - walk.boundary % step, step);
  }
  LANTERN_BLOCK_CODE static int64_t low_half(int64_t word) { return word & 0xffffffff; }

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
      const int32_t next_request = part + 1 < used ? tile(part + 1)[0] : batch_.requests;
      const int32_t next_block = part + 1 < used ? tile(part + 1)[2] : 0;
      const int32_t last = next_block > 0 ? next_request : next_request - 1;
      const int32_t last_keys = keys_of(last);
      int32_t first_is_split = t[2] > 0 ? 1 : 0;
      int32_t last_is_split = next_block > 0 ? 1 : 0;
      if (t[0] == last) first_is_split = last_is_split = first_is_split | last_is_split;
      t[1] = last;
      t[3] = next_block > 0 ? next_block : (last_keys == 0 ? 0 : mla_blocks(last_keys));
      t[5] = first_is_split;
      t[6] = last_is_split;
    });
  }

  // The rule is greedy over prefilling requests, few of which are in a batch; decodes are skipped by all threads.
  LANTERN_BLOCK_CODE void prefill_chunks() {
    const int32_t first = first_prefill();
    block_.each(1, [&](int32_t) { p_.counts[kNumPrefillChunks] = write_prefill_chunks(p_, first, batch_.requests); });
  }

  Block& block_;
  SchedulesShared& shared_;
  const StepPlanParams& p_;
  const BatchCounts batch_;
};

}  // namespace lantern::plan
