#include "engine/step_batch.h"

namespace lantern {
namespace {

size_t requests(const EngineSettings& settings) { return static_cast<size_t>(settings.limits.max_requests); }
size_t tables(const EngineSettings& settings) {
  return requests(settings) * static_cast<size_t>(settings.limits.max_blocks_per_request);
}

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
}

uint64_t StepSchedule::digest() const {
  uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a over 64-bit words
  const auto add = [&](uint64_t word) { hash = (hash ^ word) * 0x100000001b3u; };
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
  draft_passes = 0;
}

StepResults::StepResults(const EngineSettings& settings)
    : max_query_len(settings.limits.max_query_len),
      tokens(static_cast<size_t>(settings.limits.max_sample_rows())),
      num_tokens(requests(settings)),
      status(requests(settings)) {}

}  // namespace lantern
