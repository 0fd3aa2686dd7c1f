// What sampling needs to know of the running sequences, on the device. One slot holds one sequence; rows of logits
// name slots. The memory belongs to engine/sampler.h.
//
// The only record of a sequence's text is its history, prompt and output in one row of tokens. Penalties are counted
// from it when they are needed, bad words and n-gram drafts read it, and a verified step appends to it: there is no
// table of counts that could disagree, nothing to clear when a slot changes hands, and a draft that was rejected leaves
// no trace. A row with penalties costs one walk over the history and one over the vocabulary; [slots, vocab] counts
// would save the first and hold 0.5 MB for each slot of a 129280-token vocabulary, used or not.
#pragma once

#include <cstdint>

#include "device/fixed.h"
#include "ops/sampling_settings.h"

namespace lantern {

struct SamplerSlots {
  DevPtr<const SlotRules> rules{};       // [slots]
  DevPtr<int32_t> history{};             // [slots, max_model_len]: prompt, then output
  DevPtr<int32_t> history_len{};         // [slots]: tokens in it, accepted ones only
  DevPtr<const int32_t> prompt_len{};    // [slots]: leading tokens of the history that the request brought
  DevPtr<const int32_t> draft_tokens{};  // optional [slots, max_drafts]: guesses at what follows the history
  DevPtr<const int32_t> num_drafts{};    // [slots], where draft_tokens are given: how many are set
  int32_t num_slots = 0;
  int32_t max_model_len = 0;
  int32_t max_drafts = 0;
  int32_t vocab = 0;
};

// The requests of a step that the sampler sees, and their rows of logits: row r belongs to request b where
// sample_start_loc[b] <= r < sample_start_loc[b + 1], and is its row j = r - sample_start_loc[b]. Row 0 gives what
// follows the history, row j what follows the history and j drafts. A request may have no row (its prompt goes on).
// Requests from num_requests on are padding, whatever their entries hold.
struct SampleRequests {
  DevPtr<const int32_t> num_requests{};      // [1]
  DevPtr<const int32_t> sample_start_loc{};  // [num_requests + 1], ascending from 0
  DevPtr<const int32_t> slots{};             // [num_requests]; -1: the request is padding
  int32_t max_requests = 0;                  // of the launch; larger values of num_requests are cut
};

// The same by row, made by expand_sample_rows(). Rows of padding have slot -1, and nothing is computed for them.
struct SampleRows {
  DevPtr<int32_t> slots{};              // [rows]
  DevPtr<int32_t> drafts_before{};      // [rows]: j
  DevPtr<int64_t> output_positions{};   // [rows]: index of the token to be drawn within its output
  DevPtr<SamplingSettings> settings{};  // [rows]
  DevPtr<int32_t> num_logprobs{};       // [rows]: as in SlotRules
};

// What became of a row of logits; of a request, what became of the first of its rows that failed. On the device these
// are int32, as everything that a step gives back.
enum class RowStatus : uint8_t {
  kOk,
  kNotFinite,  // the model's logits are no numbers
  kNoToken,    // no token is left: mask, biases, bad words and min_tokens together ban them all
};

}  // namespace lantern
