#include "attention/plan/plan_schedules.h"

#include <algorithm>

#include "attention/plan/plan_host.h"

namespace lantern::plan {
namespace {

// Starts do not decrease, so that requests are walked once.
template <class Schedule>
void write_schedule(const StepPlanParams& p, const Schedule& schedule) {
  int64_t total = 0;
  for (int32_t b = 0; b < p.bucket.requests; ++b) total += schedule.units(b);
  const MqaShare<int64_t> share(total, p.workers);
  int32_t b = 0;
  int64_t before = 0;  // units of requests before b
  for (int32_t s = 0; s <= p.workers; ++s) {
    const int64_t start = schedule.start(share, s);
    while (b < p.bucket.requests && before + schedule.units(b) <= start) before += schedule.units(b++);
    write_mqa_entry(schedule, s, b < p.bucket.requests ? schedule.entry(b, start - before) : schedule.sentinel());
  }
}

}  // namespace

void plan_schedules(const StepPlanParams& p) {
  const PlanRows rows{p};
  if (p.paged_mqa_sm90) write_schedule(p, MqaSm90{p, rows});
  if (p.paged_mqa_sm100) write_schedule(p, MqaSm100{p, rows});
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
  p.counts[kNumPrefillChunks] = write_prefill_chunks(p, 0, std::clamp(p.num_requests[0], 0, p.bucket.requests));
}

}  // namespace lantern::plan
