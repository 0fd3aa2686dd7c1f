#include "engine/lifecycle.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace lantern {
namespace {

// What a sequence that has gone may keep of its vectors, in tokens, for the next one.
constexpr size_t kKeptTokens = 16384;

RequestId request_id(int32_t record, uint32_t generation) {
  return uint64_t{generation} << 32 | static_cast<uint64_t>(record + 1);
}

RequestRecord* find_request(EngineState& state, RequestId id) {
  const int32_t record = record_of(id);
  if (record < 0 || static_cast<size_t>(record) >= state.requests.size()) return nullptr;
  RequestRecord& found = state.requests[static_cast<size_t>(record)];
  const bool alive = found.first_choice >= 0 && found.generation == static_cast<uint32_t>(id >> 32);
  return alive ? &found : nullptr;
}

void insert_running(EngineState& state, SequenceId id) {
  const auto sooner = [&](const ServiceKey& key, SequenceId other) { return key < state.at(other).key; };
  state.running.insert(std::upper_bound(state.running.begin(), state.running.end(), state.at(id).key, sooner), id);
}

void erase_running(EngineState& state, SequenceId id) {
  const auto it = std::find(state.running.begin(), state.running.end(), id);
  CHECK(it != state.running.end(), "sequence {} is not running", id);
  state.running.erase(it);
}

void take_slot(EngineState& state, Sequence& sequence) {
  sequence.slot = state.free_slots.back();
  state.free_slots.pop_back();
  sequence.slot_ready = false;
  sequence.blocks_sent = 0;
  sequence.drafts_ready = 0;
}

// Blocks go last first, so that among cached blocks no block is given away before those that continue it.
void give_back(EngineState& state, Sequence& sequence) {
  while (!sequence.blocks.empty()) sequence.blocks.pop_back();
  state.free_slots.push_back(sequence.slot);
  sequence.slot = -1;
  sequence.slot_ready = false;
  sequence.fully_reserved = false;
  sequence.blocks_sent = 0;
  sequence.sole_from = Sequence::kNoBlock;
  sequence.num_computed = 0;
  sequence.num_published = 0;
  sequence.num_prefill = 0;
  sequence.write_from = 0;
  sequence.next_upper = 0;
  sequence.drafts_ready = 0;
}

void wait_again(EngineState& state, SequenceId id) {
  Sequence& sequence = state.at(id);
  sequence.phase = SequencePhase::kWaiting;
  state.waiting.insert(id, sequence.key);
  ++state.num_queued;
}

void remove_request(EngineState& state, int32_t record) {
  RequestRecord& gone = state.requests[static_cast<size_t>(record)];
  if (state.deadlines.contains(record)) state.deadlines.erase(record);
  gone.first_choice = -1;
  gone.deadline = kNever;
  ++gone.generation;
  state.unused_requests.push_back(record);
}

void remove_sequence(EngineState& state, SequenceId id) {
  Sequence& gone = state.at(id);
  const int32_t record = record_of(gone.request_id);
  SequenceId* link = &state.requests[static_cast<size_t>(record)].first_choice;
  while (*link != id) link = &state.at(*link).next_choice;
  *link = gone.next_choice;
  if (state.requests[static_cast<size_t>(record)].first_choice < 0) remove_request(state, record);

  std::vector<int32_t> tokens = std::move(gone.tokens);
  std::vector<BlockHash> chain = std::move(gone.chain);
  std::vector<BlockLease> blocks = std::move(gone.blocks);
  gone = Sequence{};
  if (tokens.capacity() <= kKeptTokens) {
    tokens.clear();
    chain.clear();
    gone.tokens = std::move(tokens);
    gone.chain = std::move(chain);
    gone.blocks = std::move(blocks);
  }
  state.unused.push_back(id);
}

// The first choice was preempted with its last prompt tokens in flight, and the token that they led to was its end: it
// has nothing to share any more, and the next choice runs the prompt.
void hand_over_prompt(EngineState& state, SequenceId next, int32_t awaiting) {
  Sequence& sequence = state.at(next);
  sequence.phase = SequencePhase::kWaiting;
  sequence.forks_pending = awaiting - 1;
  state.waiting.insert(next, sequence.key);
}

void end_awaiting_choices(EngineState& state, SequenceId first, EndReason reason, const std::string& failure) {
  for (SequenceId choice = first; choice >= 0;) {
    const SequenceId next = state.at(choice).next_choice;
    state.at(choice).failure = failure;
    end_sequence(state, choice, reason);
    choice = next;
  }
}

void init_sequence(EngineState& state, SequenceId id, const std::shared_ptr<const Request>& request, int32_t choice,
                   const ServiceKey& key) {
  Sequence& sequence = state.at(id);
  sequence.request = request;
  sequence.rules = step_rules(*request);
  sequence.choice = choice;
  sequence.key = key;
  sequence.prompt_len = static_cast<int32_t>(request->prompt.size());
  sequence.max_len = max_length(*request, state.settings);
  // All the room that it will ever need: a step allocates nothing.
  const auto max_blocks = static_cast<size_t>(state.settings.blocks_for(sequence.max_len));
  sequence.tokens.reserve(static_cast<size_t>(sequence.max_len));
  sequence.chain.reserve(max_blocks);
  sequence.blocks.reserve(max_blocks);
  sequence.tokens.assign(request->prompt.begin(), request->prompt.end());
}

void hash_new_blocks(const EngineState& state, Sequence& sequence) {
  const auto size = static_cast<size_t>(state.settings.limits.block_size);
  while ((sequence.chain.size() + 1) * size <= sequence.tokens.size()) {
    const BlockHash& parent = sequence.chain.empty() ? sequence.root : sequence.chain.back();
    const auto tokens = std::span<const int32_t>(sequence.tokens).subspan(sequence.chain.size() * size, size);
    sequence.chain.push_back(state.hasher.extend(parent, tokens));
  }
}

}  // namespace

int32_t record_of(RequestId id) { return static_cast<int32_t>(id & 0xffffffffu) - 1; }

Result<RequestId> submit_request(EngineState& state, const std::shared_ptr<const Request>& request, EngineTime now) {
  RETURN_IF_ERROR(check_request(*request, state.settings));
  if (state.num_queued + request->n > state.settings.max_queued) {
    return Error(ErrorCode::kOutOfMemory,
                 fmt::format("{} sequences wait and max_queued is {}; try again later or raise max_queued",
                             state.num_queued, state.settings.max_queued));
  }
  const int32_t record_index = state.unused_requests.back();
  state.unused_requests.pop_back();
  RequestRecord& record = state.requests[static_cast<size_t>(record_index)];
  record.deadline = request->deadline;
  if (record.deadline != kNever) state.deadlines.insert(record_index, record.deadline);

  SequenceId* link = &record.first_choice;
  const Sequence* first = nullptr;
  for (int32_t choice = 0; choice < request->n; ++choice) {
    const SequenceId id = state.unused.back();
    state.unused.pop_back();
    init_sequence(state, id, request, choice, service_key(*request, now, state.next_order++, state.settings));
    Sequence& sequence = state.at(id);
    sequence.request_id = request_id(record_index, record.generation);
    *link = id;
    link = &sequence.next_choice;
    if (first == nullptr) {
      first = &sequence;
      sequence.root = state.hasher.root(request->cache_salt);
      if (state.settings.prefix_caching) hash_new_blocks(state, sequence);
      sequence.forks_pending = request->n - 1;
      sequence.phase = SequencePhase::kWaiting;
      state.waiting.insert(id, sequence.key);
    } else {
      sequence.root = first->root;
      sequence.chain.assign(first->chain.begin(), first->chain.end());
      sequence.phase = SequencePhase::kAwaitingPrompt;
    }
    ++state.num_queued;
    ++state.stats.submitted;
  }
  return request_id(record_index, record.generation);
}

bool end_request(EngineState& state, RequestId id, EndReason reason) {
  const RequestRecord* record = find_request(state, id);
  if (record == nullptr) return false;
  for (SequenceId choice = record->first_choice; choice >= 0;) {
    const SequenceId next = state.at(choice).next_choice;
    if (state.at(choice).phase != SequencePhase::kRetiring) end_sequence(state, choice, reason);
    // The first choice takes those along that await its prompt.
    choice = next >= 0 && state.at(next).request_id == id ? next : -1;
  }
  return true;
}

void end_expired_requests(EngineState& state, EngineTime now) {
  while (!state.deadlines.empty() && state.deadlines.first_key() <= now) {
    const int32_t record = state.deadlines.first();
    state.deadlines.erase(record);
    end_request(state, request_id(record, state.requests[static_cast<size_t>(record)].generation),
                EndReason::kDeadline);
  }
}

void end_sequence(EngineState& state, SequenceId id, EndReason reason) {
  Sequence& sequence = state.at(id);
  CHECK(sequence.phase != SequencePhase::kUnused && sequence.phase != SequencePhase::kRetiring,
        "sequence {} has ended already", id);
  if (sequence.forks_pending > 0) {
    if (sequence.phase == SequencePhase::kRunning) state.slots_promised -= sequence.forks_pending;
    const int32_t awaiting = std::exchange(sequence.forks_pending, 0);
    const bool own_end = reason == EndReason::kStop || reason == EndReason::kLength;
    if (own_end) {
      hand_over_prompt(state, sequence.next_choice, awaiting);
    } else {
      end_awaiting_choices(state, sequence.next_choice, reason, sequence.failure);
    }
  }
  sequence.end_reason = reason;
  ++state.stats.ended;
  if (state.sink != nullptr) state.sink->on_end(sequence);

  switch (sequence.phase) {
    case SequencePhase::kWaiting: state.waiting.erase(id); [[fallthrough]];
    case SequencePhase::kAwaitingPrompt: --state.num_queued; break;
    case SequencePhase::kRunning:
      erase_running(state, id);
      ++state.num_draining;
      break;
    default: break;  // preempting: drains already
  }
  const bool holds_slot = sequence.slot >= 0;
  sequence.phase = SequencePhase::kRetiring;
  if (!holds_slot) {
    remove_sequence(state, id);
  } else if (sequence.steps_in_flight == 0) {
    give_back(state, sequence);
    --state.num_draining;
    remove_sequence(state, id);
  }
}

void admit_sequence(EngineState& state, SequenceId id, std::span<const BlockId> hit_blocks, bool fully_reserved) {
  Sequence& sequence = state.at(id);
  CHECK(sequence.phase == SequencePhase::kWaiting && sequence.blocks.empty(), "sequence {} does not wait", id);
  state.waiting.erase(id);
  --state.num_queued;
  sequence.phase = SequencePhase::kRunning;
  take_slot(state, sequence);
  state.slots_promised += sequence.forks_pending;
  sequence.fully_reserved = fully_reserved;

  for (const BlockId block : hit_blocks) sequence.blocks.push_back(state.pool.lease(block));
  const int32_t hit = static_cast<int32_t>(hit_blocks.size()) * state.settings.limits.block_size;
  sequence.num_computed = hit;
  sequence.num_published = static_cast<int32_t>(hit_blocks.size());
  sequence.num_prefill = sequence.num_tokens();
  // The last token of a hit runs again, for its hidden state: the MTP layer's next entry and the logits come from it.
  sequence.write_from = hit;
  sequence.next_upper = std::max(hit - 1, 0);
  if (sequence.num_preemptions == 0) sequence.num_cached = hit;
  state.stats.prompt_tokens += sequence.num_tokens();
  state.stats.prompt_tokens_cached += hit;
  insert_running(state, id);
  if (state.sink != nullptr) state.sink->on_admission(sequence);
}

void undo_admission(EngineState& state, SequenceId id) {
  Sequence& sequence = state.at(id);
  CHECK(sequence.phase == SequencePhase::kRunning && sequence.steps_in_flight == 0, "sequence {} is in a step", id);
  state.stats.prompt_tokens -= sequence.num_tokens();
  state.stats.prompt_tokens_cached -= sequence.num_computed;
  state.slots_promised -= sequence.forks_pending;
  erase_running(state, id);
  give_back(state, sequence);
  wait_again(state, id);
}

void preempt_sequence(EngineState& state, SequenceId id) {
  Sequence& sequence = state.at(id);
  CHECK(sequence.phase == SequencePhase::kRunning && !sequence.fully_reserved, "sequence {} cannot be preempted", id);
  ++sequence.num_preemptions;
  ++state.stats.preemptions;
  state.slots_promised -= sequence.forks_pending;
  erase_running(state, id);
  if (sequence.steps_in_flight > 0) {
    sequence.phase = SequencePhase::kPreempting;
    ++state.num_draining;
    return;
  }
  give_back(state, sequence);
  wait_again(state, id);
}

void fork_choices(EngineState& state, SequenceId id) {
  Sequence& first = state.at(id);
  CHECK(first.num_computed >= first.prompt_len, "sequence {} has not run its prompt", id);
  state.slots_promised -= first.forks_pending;
  first.forks_pending = 0;
  first.sole_from = Sequence::kNoBlock;
  // With the block in which the prompt ends, unless it is published by now with what the first choice added (when that
  // was preempted in between): what is published is never written, so the others run the end of the prompt again.
  const int32_t size = state.settings.limits.block_size;
  int32_t shared = state.settings.blocks_for(first.prompt_len);
  if (shared * size > first.prompt_len && state.pool.indexed(first.blocks[static_cast<size_t>(shared) - 1].id()))
    --shared;
  const int32_t computed = std::min(shared * size, first.prompt_len);
  for (SequenceId choice = first.next_choice; choice >= 0; choice = state.at(choice).next_choice) {
    Sequence& sequence = state.at(choice);
    CHECK(sequence.phase == SequencePhase::kAwaitingPrompt, "choice {} does not await the prompt", sequence.choice);
    --state.num_queued;
    sequence.phase = SequencePhase::kRunning;
    take_slot(state, sequence);
    for (int32_t i = 0; i < shared; ++i) sequence.blocks.push_back(first.blocks[static_cast<size_t>(i)].share());
    sequence.num_computed = computed;
    sequence.num_published = static_cast<int32_t>(sequence.chain.size());
    sequence.num_cached = computed;
    sequence.num_prefill = first.prompt_len;
    sequence.write_from = computed;
    sequence.next_upper = std::max(computed - 1, 0);
    insert_running(state, choice);
    ++state.stats.forks;
  }
}

void leave_step(EngineState& state, SequenceId id) {
  Sequence& sequence = state.at(id);
  CHECK(sequence.steps_in_flight > 0, "sequence {} is in no step", id);
  if (--sequence.steps_in_flight > 0) return;
  if (sequence.phase == SequencePhase::kRetiring) {
    give_back(state, sequence);
    --state.num_draining;
    remove_sequence(state, id);
  } else if (sequence.phase == SequencePhase::kPreempting) {
    give_back(state, sequence);
    --state.num_draining;
    wait_again(state, id);
  }
}

void publish_blocks(EngineState& state, SequenceId id) {
  if (!state.settings.prefix_caching) return;
  Sequence& sequence = state.at(id);
  hash_new_blocks(state, sequence);
  const int32_t size = state.settings.limits.block_size;
  for (; (sequence.num_published + 1) * size <= std::min(sequence.num_computed, sequence.num_tokens());
       ++sequence.num_published) {
    const auto block = static_cast<size_t>(sequence.num_published);
    const BlockId leased = sequence.blocks[block].id();
    if (state.pool.indexed(leased)) continue;  // shared by choices of one request, and the other was first
    // Other choices share the block in which the prompt ends, and have yet to copy what they will write: later.
    if (state.pool.ref_count(leased) > 1) break;
    const BlockHash& parent = block == 0 ? sequence.root : sequence.chain[block - 1];
    state.index.publish(leased, parent, sequence.chain[block],
                        std::span<const int32_t>(sequence.tokens)
                            .subspan(block * static_cast<size_t>(size), static_cast<size_t>(size)));
  }
}

}  // namespace lantern
