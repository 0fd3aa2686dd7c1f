#include "engine/step_batch.h"

#include <algorithm>

namespace lantern {
namespace {

size_t requests(const EngineSettings& settings) { return static_cast<size_t>(settings.limits.max_requests); }
size_t tables(const EngineSettings& settings) {
  return requests(settings) * static_cast<size_t>(settings.limits.max_blocks_per_request);
}

// FNV-1a over 64-bit words.
constexpr uint64_t kDigestSeed = 0xcbf29ce484222325u;
void add_to_digest(uint64_t& hash, uint64_t word) { hash = (hash ^ word) * 0x100000001b3u; }

}  // namespace

StepSchedule::StepSchedule(const EngineSettings& settings) {
  preempted.reserve(requests(settings));
  overtaken.reserve(kMaxPassedOver);
  admitted.reserve(requests(settings));
  hit_blocks.reserve(tables(settings));
  rows.reserve(requests(settings));
}

void StepSchedule::clear() {
  preempted.clear();
  overtaken.clear();
  admitted.clear();
  hit_blocks.clear();
  rows.clear();
  num_decodes = 0;
  num_tokens = 0;
  num_deferred = 0;
  draft_passes = 0;
  drafter_runs = true;
  drafts_may_pay = false;
}

uint64_t StepSchedule::digest() const {
  uint64_t hash = kDigestSeed;
  const auto add = [&](uint64_t word) { add_to_digest(hash, word); };
  add(step);
  for (SequenceId id : preempted) add(static_cast<uint64_t>(id));
  for (const Admission& admission : admitted) {
    add(static_cast<uint64_t>(admission.sequence) << 32 | static_cast<uint64_t>(admission.hit_blocks));
  }
  for (BlockId block : hit_blocks) add(static_cast<uint64_t>(block));
  for (const StepRow& row : rows) {
    add(static_cast<uint64_t>(row.sequence) << 32 | static_cast<uint64_t>(row.query_len));
    add(static_cast<uint64_t>(row.begin_upper) << 32 | static_cast<uint64_t>(row.num_blocks));
  }
  add(static_cast<uint64_t>(draft_passes));
  add(drafter_runs ? 1 : 0);
  return hash;
}

StepShape shape_of(const StepSchedule& schedule, const EngineSettings& settings) {
  StepShape shape;
  shape.bucket = {.tokens = schedule.num_tokens,
                  .requests = static_cast<int32_t>(schedule.rows.size()),
                  .query_width = settings.limits.max_query_len,
                  .kind = schedule.num_decodes == static_cast<int32_t>(schedule.rows.size()) ? StepKind::kDecode
                                                                                             : StepKind::kMixed};
  shape.sampling_rows =
      static_cast<int32_t>(std::ranges::count_if(schedule.rows, [](const StepRow& row) { return row.samples; }));
  shape.draft_passes = schedule.draft_passes;
  shape.drafter_runs = schedule.drafter_runs;
  return shape;
}

StepShape dummy_shape(const EngineSettings& settings) {
  StepShape shape;
  shape.bucket = {.tokens = settings.limits.max_query_len,
                  .requests = 1,
                  .query_width = settings.limits.max_query_len,
                  .kind = StepKind::kDecode};
  return shape;
}

StepShape enclosing(const StepShape& a, const StepShape& b) {
  StepShape shape;
  shape.bucket = {.tokens = std::max(a.bucket.tokens, b.bucket.tokens),
                  .requests = std::max(a.bucket.requests, b.bucket.requests),
                  .query_width = std::max(a.bucket.query_width, b.bucket.query_width),
                  .kind = std::max(a.bucket.kind, b.bucket.kind)};
  shape.sampling_rows = std::max(a.sampling_rows, b.sampling_rows);
  shape.draft_passes = std::max(a.draft_passes, b.draft_passes);
  shape.drafter_runs = a.drafter_runs || b.drafter_runs;
  return shape;
}

uint64_t StepShape::digest_after(uint64_t before) const {
  uint64_t hash = kDigestSeed;
  add_to_digest(hash, before);
  add_to_digest(hash, static_cast<uint64_t>(bucket.tokens) << 32 | static_cast<uint64_t>(bucket.requests));
  add_to_digest(hash, static_cast<uint64_t>(bucket.query_width) << 32 | static_cast<uint64_t>(bucket.kind));
  add_to_digest(hash, static_cast<uint64_t>(sampling_rows) << 32 | static_cast<uint64_t>(draft_passes));
  add_to_digest(hash, drafter_runs ? 1 : 0);
  return hash;
}

StepBatch::StepBatch(const EngineSettings& settings) {
  slot_inits.reserve(requests(settings));
  copies.reserve(requests(settings) * 2);
  table_entries.reserve(tables(settings));
  rows.reserve(requests(settings));
  query_start_loc.reserve(requests(settings) + 1);
  prompt_tokens.reserve(static_cast<size_t>(settings.limits.max_tokens));
  next_tokens.reserve(requests(settings));
  mask_words = lantern::mask_words(settings.vocab_size);
  masks.resize(requests(settings) * static_cast<size_t>(mask_words));
}

void StepBatch::clear() {
  slot_inits.clear();
  copies.clear();
  table_entries.clear();
  rows.clear();
  query_start_loc.clear();
  prompt_tokens.clear();
  next_tokens.clear();
  num_decodes = 0;
  num_decode_tokens = 0;
  num_tokens = 0;
  shape = {};
  num_masks = 0;
  logprobs = false;
  num_scored = 0;
  num_traced = 0;
}

std::span<uint32_t> StepBatch::add_mask() {
  const auto words = static_cast<size_t>(mask_words);
  return std::span(masks).subspan(static_cast<size_t>(num_masks++) * words, words);
}

void StepBatch::make_dummy(const EngineSettings& settings) {
  clear();
  num_decodes = 1;
  num_tokens = num_decode_tokens = settings.limits.max_query_len;
  rows.push_back({.slot = dummy_slot(settings.limits), .query_len = num_tokens});
  query_start_loc.assign({0, num_tokens});
  shape = dummy_shape(settings);
}

StepResults::StepResults(const EngineSettings& settings)
    : max_query_len(settings.limits.max_query_len),
      tokens(static_cast<size_t>(settings.limits.max_sample_rows())),
      num_tokens(requests(settings)),
      status(requests(settings)),
      traced_record_words(settings.traced_record_words()),
      traced(static_cast<size_t>(settings.traced_words())) {
  if (settings.max_logprobs < 0) return;
  logprobs.width = prompt_logprobs.width = settings.max_logprobs;
  logprobs.resize(tokens.size());
  prompt_logprobs.resize(static_cast<size_t>(settings.limits.max_tokens));
}

}  // namespace lantern
