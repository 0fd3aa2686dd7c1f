// What decides how requests are served: bounds and policy, chosen once at start. Time in the engine is a value, counted
// from an origin of the caller's choice, so that the same inputs give the same decisions on every rank.
#pragma once

#include <chrono>
#include <cstdint>

#include "attention/plan/step_limits.h"
#include "base/result.h"
#include "engine/step_cost.h"

namespace lantern {

using EngineTime = std::chrono::microseconds;
constexpr EngineTime kNever = EngineTime::max();
constexpr int32_t kMostStepsInFlight = 2;

struct EngineSettings {
  // max_tokens is what serving engines call max_num_batched_tokens, max_requests their max_num_seqs; max_query_len - 1
  // is the longest draft.
  StepLimits limits;

  int32_t max_queued = 10000;  // sequences that wait; more are refused
  bool prefix_caching = true;
  int32_t max_steps_in_flight = kMostStepsInFlight;  // 2: the next step is planned while one runs; 1: strictly in turn

  // While a sequence decodes, prompts take at most this share of a step's tokens fewer: their steps stay short.
  double decode_share = 0.25;        // in [0, 1)
  int32_t max_partial_prefills = 4;  // prompts that are in work at a time

  // Blocks that admissions leave to the growth of what runs.
  int32_t watermark_blocks = 0;
  int32_t max_preemptions = 3;  // of one sequence; after that it is admitted with all its blocks or not at all
  int32_t max_overtakes = 64;   // steps in which later requests may pass one that waits for room

  EngineTime priority_step{10'000'000};  // how much later a request counts as come, for each unit of its priority
  EngineTime deadline_slack{1'000'000};  // a request counts as come at the latest so long before its deadline

  // Most likely tokens that a request may have listed for each token, up to kMaxLogprobs; -1: no log-probabilities, and
  // no memory for them.
  int32_t max_logprobs = 20;

  // Rows of logits in a step whose selections can be kept, for requests that trace them; 0: none may, and no memory.
  int32_t max_traced_rows = 0;

  int32_t vocab_size = 0;  // of the model; 0: not known, and no request may constrain its tokens

  // By step_cost and by what steps take; false: always as many drafts as the limits allow.
  bool adaptive_drafts = true;
  StepCost step_cost;

  // What is kept of a row's selection: the number of its keys, then as many positions, ascending, of index_topk.
  int32_t traced_record_words() const { return 1 + limits.index_topk; }
  int64_t traced_words() const { return int64_t{max_traced_rows} * traced_record_words(); }
  int32_t max_drafts() const { return limits.max_query_len - 1; }
  int32_t blocks_for(int32_t tokens) const { return (tokens + limits.block_size - 1) / limits.block_size; }

  // The same settings if they agree with themselves; invalid_argument names the field otherwise.
  static Result<EngineSettings> checked(const EngineSettings& settings);
};

}  // namespace lantern
