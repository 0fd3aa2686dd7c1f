#include "engine/invariants.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <vector>

// Returns what is wrong, with the number of the rule, unless the condition holds.
#define REQUIRE_THAT(condition, ...)                   \
  do {                                                 \
    if (!(condition)) return fmt::format(__VA_ARGS__); \
  } while (false)

#define RETURN_IF_VIOLATED(expr)                \
  do {                                          \
    if (Violation found = (expr)) return found; \
  } while (false)

namespace lantern {
namespace {

Violation check_blocks(const EngineCore& engine, std::vector<int32_t>& leases) {
  const EngineState& state = engine.state();
  const BlockPool& pool = state.pool;
  leases.assign(static_cast<size_t>(pool.num_blocks()), 0);
  for (const Sequence& sequence : state.sequences) {
    for (const BlockLease& lease : sequence.blocks) {
      REQUIRE_THAT(lease.id() > kNullBlock && lease.id() < pool.num_blocks(), "B1: a table holds block {}", lease.id());
      ++leases[static_cast<size_t>(lease.id())];
    }
  }
  for (int32_t i = 0; i < engine.steps_in_flight(); ++i) {
    for (const BlockCopy& copy : engine.in_flight(i).batch().copies) ++leases[static_cast<size_t>(copy.source)];
  }

  int32_t num_leased = 0;
  int32_t num_cached = 0;
  int32_t num_indexed = 0;
  for (BlockId block = 1; block < pool.num_blocks(); ++block) {
    const int32_t refs = pool.ref_count(block);
    REQUIRE_THAT(refs == leases[static_cast<size_t>(block)], "B2: block {} has {} references and {} leases", block,
                 refs, leases[static_cast<size_t>(block)]);
    num_leased += refs > 0 ? 1 : 0;
    num_cached += pool.state(block) == BlockState::kCached ? 1 : 0;
    if (!pool.indexed(block)) continue;
    ++num_indexed;
    REQUIRE_THAT(state.index.find(state.index.hash_of(block)) == block, "X1: block {} is not found by its hash", block);
  }
  REQUIRE_THAT(num_leased == pool.num_leased() && num_cached == pool.num_cached() &&
                   num_leased + num_cached + pool.num_free() == pool.num_usable(),
               "B1: {} leased, {} cached and {} free blocks of {}", num_leased, num_cached, pool.num_free(),
               pool.num_usable());
  REQUIRE_THAT(num_indexed == state.index.size(), "X1: {} blocks are indexed and {} entries exist", num_indexed,
               state.index.size());
  int32_t in_order = 0;
  for (BlockId block = pool.next_cached(kNullBlock); block != kNullBlock; block = pool.next_cached(block)) {
    REQUIRE_THAT(pool.state(block) == BlockState::kCached && ++in_order <= num_cached,
                 "X2: block {} is in the list of cached blocks", block);
  }
  REQUIRE_THAT(in_order == num_cached, "X2: {} of {} cached blocks are in the list", in_order, num_cached);
  return std::nullopt;
}

Violation check_table(const EngineState& state, SequenceId id) {
  const Sequence& sequence = state.at(id);
  const int32_t size = state.settings.limits.block_size;
  for (int32_t i = 0; i < sequence.num_blocks(); ++i) {
    const BlockId block = sequence.blocks[static_cast<size_t>(i)].id();
    for (int32_t j = 0; j < i; ++j) {
      REQUIRE_THAT(sequence.blocks[static_cast<size_t>(j)].id() != block, "B5: sequence {} has block {} twice", id,
                   block);
    }
    if (!state.pool.indexed(block)) continue;
    REQUIRE_THAT(i < sequence.num_published, "X3: block {} of sequence {} is published before its tokens are accepted",
                 i, id);
    const auto at = static_cast<size_t>(i);
    const BlockHash& parent = i == 0 ? sequence.root : sequence.chain[at - 1];
    REQUIRE_THAT(state.index.holds(
                     block, parent, sequence.chain[at],
                     std::span(sequence.tokens).subspan(at * static_cast<size_t>(size), static_cast<size_t>(size))),
                 "X3: block {} of sequence {} is published with other contents", i, id);
  }
  return std::nullopt;
}

Violation check_phase(const EngineState& state, SequenceId id) {
  const Sequence& sequence = state.at(id);
  const bool has_slot = sequence.slot >= 0;
  switch (sequence.phase) {
    case SequencePhase::kUnused: REQUIRE_THAT(!has_slot, "S1: an unused sequence has slot {}", sequence.slot); break;
    case SequencePhase::kAwaitingPrompt:
    case SequencePhase::kWaiting:
      REQUIRE_THAT(!has_slot && sequence.steps_in_flight == 0, "S1: sequence {} waits with a slot or in a step", id);
      break;
    case SequencePhase::kRunning: REQUIRE_THAT(has_slot, "S1: sequence {} runs without a slot", id); break;
    case SequencePhase::kPreempting:
    case SequencePhase::kRetiring:
      REQUIRE_THAT(has_slot && sequence.steps_in_flight > 0, "S7: sequence {} drains without a step in flight", id);
      break;
  }
  REQUIRE_THAT(state.waiting.contains(id) == (sequence.phase == SequencePhase::kWaiting),
               "S1: sequence {} is in phase {} and its place in the queue says otherwise", id,
               static_cast<int>(sequence.phase));
  REQUIRE_THAT(has_slot || sequence.blocks.empty(), "S6: sequence {} holds {} blocks without a slot", id,
               sequence.num_blocks());
  REQUIRE_THAT((sequence.phase == SequencePhase::kRetiring) == (sequence.end_reason != EndReason::kNone),
               "S7: sequence {} ended with reason {} and is in phase {}", id, to_string(sequence.end_reason),
               static_cast<int>(sequence.phase));
  return std::nullopt;
}

Violation check_progress(const EngineState& state, SequenceId id) {
  const Sequence& sequence = state.at(id);
  const EngineSettings& settings = state.settings;
  REQUIRE_THAT(sequence.num_published * settings.limits.block_size <= sequence.num_computed,
               "S2: sequence {} published {} blocks with {} tokens computed", id, sequence.num_published,
               sequence.num_computed);
  REQUIRE_THAT(sequence.num_computed <= sequence.num_tokens(), "S2: sequence {} computed {} of {} tokens", id,
               sequence.num_computed, sequence.num_tokens());
  REQUIRE_THAT(sequence.num_tokens() <= sequence.max_len, "S4: sequence {} has {} tokens of {}", id,
               sequence.num_tokens(), sequence.max_len);
  const int32_t most_preemptions = std::max(settings.max_preemptions, sequence.choice > 0 ? 1 : 0);
  REQUIRE_THAT(sequence.num_preemptions <= most_preemptions, "S5: sequence {} was preempted {} times", id,
               sequence.num_preemptions);
  REQUIRE_THAT(sequence.num_overtakes <= settings.max_overtakes, "F2: sequence {} was passed {} times", id,
               sequence.num_overtakes);
  if (sequence.phase != SequencePhase::kRunning) return std::nullopt;
  REQUIRE_THAT(sequence.num_computed <= std::max(sequence.next_upper, sequence.write_from),
               "S2: sequence {} computed {} tokens and handed out {}", id, sequence.num_computed, sequence.next_upper);
  REQUIRE_THAT(sequence.next_upper <= sequence.max_len, "S4: sequence {} runs up to {} of {}", id, sequence.next_upper,
               sequence.max_len);
  REQUIRE_THAT(!sequence.fully_reserved || sequence.num_blocks() == settings.blocks_for(sequence.max_len),
               "S5: sequence {} is to have all of its blocks and has {}", id, sequence.num_blocks());
  return std::nullopt;
}

// Sequences that have the block in their table. Steps in flight lease the sources of their copies too.
int64_t num_tables_with(const EngineState& state, BlockId block) {
  return std::ranges::count_if(state.sequences, [&](const Sequence& sequence) {
    return std::ranges::any_of(sequence.blocks, [&](const BlockLease& lease) { return lease.id() == block; });
  });
}

Violation check_in_flight(const EngineCore& engine, SequenceId id) {
  const EngineState& state = engine.state();
  const Sequence& sequence = state.at(id);
  const EngineSettings& settings = state.settings;
  int32_t steps = 0;
  int32_t samples = 0;
  int32_t tokens = 0;
  for (int32_t i = 0; i < engine.steps_in_flight(); ++i) {
    for (const StepRow& row : engine.in_flight(i).schedule().rows) {
      if (row.sequence != id) continue;
      ++steps;
      samples += row.samples ? 1 : 0;
      tokens += row.query_len;
      REQUIRE_THAT(row.slot == sequence.slot, "S7: sequence {} left slot {} with a step in flight", id, row.slot);
      REQUIRE_THAT(row.seq_len_upper() <= sequence.max_len, "S4: a row of sequence {} reaches {} of {}", id,
                   row.seq_len_upper(), sequence.max_len);
      const int32_t covered =
          settings.blocks_for(std::min(row.seq_len_upper() + 2 * settings.limits.max_query_len, sequence.max_len));
      REQUIRE_THAT(sequence.num_blocks() >= covered, "B4: sequence {} has {} blocks and a row may need {}", id,
                   sequence.num_blocks(), covered);
    }
  }
  REQUIRE_THAT(steps == sequence.steps_in_flight && samples == sequence.samples_in_flight,
               "S3: sequence {} counts {} steps and {} samples in flight; they are {} and {}", id,
               sequence.steps_in_flight, sequence.samples_in_flight, steps, samples);
  if (sequence.phase == SequencePhase::kRunning && sequence.prompt_submitted() && samples == steps &&
      sequence.num_tokens() > sequence.num_prefill) {
    REQUIRE_THAT(sequence.next_upper == sequence.num_tokens() - 1 + tokens,
                 "S3: sequence {} has {} tokens, {} more in flight, and runs up to {}", id, sequence.num_tokens(),
                 tokens, sequence.next_upper);
  }
  for (int32_t i = sequence.write_lower() / settings.limits.block_size; i < sequence.num_blocks(); ++i) {
    const BlockId block = sequence.blocks[static_cast<size_t>(i)].id();
    REQUIRE_THAT(i < sequence.sole_from || state.pool.ref_count(block) == 1 || num_tables_with(state, block) == 1,
                 "B3: sequence {} shares block {} and takes it for its own", id, block);
  }
  for (int32_t i = sequence.write_lower() / settings.limits.block_size; steps > 0 && i < sequence.num_blocks(); ++i) {
    const BlockId block = sequence.blocks[static_cast<size_t>(i)].id();
    const bool whole_block = i * settings.limits.block_size >= sequence.prompt_len;
    REQUIRE_THAT(!state.pool.indexed(block), "B3: sequence {} may write block {}, which is published", id, block);
    REQUIRE_THAT(!whole_block || state.pool.ref_count(block) == 1,
                 "B3: sequence {} may write block {}, which is shared", id, block);
  }
  return std::nullopt;
}

Violation check_places(const EngineState& state) {
  std::vector<bool> slot_used(static_cast<size_t>(state.settings.limits.max_requests));
  int32_t queued = 0;
  int32_t running = 0;
  int32_t draining = 0;
  int32_t promised = 0;
  for (const Sequence& sequence : state.sequences) {
    if (sequence.slot >= 0) {
      REQUIRE_THAT(!slot_used[static_cast<size_t>(sequence.slot)], "S6: slot {} is used twice", sequence.slot);
      slot_used[static_cast<size_t>(sequence.slot)] = true;
    }
    switch (sequence.phase) {
      case SequencePhase::kUnused: break;
      case SequencePhase::kAwaitingPrompt:
      case SequencePhase::kWaiting: ++queued; break;
      case SequencePhase::kRunning:
        ++running;
        promised += sequence.forks_pending;
        break;
      case SequencePhase::kPreempting:
      case SequencePhase::kRetiring: ++draining; break;
    }
  }
  for (const int32_t slot : state.free_slots) {
    REQUIRE_THAT(!slot_used[static_cast<size_t>(slot)], "S6: slot {} is free and used", slot);
    slot_used[static_cast<size_t>(slot)] = true;
  }
  REQUIRE_THAT(std::ranges::all_of(slot_used, [](bool used) { return used; }), "S6: a slot is lost");
  REQUIRE_THAT(queued == state.num_queued && draining == state.num_draining && promised == state.slots_promised &&
                   running == static_cast<int32_t>(state.running.size()),
               "S1: {} queued, {} running, {} draining sequences and {} promised slots; counted {}, {}, {} and {}",
               state.num_queued, state.running.size(), state.num_draining, state.slots_promised, queued, running,
               draining, promised);
  REQUIRE_THAT(state.num_free_slots() >= 0, "S6: {} slots are promised and {} are free", state.slots_promised,
               state.free_slots.size());
  for (size_t i = 0; i < state.running.size(); ++i) {
    REQUIRE_THAT(state.at(state.running[i]).phase == SequencePhase::kRunning, "S1: sequence {} is listed as running",
                 state.running[i]);
    REQUIRE_THAT(i == 0 || state.at(state.running[i - 1]).key < state.at(state.running[i]).key,
                 "S1: sequence {} runs out of order", state.running[i]);
  }
  REQUIRE_THAT(state.waiting.consistent() && state.deadlines.consistent(), "S1: a queue is out of order");
  return std::nullopt;
}

Violation check_row(const EngineState& state, const StepSchedule& schedule, const StepBudget& budget,
                    const StepRow& row) {
  const Sequence& sequence = state.at(row.sequence);
  const auto admission = std::ranges::find(schedule.admitted, row.sequence, &Admission::sequence);
  const bool admitted = admission != schedule.admitted.end();
  REQUIRE_THAT(sequence.phase == (admitted ? SequencePhase::kWaiting : SequencePhase::kRunning),
               "S7: a row is planned for sequence {} in phase {}", row.sequence, static_cast<int>(sequence.phase));
  REQUIRE_THAT(std::ranges::find(schedule.preempted, row.sequence) == schedule.preempted.end(),
               "S7: sequence {} is preempted and has a row", row.sequence);
  REQUIRE_THAT(row.query_len >= 1 && row.seq_len_upper() <= sequence.max_len, "S4: a row of {} tokens up to {}",
               row.query_len, row.seq_len_upper());
  REQUIRE_THAT(row.next_drafts <= budget.max_drafts, "P2: {} drafts are to be made", row.next_drafts);
  REQUIRE_THAT(row.next_drafts <= schedule.draft_passes && (schedule.draft_passes == 0 || schedule.drafter_runs),
               "P6: {} drafts are to be made in {} passes", row.next_drafts, schedule.draft_passes);
  if (row.prefilling) {
    const int32_t known = admitted ? sequence.num_tokens() : sequence.num_prefill;
    REQUIRE_THAT(row.seq_len_upper() <= known && row.samples == (row.seq_len_upper() == known),
                 "P2: a prefill of sequence {} runs up to {} of {} known tokens", row.sequence, row.seq_len_upper(),
                 known);
    const int32_t written = admitted ? admission->hit_blocks * state.settings.limits.block_size : sequence.write_from;
    REQUIRE_THAT(row.num_unwritten == std::max(written - row.begin_upper, 0) && row.num_unwritten <= 1,
                 "P2: {} tokens of sequence {} are run again and {} are written", row.num_unwritten, row.sequence,
                 written);
  } else {
    REQUIRE_THAT(row.num_drafts() <= std::min(sequence.drafts_ready, budget.max_drafts) && row.samples,
                 "P2: {} drafts are verified and {} are ready", row.num_drafts(), sequence.drafts_ready);
  }
  REQUIRE_THAT(!sequence.constrained() || (row.next_drafts == 0 && (row.prefilling || row.num_drafts() == 0)),
               "P8: a constrained sequence drafts");
  REQUIRE_THAT(!sequence.constrained() || !row.samples || sequence.samples_in_flight == 0,
               "P8: a constrained sequence is in a step already");
  return std::nullopt;
}

// Written out, so that an order that is wrong in the queues is not taken for the measure.
bool comes_before(const Sequence& a, const Sequence& b) {
  if (a.key.counts_as_come != b.key.counts_as_come) return a.key.counts_as_come < b.key.counts_as_come;
  return a.key.order < b.key.order;
}

Violation check_order(const EngineState& state, const StepSchedule& schedule) {
  const auto contains = [](const std::vector<SequenceId>& list, SequenceId id) {
    return std::ranges::find(list, id) != list.end();
  };
  for (SequenceId id = 0; !schedule.admitted.empty() && id < static_cast<SequenceId>(state.sequences.size()); ++id) {
    if (state.at(id).phase != SequencePhase::kWaiting || contains(schedule.overtaken, id)) continue;
    if (std::ranges::find(schedule.admitted, id, &Admission::sequence) != schedule.admitted.end()) continue;
    for (const Admission& admission : schedule.admitted) {
      REQUIRE_THAT(comes_before(state.at(admission.sequence), state.at(id)),
                   "F2: sequence {} is admitted before sequence {}, which nobody counted as passed", admission.sequence,
                   id);
    }
  }
  for (const SequenceId id : schedule.overtaken) {
    REQUIRE_THAT(state.at(id).num_overtakes < state.settings.max_overtakes, "F2: sequence {} is passed once too often",
                 id);
  }
  for (const SequenceId victim : schedule.preempted) {
    REQUIRE_THAT(!state.at(victim).fully_reserved, "S5: sequence {} is preempted once too often", victim);
    REQUIRE_THAT(
        std::ranges::any_of(state.running, [&](SequenceId id) { return comes_before(state.at(id), state.at(victim)); }),
        "F3: sequence {} gives way and is first in order", victim);
    for (const StepRow& row : schedule.rows) {
      // Those in front may have what they need already; nobody behind the victim keeps blocks that could be taken.
      REQUIRE_THAT(comes_before(state.at(row.sequence), state.at(victim)) || state.at(row.sequence).fully_reserved,
                   "F3: sequence {} gives way and sequence {} behind it runs", victim, row.sequence);
    }
  }
  return std::nullopt;
}

}  // namespace

Violation find_violation(const EngineCore& engine) {
  const EngineState& state = engine.state();
  thread_local std::vector<int32_t> leases;
  RETURN_IF_VIOLATED(check_blocks(engine, leases));
  RETURN_IF_VIOLATED(check_places(state));
  for (SequenceId id = 0; id < static_cast<SequenceId>(state.sequences.size()); ++id) {
    RETURN_IF_VIOLATED(check_phase(state, id));
    if (state.at(id).phase == SequencePhase::kUnused) continue;
    RETURN_IF_VIOLATED(check_table(state, id));
    RETURN_IF_VIOLATED(check_progress(state, id));
    RETURN_IF_VIOLATED(check_in_flight(engine, id));
  }
  return std::nullopt;
}

Violation find_violation(const EngineState& state, const StepSchedule& schedule, const StepBudget& budget) {
  const EngineSettings& settings = state.settings;
  int32_t tokens = 0;
  int32_t prompt_tokens = 0;
  int32_t decodes = 0;
  int32_t blocks = 0;
  std::vector<SequenceId> seen;
  for (size_t r = 0; r < schedule.rows.size(); ++r) {
    const StepRow& row = schedule.rows[r];
    RETURN_IF_VIOLATED(check_row(state, schedule, budget, row));
    tokens += row.query_len;
    prompt_tokens += row.prefilling ? row.query_len : 0;
    decodes += row.prefilling ? 0 : 1;
    REQUIRE_THAT(row.prefilling || r < static_cast<size_t>(schedule.num_decodes),
                 "P1: row {} is a decode behind prefills", r);
    REQUIRE_THAT(std::ranges::find(seen, row.sequence) == seen.end(), "P1: sequence {} has two rows", row.sequence);
    seen.push_back(row.sequence);
    blocks += row.num_blocks - state.at(row.sequence).num_blocks();
  }
  REQUIRE_THAT(tokens == schedule.num_tokens && tokens <= budget.max_tokens, "P1: {} tokens are planned as {} of {}",
               tokens, schedule.num_tokens, budget.max_tokens);
  REQUIRE_THAT(
      decodes == schedule.num_decodes && schedule.rows.size() <= static_cast<size_t>(settings.limits.max_requests),
      "P1: {} rows, {} decodes, planned as {}", schedule.rows.size(), decodes, schedule.num_decodes);
  RETURN_IF_VIOLATED(check_order(state, schedule));
  const auto share = static_cast<int32_t>((1 - settings.decode_share) * settings.limits.max_tokens);
  REQUIRE_THAT(decodes == 0 || prompt_tokens <= std::max(share, 1), "P3: prompts take {} tokens beside {} decodes",
               prompt_tokens, decodes);
  for (const Admission& admission : schedule.admitted) blocks -= admission.hit_blocks;
  int32_t given_back = 0;
  for (const SequenceId id : schedule.preempted) given_back += state.at(id).num_blocks();
  REQUIRE_THAT(blocks <= state.pool.num_available() + given_back, "P4: {} blocks are planned and {} are available",
               blocks, state.pool.num_available() + given_back);
  return std::nullopt;
}

Violation find_violation(const StepBatch& batch, const EngineSettings& settings) {
  const StepShape& shape = batch.shape;
  const BucketKey& bucket = shape.bucket;
  const StepLimits& limits = settings.limits;
  REQUIRE_THAT(bucket.tokens <= limits.max_tokens && bucket.requests <= limits.max_requests &&
                   bucket.query_width <= limits.max_query_len && shape.sampling_rows <= limits.max_requests &&
                   shape.draft_passes <= settings.max_drafts(),
               "D1: step {} is a {} with {} sampling rows and {} drafts, beyond the limits", batch.step,
               to_string(bucket), shape.sampling_rows, shape.draft_passes);
  StepShape needed;
  needed.bucket = {.tokens = batch.num_tokens, .requests = static_cast<int32_t>(batch.rows.size())};
  for (const StepRow& row : batch.rows) {
    needed.bucket.query_width = std::max(needed.bucket.query_width, row.prefilling ? 1 : row.query_len);
    if (row.prefilling) needed.bucket.kind = StepKind::kMixed;
    needed.sampling_rows += row.samples ? 1 : 0;
    needed.draft_passes = std::max(needed.draft_passes, row.next_drafts);
    REQUIRE_THAT(row.sequence >= 0 || batch.rows.size() == 1, "D3: step {} has a dummy beside rows", batch.step);
  }
  REQUIRE_THAT(enclosing(shape, needed) == shape,
               "D1: step {} is a {} with {} sampling rows and {} drafts, and needs a {} with {} and {}", batch.step,
               to_string(bucket), shape.sampling_rows, shape.draft_passes, to_string(needed.bucket),
               needed.sampling_rows, needed.draft_passes);
  if (batch.rows.front().sequence >= 0) return std::nullopt;
  const StepRow& dummy = batch.rows.front();
  REQUIRE_THAT(dummy.slot == dummy_slot(limits) && !dummy.prefilling && !dummy.samples &&
                   dummy.query_len == limits.max_query_len && batch.num_decodes == 1,
               "D3: the dummy of step {} has slot {} and {} tokens", batch.step, dummy.slot, dummy.query_len);
  REQUIRE_THAT(batch.slot_inits.empty() && batch.table_entries.empty() && batch.copies.empty(),
               "D3: the dummy of step {} changes slots or blocks", batch.step);
  return std::nullopt;
}

Violation find_disagreement(std::span<const EngineCore* const> ranks) {
  for (size_t rank = 1; rank < ranks.size(); ++rank) {
    REQUIRE_THAT(ranks[rank]->state().next_step == ranks[0]->state().next_step,
                 "D4: rank {} has submitted {} steps and rank 0 {}", rank, ranks[rank]->state().next_step,
                 ranks[0]->state().next_step);
    REQUIRE_THAT(ranks[rank]->launches_digest() == ranks[0]->launches_digest(),
                 "D2: rank {} has launched other shapes than rank 0", rank);
  }
  return std::nullopt;
}

Violation find_leak(const EngineState& state) {
  REQUIRE_THAT(state.idle(), "F4: sequences live");
  REQUIRE_THAT(state.pool.num_leased() == 0, "F4: {} blocks are leased", state.pool.num_leased());
  REQUIRE_THAT(
      state.free_slots.size() == static_cast<size_t>(state.settings.limits.max_requests) && state.slots_promised == 0,
      "F4: {} slots are free", state.free_slots.size());
  REQUIRE_THAT(state.unused.size() == state.sequences.size() && state.unused_requests.size() == state.requests.size(),
               "F4: {} sequences and {} requests are kept", state.sequences.size() - state.unused.size(),
               state.requests.size() - state.unused_requests.size());
  REQUIRE_THAT(state.stats.submitted == state.stats.ended, "F4: {} choices came and {} ended", state.stats.submitted,
               state.stats.ended);
  return std::nullopt;
}

}  // namespace lantern
