// The schedules in terms of planned rows: what a request weighs and how an entry is written. The host kernel walks
// them, the CUDA kernel searches them.
#pragma once

#include <cstdint>

#include "attention/plan/plan_schedule_math.h"
#include "attention/plan/step_plan.h"

namespace lantern::plan {

// The requests as planned, or as the raw inputs have them, which is the same where no row is at fault. Raw lengths are
// held within the limits, so that anything can be computed of them.
struct PlanRows {
  const StepPlanParams& p;
  bool planned = true;
  int32_t num_requests = 0;  // of the raw inputs, clamped to the bucket

  LANTERN_HOST_DEVICE int32_t query_start(int32_t b) const { return planned ? p.query_start[b] : p.query_start_loc[b]; }
  LANTERN_HOST_DEVICE int32_t query_len(int32_t b) const { return planned ? p.query_len[b] : raw_query_len(b); }
  LANTERN_HOST_DEVICE int32_t seq_len(int32_t b) const {
    return planned ? p.seq_len[b] : max_of(0, min_of(raw_seq_len(b), p.max_model_len));
  }
  LANTERN_HOST_DEVICE int32_t raw_query_len(int32_t b) const {
    return b < num_requests ? p.query_start_loc[b + 1] - p.query_start_loc[b] : 0;
  }
  LANTERN_HOST_DEVICE int32_t raw_seq_len(int32_t b) const { return b < num_requests ? p.seq_lens[b] : 0; }
};

// Where a worker starts: a row of the view, and a split of its keys.
struct MqaEntry {
  int64_t row;
  int32_t split;
};

// A schedule gives each request a number of units, units in order to the workers, and the worker's first unit a name.

// Over the per-request view, a unit being an atom of rows and a split of keys.
struct MqaSm90 {
  const StepPlanParams& p;
  const PlanRows& rows;

  LANTERN_HOST_DEVICE int32_t* out() const { return p.paged_mqa_sm90.get(); }
  LANTERN_HOST_DEVICE int32_t atoms() const { return mqa_atoms(p.bucket.query_width); }
  // The public kernel counts the keys of the last column.
  LANTERN_HOST_DEVICE int32_t segments(int32_t b) const {
    const int32_t width = p.bucket.query_width;
    const int32_t query_len = rows.query_len(b), seq_len = rows.seq_len(b);
    const int32_t last_column = query_len >= width ? context_len(seq_len, query_len, width - 1) : seq_len;
    return ceil_div(last_column, kMqaSplitKeys);
  }
  LANTERN_HOST_DEVICE int64_t units(int32_t b) const { return int64_t{segments(b)} * atoms(); }
  template <class Int>
  LANTERN_HOST_DEVICE Int start(const MqaShare<Int>& share, int32_t s) const {
    return mqa_start_sm90(share, p.workers, s);
  }
  template <class Int>
  LANTERN_HOST_DEVICE MqaEntry entry(int32_t b, Int unit) const {
    const int32_t of_atom = segments(b);
    const Int atom = unit / of_atom;
    return {int64_t{b} * atoms() + atom, static_cast<int32_t>(unit - atom * of_atom)};
  }
  LANTERN_HOST_DEVICE MqaEntry sentinel() const { return {int64_t{p.bucket.requests} * atoms(), 0}; }
};

// Over the flattened view: rows with the same id form a request whose length is that of its last row; a unit is one
// row's share of a split.
struct MqaSm100 {
  const StepPlanParams& p;
  const PlanRows& rows;

  LANTERN_HOST_DEVICE int32_t* out() const { return p.paged_mqa_sm100.get(); }
  LANTERN_HOST_DEVICE int64_t units(int32_t b) const {
    return int64_t{ceil_div(rows.seq_len(b), kMqaSplitKeys)} * rows.query_len(b);
  }
  template <class Int>
  LANTERN_HOST_DEVICE Int start(const MqaShare<Int>& share, int32_t s) const {
    return mqa_start_sm100(share, s);
  }
  template <class Int>
  LANTERN_HOST_DEVICE MqaEntry entry(int32_t b, Int unit) const {
    return {rows.query_start(b), static_cast<int32_t>(unit / rows.query_len(b))};
  }
  LANTERN_HOST_DEVICE MqaEntry sentinel() const { return {p.bucket.tokens, 0}; }
};

template <class Schedule>
LANTERN_HOST_DEVICE void write_mqa_entry(const Schedule& schedule, int32_t worker, const MqaEntry& entry) {
  schedule.out()[2 * int64_t{worker}] = static_cast<int32_t>(entry.row);
  schedule.out()[2 * int64_t{worker} + 1] = entry.split;
}

// Prefills of the requests [first, requests) in chunks that fit both budgets; no prefill stands before `first`. Writes
// the chunks and returns their number.
LANTERN_HOST_DEVICE inline int32_t write_prefill_chunks(const StepPlanParams& p, int32_t first, int32_t requests) {
  int32_t count = 0;
  const int64_t most_scores = p.prefill.logits_bytes / 4;
  const auto is_prefill = [&p](int32_t b) { return p.prefilling[b] != 0 && (p.query_len[b] > 0 || p.seq_len[b] > 0); };
  for (int32_t b = first; b < requests;) {
    if (!is_prefill(b)) {
      ++b;
      continue;
    }
    // As many requests as fit; one alone goes in any case, cut along its queries.
    int32_t end = b;
    int64_t queries = 0, keys = 0;
    while (end < requests && is_prefill(end)) {
      const int64_t more_queries = queries + p.query_len[end];
      const int64_t more_keys = keys + p.seq_len[end] / p.groups[0].group.compress_ratio;
      if (end > b && (more_keys > p.prefill.workspace_tokens || more_queries * more_keys > most_scores)) break;
      queries = more_queries;
      keys = more_keys;
      ++end;
    }
    int64_t most = queries < 1 ? 1 : queries;
    if (keys > 0) {
      most = most_scores / keys;
      most = most < 1 ? 1 : (most > INT32_MAX ? INT32_MAX : most);
    }
    for (int64_t from = 0; from < queries; from += most) {
      const int64_t to = from + most < queries ? from + most : queries;
      int32_t* chunk = p.prefill_chunks.get() + int64_t{count++} * kPrefillChunkInts;
      chunk[0] = b;
      chunk[1] = end;
      chunk[2] = static_cast<int32_t>(p.query_start[b] + from);
      chunk[3] = static_cast<int32_t>(p.query_start[b] + to);
    }
    b = end;
  }
  return count;
}

}  // namespace lantern::plan
