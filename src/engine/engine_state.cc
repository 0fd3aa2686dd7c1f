#include "engine/engine_state.h"

namespace lantern {

EngineState::EngineState(const EngineSettings& engine_settings, const HashKey& key, OutputSink* output_sink)
    : settings(engine_settings),
      hasher(key),
      pool(engine_settings.limits.num_blocks),
      index(pool, engine_settings.limits.block_size),
      sink(output_sink),
      sequences(static_cast<size_t>(engine_settings.max_queued + engine_settings.limits.max_requests)),
      requests(sequences.size()),
      waiting(static_cast<int32_t>(sequences.size())),
      deadlines(static_cast<int32_t>(sequences.size())),
      drafts(engine_settings.step_cost) {
  const auto num_slots = static_cast<size_t>(settings.limits.max_requests);
  unused.reserve(sequences.size());
  unused_requests.reserve(sequences.size());
  for (auto id = static_cast<SequenceId>(sequences.size()) - 1; id >= 0; --id) {
    unused.push_back(id);
    unused_requests.push_back(id);
  }
  running.reserve(num_slots);
  free_slots.reserve(num_slots);
  for (int32_t slot = settings.limits.max_requests - 1; slot >= 0; --slot) free_slots.push_back(slot);
}

}  // namespace lantern
