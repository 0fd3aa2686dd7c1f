// The schedules in terms of planned rows: what a request weighs and how an entry is written. The host kernel walks
// them, the CUDA kernel searches them.
#pragma once

#include <cstdint>

#include "attention/plan/plan_schedule_math.h"
#include "attention/plan/step_plan.h"

namespace lantern::plan {

// Where a worker starts: a row of the view, and a split of its keys.
struct MqaEntry {
  int64_t row;
  int64_t split;
};

// A schedule gives each request a number of units, units in order to the workers, and the worker's first unit a name.

// Over the per-request view, a unit being an atom of rows and a split of keys.
struct MqaSm90 {
  const StepPlanParams& p;

  LANTERN_HOST_DEVICE int32_t* out() const { return p.paged_mqa_sm90.get(); }
  LANTERN_HOST_DEVICE int32_t atoms() const { return mqa_atoms(p.bucket.query_width); }
  // The public kernel counts the keys of the last column.
  LANTERN_HOST_DEVICE int32_t segments(int32_t b) const {
    const int32_t width = p.bucket.query_width;
    const int32_t last_column =
        p.query_len[b] >= width ? context_len(p.seq_len[b], p.query_len[b], width - 1) : p.seq_len[b];
    return ceil_div(last_column, kMqaSplitKeys);
  }
  LANTERN_HOST_DEVICE int64_t units(int32_t b) const { return int64_t{segments(b)} * atoms(); }
  LANTERN_HOST_DEVICE int64_t start(int64_t total, int32_t s) const { return mqa_start_sm90(total, p.workers, s); }
  LANTERN_HOST_DEVICE MqaEntry entry(int32_t b, int64_t unit) const {
    return {int64_t{b} * atoms() + unit / segments(b), unit % segments(b)};
  }
  LANTERN_HOST_DEVICE MqaEntry sentinel() const { return {int64_t{p.bucket.requests} * atoms(), 0}; }
};

// Over the flattened view: rows with the same id form a request whose length is that of its last row; a unit is one
// row's share of a split.
struct MqaSm100 {
  const StepPlanParams& p;

  LANTERN_HOST_DEVICE int32_t* out() const { return p.paged_mqa_sm100.get(); }
  LANTERN_HOST_DEVICE int64_t units(int32_t b) const {
    return int64_t{ceil_div(p.seq_len[b], kMqaSplitKeys)} * p.query_len[b];
  }
  LANTERN_HOST_DEVICE int64_t start(int64_t total, int32_t s) const { return mqa_start_sm100(total, p.workers, s); }
  LANTERN_HOST_DEVICE MqaEntry entry(int32_t b, int64_t unit) const {
    return {p.query_start[b], unit / p.query_len[b]};
  }
  LANTERN_HOST_DEVICE MqaEntry sentinel() const { return {p.bucket.tokens, 0}; }
};

template <class Schedule>
LANTERN_HOST_DEVICE void write_mqa_entry(const Schedule& schedule, int32_t worker, const MqaEntry& entry) {
  schedule.out()[2 * int64_t{worker}] = static_cast<int32_t>(entry.row);
  schedule.out()[2 * int64_t{worker} + 1] = static_cast<int32_t>(entry.split);
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
