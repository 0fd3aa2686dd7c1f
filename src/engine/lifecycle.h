// The transitions of a sequence, each leaving the state consistent (CONTRACT.md, S1 to S7):
//
//   submit -> kWaiting -> kRunning -> (end) -> kRetiring -> gone
//                ^            |
//                '- kPreempting
//   further choices: kAwaitingPrompt -> kRunning when the first choice has run the prompt
#pragma once

#include <memory>

#include "engine/engine_state.h"
#include "engine/step_batch.h"

namespace lantern {

// Where EngineState::requests has the record of a request that was submitted; of requests that live at a time different
// ones.
int32_t record_of(RequestId id);

// Errors: those of check_request; out_of_memory when the queue is full.
Result<RequestId> submit_request(EngineState& state, const std::shared_ptr<const Request>& request, EngineTime now);

// Ends every choice that has not ended. False where no such request lives (any more).
bool end_request(EngineState& state, RequestId id, EndReason reason);
// Ends the requests whose deadline is not after `now`.
void end_expired_requests(EngineState& state, EngineTime now);

// Ends one choice, from any phase: tells the sink, and gives back what it holds, at once or when its steps in flight
// are through. With the choice that runs the prompt those that await it end too, unless the end is its own (stop,
// length): then the next of them runs the prompt.
void end_sequence(EngineState& state, SequenceId id, EndReason reason);

// kWaiting -> kRunning with the leading blocks that the prefix index has.
void admit_sequence(EngineState& state, SequenceId id, std::span<const BlockId> hit_blocks, bool fully_reserved);
// The reverse, for a step that was not submitted.
void undo_admission(EngineState& state, SequenceId id);

// kRunning -> kWaiting, or kPreempting while steps are in flight. What it has computed stays in the prefix index as
// long as the blocks are not needed.
void preempt_sequence(EngineState& state, SequenceId id);

// The first choice has run the prompt: the others run on its blocks, each from the last prompt token on.
void fork_choices(EngineState& state, SequenceId id);

// A step of the sequence is through. Ends what waited for that.
void leave_step(EngineState& state, SequenceId id);

// Offers the full blocks of accepted tokens to the prefix index.
void publish_blocks(EngineState& state, SequenceId id);

}  // namespace lantern
