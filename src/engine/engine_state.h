// Everything the scheduler knows. Plain data with room for the most that settings allow; CONTRACT.md has its
// invariants.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/block_pool.h"
#include "engine/draft_control.h"
#include "engine/engine_settings.h"
#include "engine/executor.h"
#include "engine/prefix_index.h"
#include "engine/sequence.h"
#include "engine/service_queue.h"

namespace lantern {

// A submitted request whose choices have not all gone.
struct RequestRecord {
  uint32_t generation = 0;  // half of its id: an id outlives its record without harm
  SequenceId first_choice = -1;
  EngineTime deadline = kNever;
};

struct EngineStats {
  int64_t submitted = 0;  // choices, as all below
  int64_t ended = 0;
  int64_t preemptions = 0;
  int64_t overtakes = 0;
  int64_t forks = 0;
  int64_t prompt_tokens = 0;         // of admissions, those after a preemption included
  int64_t prompt_tokens_cached = 0;  // of these, found by the prefix index
  int64_t tokens_run = 0;
  int64_t dummy_steps = 0;  // run for the sake of other ranks (data_parallel.h)
  int64_t tokens_out = 0;
  int64_t steps_replayed = 0;  // from a graph
  int64_t blocks_flushed = 0;  // that the prefix index was told to forget
  // By place in a draft, up to kCountedDrafts: drafts that were checked (all before them were right, and no end came
  // first), and those that were right.
  static constexpr int32_t kCountedDrafts = 16;
  std::array<int64_t, kCountedDrafts> drafts_checked{};
  std::array<int64_t, kCountedDrafts> drafts_accepted{};
  // Decoding rows by the length of the draft that they checked; longer ones count as the last.
  std::array<int64_t, kCountedDrafts + 1> draft_lengths{};
};

struct EngineState {
  // `sink` may be null. Precondition: the settings are checked.
  EngineState(const EngineSettings& settings, const HashKey& key, OutputSink* sink);

  EngineSettings settings;
  BlockHasher hasher;
  BlockPool pool;
  PrefixIndex index;
  OutputSink* sink;

  std::vector<Sequence> sequences;       // by SequenceId
  std::vector<SequenceId> unused;        // sequences of phase kUnused
  std::vector<RequestRecord> requests;   // by record
  std::vector<int32_t> unused_requests;  // records
  ServiceQueue<ServiceKey> waiting;      // phase kWaiting
  ServiceQueue<EngineTime> deadlines;    // records of requests that have one
  std::vector<SequenceId> running;       // phase kRunning, by key
  std::vector<int32_t> free_slots;       // the last is given next
  int32_t num_draining = 0;              // sequences of phase kPreempting or kRetiring
  int32_t num_queued = 0;                // sequences that have no slot: kWaiting, kAwaitingPrompt
  int32_t slots_promised = 0;            // of the free ones, to choices that await a running prompt
  uint64_t next_order = 0;
  uint64_t next_step = 0;
  DraftControl drafts;
  EngineStats stats;

  Sequence& at(SequenceId id) { return sequences[static_cast<size_t>(id)]; }
  const Sequence& at(SequenceId id) const { return sequences[static_cast<size_t>(id)]; }
  int32_t num_free_slots() const { return static_cast<int32_t>(free_slots.size()) - slots_promised; }
  bool idle() const { return running.empty() && num_queued == 0 && num_draining == 0; }
};

}  // namespace lantern
