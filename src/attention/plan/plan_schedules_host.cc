#include <algorithm>

#include "attention/plan/plan_host.h"
#include "attention/plan/plan_schedule_math.h"

namespace lantern::plan {
namespace {

// A worker's unit of a request, as the entry that the kernel reads.
struct Entry {
  int64_t row;
  int64_t split;
};

// Both forms: units_of(b) of every request, start_of(total, s) of every worker; entry_of(b, unit) names the unit of a
// request, the sentinel is (end_row, 0). Starts do not decrease, so that requests are walked once.
template <class UnitsOf, class StartOf, class EntryOf>
void schedule(const StepPlanParams& p, const DevPtr<int32_t>& out, const UnitsOf& units_of, const StartOf& start_of,
              const EntryOf& entry_of, int64_t end_row) {
  int64_t total = 0;
  for (int32_t b = 0; b < p.bucket.requests; ++b) total += units_of(b);
  int32_t b = 0;
  int64_t before = 0;  // units of requests before b
  for (int32_t s = 0; s <= p.workers; ++s) {
    const int64_t start = start_of(total, s);
    while (b < p.bucket.requests && before + units_of(b) <= start) before += units_of(b++);
    const Entry entry = b < p.bucket.requests ? entry_of(b, start - before) : Entry{end_row, 0};
    out[2 * int64_t{s}] = static_cast<int32_t>(entry.row);
    out[2 * int64_t{s} + 1] = static_cast<int32_t>(entry.split);
  }
}

void schedule_sm90(const StepPlanParams& p) {
  const int32_t width = p.bucket.query_width;
  const int32_t atoms = mqa_atoms(width);
  const auto segments = [&](int32_t b) {
    const int32_t last_column =
        p.query_len[b] >= width ? context_len(p.seq_len[b], p.query_len[b], width - 1) : p.seq_len[b];
    return ceil_div(last_column, kMqaSplitKeys);
  };
  schedule(
      p, p.paged_mqa_sm90, [&](int32_t b) { return int64_t{segments(b)} * atoms; },
      [&](int64_t total, int32_t s) { return mqa_start_sm90(total, p.workers, s); },
      [&](int32_t b, int64_t unit) { return Entry{int64_t{b} * atoms + unit / segments(b), unit % segments(b)}; },
      int64_t{p.bucket.requests} * atoms);
}

// Rows with the same id form a request whose length is that of its last row; a unit is one row's share of a split.
void schedule_sm100(const StepPlanParams& p) {
  schedule(
      p, p.paged_mqa_sm100, [&](int32_t b) { return int64_t{ceil_div(p.seq_len[b], kMqaSplitKeys)} * p.query_len[b]; },
      [&](int64_t total, int32_t s) { return mqa_start_sm100(total, p.workers, s); },
      [&](int32_t b, int64_t unit) { return Entry{p.query_start[b], unit / p.query_len[b]}; }, p.bucket.tokens);
}

}  // namespace

void plan_schedules(const StepPlanParams& p) {
  if (p.paged_mqa_sm90) schedule_sm90(p);
  if (p.paged_mqa_sm100) schedule_sm100(p);
  if (p.mla_tiles && p.mla_num_splits) {
    mla_tiles(
        std::clamp(p.num_requests[0], 0, p.bucket.requests), p.bucket.requests, p.mla.parts,
        p.mla.fixed_overhead_blocks, [&](int32_t b) { return mla_keys(p.seq_len[b], p.mla.topk); },
        [&](int32_t part) { return p.mla_tiles.get() + int64_t{part} * kMlaTileInts; },
        [&](int32_t b) -> int32_t& { return p.mla_num_splits[b]; });
  }
}

void plan_prefill_chunks(const StepPlanParams& p) {
  if (!p.prefill_chunks) return;
  std::fill_n(p.prefill_chunks.get(), int64_t{p.bucket.tokens} * kPrefillChunkInts, 0);
  int32_t count = 0;
  const auto emit = [&](int32_t first_request, int32_t end_request, int32_t first_token, int32_t end_token) {
    const int32_t chunk[kPrefillChunkInts] = {first_request, end_request, first_token, end_token};
    std::copy_n(chunk, kPrefillChunkInts, p.prefill_chunks.get() + int64_t{count++} * kPrefillChunkInts);
  };
  const int32_t requests = std::clamp(p.num_requests[0], 0, p.bucket.requests);
  const int64_t most_scores = p.prefill.logits_bytes / 4;
  const auto keys_of = [&](int32_t b) { return int64_t{p.seq_len[b] / p.groups[0].group.compress_ratio}; };
  const auto is_prefill = [&](int32_t b) { return p.prefilling[b] != 0 && (p.query_len[b] > 0 || p.seq_len[b] > 0); };
  for (int32_t b = 0; b < requests;) {
    if (!is_prefill(b)) {
      ++b;
      continue;
    }
    // As many requests as fit both budgets; one alone goes in any case, cut along its queries.
    int32_t end = b;
    int64_t queries = 0, keys = 0;
    while (end < requests && is_prefill(end)) {
      const int64_t more_queries = queries + p.query_len[end];
      const int64_t more_keys = keys + keys_of(end);
      if (end > b && (more_keys > p.prefill.workspace_tokens || more_queries * more_keys > most_scores)) break;
      queries = more_queries;
      keys = more_keys;
      ++end;
    }
    const int32_t first_token = p.query_start[b];
    const auto all = static_cast<int32_t>(queries);
    const auto most = static_cast<int32_t>(keys == 0 ? std::max<int64_t>(1, queries)
                                                     : std::clamp<int64_t>(most_scores / keys, 1, INT32_MAX));
    for (int64_t from = 0; from < all; from += most) {
      const auto begin = static_cast<int32_t>(from);
      emit(b, end, first_token + begin, first_token + begin + std::min(most, all - begin));
    }
    b = end;
  }
  p.counts[kNumPrefillChunks] = count;
}

}  // namespace lantern::plan
