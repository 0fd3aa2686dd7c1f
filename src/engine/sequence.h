// The progress of one choice of a request. Plain data: the scheduler reads it, lifecycle.h and step_transaction.h
// change it.
//
// Lengths. `tokens` holds what is accepted: the prompt, then the output. The host learns of a step's outcome after it
// has planned the next one, so it keeps two bounds while steps are in flight:
//   next_upper      positions handed to steps, as if every draft in flight were accepted. The next row begins there at
//                   the latest; exact while the prompt runs
//   length_lower()  tokens that exist at least: each sampling row in flight yields one or more
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "engine/block_hash.h"
#include "engine/block_pool.h"
#include "engine/draft_policy.h"
#include "engine/request.h"

namespace lantern {

// An index into EngineState::sequences; another sequence gets it after this one is gone. -1 is none.
using SequenceId = int32_t;

// Smaller is served sooner. Fixed when the request comes, so that nothing can be passed for ever: a later request of
// the same priority is always behind.
struct ServiceKey {
  EngineTime counts_as_come{};
  uint64_t order = 0;  // of submission

  bool operator<(const ServiceKey& other) const {
    return std::tie(counts_as_come, order) < std::tie(other.counts_as_come, other.order);
  }
  bool operator==(const ServiceKey&) const = default;
};
ServiceKey service_key(const Request& request, EngineTime now, uint64_t order, const EngineSettings& settings);

enum class SequencePhase : uint8_t {
  kUnused,
  kAwaitingPrompt,  // the request's first choice runs or waits for the prompt that this one shares
  kWaiting,         // in EngineState::waiting; holds no blocks
  kRunning,         // in EngineState::running; has a slot and blocks
  kPreempting,      // to wait again when its steps in flight are through
  kRetiring,        // ended; its blocks go when its steps in flight are through
};

// What every step asks of a request, beside the sequence's progress: the request's own memory is cold by then.
struct StepRules {
  static constexpr int32_t kMostStops = 5;

  bool constrained = false;
  bool logprobs = false;  // of the output
  bool traced = false;    // its selections
  bool stops_fit = true;  // false: the request has the stop tokens
  int8_t num_stops = 0;   // 0 where the request ignores them
  int32_t min_tokens = 0;
  std::array<int32_t, kMostStops> stops{};
};
StepRules step_rules(const Request& request);

// Every step reads the first 256 bytes of each sequence that runs, which the model's memory has driven out of the
// caches: what a step needs stands there, the rest behind.
struct alignas(64) Sequence {
  RequestId request_id = 0;
  SequencePhase phase = SequencePhase::kUnused;
  EndReason end_reason = EndReason::kNone;
  bool slot_ready = false;      // the executor knows the slot
  bool fully_reserved = false;  // has the blocks for max_len, and is not preempted
  int32_t choice = 0;
  int32_t prompt_len = 0;
  int32_t max_len = 0;  // tokens that it may have, its prompt included

  // Since its admission, as above.
  int32_t slot = -1;
  int32_t num_prefill = 0;  // tokens that must run before one is sampled
  int32_t write_from = 0;   // positions below are in the caches already: a row that runs them writes nothing there
  int32_t next_upper = 0;
  int32_t drafts_ready = 0;      // drafts that the slot holds at most, from the last step
  int32_t blocks_sent = 0;       // leading entries of the block table that the executor knows
  int32_t sole_from = kNoBlock;  // blocks from here on, as far as a row may write, are known to be its alone
  int32_t steps_in_flight = 0;
  int32_t samples_in_flight = 0;  // of these, steps with a sampling row
  int32_t num_computed = 0;       // tokens whose cache entries are in `blocks`
  int32_t num_published = 0;      // blocks that were offered to the prefix index, or came from it
  StepRules rules;                // of the request

  std::vector<int32_t> tokens;
  std::vector<BlockLease> blocks;
  std::vector<BlockHash> chain;  // of the full blocks of `tokens`
  AcceptanceStats acceptance;
  std::string failure;  // what went wrong with a step; empty otherwise

  std::shared_ptr<const Request> request;
  SequenceId next_choice = -1;  // of the same request, -1: none
  int32_t forks_pending = 0;    // choices that await the prompt this one runs; as many slots are kept for them
  ServiceKey key;
  BlockHash root;          // of the request's salt
  int32_t num_cached = 0;  // tokens that the prefix index had when it was first admitted
  // Leading tokens of the prompt whose logits were scored, of the choice that gives the prompt's log-probabilities.
  int32_t num_scored = 0;
  int32_t num_preemptions = 0;
  int32_t num_overtakes = 0;

  static constexpr int32_t kNoBlock = INT32_MAX;

  int32_t num_tokens() const { return static_cast<int32_t>(tokens.size()); }
  int32_t num_outputs() const { return num_tokens() - prompt_len; }
  int32_t num_blocks() const { return static_cast<int32_t>(blocks.size()); }
  int32_t length_lower() const { return num_tokens() + samples_in_flight; }
  bool constrained() const { return rules.constrained; }
  // Whether the text ends with `token`, once there are enough.
  bool stops_at(int32_t token) const {
    const std::span<const int32_t> stops =
        rules.stops_fit ? std::span<const int32_t>(rules.stops).first(static_cast<size_t>(rules.num_stops))
                        : std::span<const int32_t>(request->stop_token_ids);
    return std::ranges::find(stops, token) != stops.end();
  }
  std::span<const int32_t> outputs() const { return std::span(tokens).subspan(static_cast<size_t>(prompt_len)); }
  // Gives the log-probabilities of the prompt: choice 0 does for all.
  bool scores_prompt() const { return choice == 0 && request->prompt_logprobs >= 0; }
  // Tokens that are scored in the end: all that have one behind them in the prompt.
  int32_t scores_wanted() const { return scores_prompt() ? prompt_len - 1 : 0; }
  bool prompt_submitted() const { return next_upper >= num_prefill; }
  // No row can write below this position.
  int32_t write_lower() const { return prompt_submitted() ? length_lower() - 1 : std::max(next_upper, write_from); }
  // The request's seed made different for each choice; choice 0 has the seed itself.
  uint64_t seed() const;
};

}  // namespace lantern
