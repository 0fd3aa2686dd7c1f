// The small kernels between the operators of a step: they turn what the host sent and what slots hold into the inputs
// of the plan, the sampler and the MTP layer, and put the outcome back into the slots. Counts and lengths are read from
// device memory; launch shapes are those of the bucket.
//
// A row of a step is a request of the plan. The upload is that of step_upload.h; its header says how many rows there
// are. Padded tokens get id -1, request -1, context length 0 and slot -1; padded rows of logits name row -1.
#pragma once

#include <cstdint>

#include "attention/plan/step_inputs.h"
#include "device/stream.h"
#include "engine/slot_state.h"
#include "engine/step_batch.h"

namespace lantern {

// Slots begin anew, then block tables change.
struct SlotChangesParams {
  DevPtr<const int32_t> upload;
  SlotArrays slots;
};
void apply_slot_changes(Stream& stream, const SlotChangesParams& params);

// The raw inputs of the plan and the token ids. A prefill takes the prompt's tokens, a decode its slot's last token and
// drafts; a draft that the slot does not have is id -1. A row's table has the blocks through position
// seq_len + max_drafts.
struct BuildInputsParams {
  DevPtr<const int32_t> upload;
  SlotArrays slots;
  StepInputs::Writable inputs;
  DevPtr<int32_t> token_ids;  // [tokens]
  int32_t tokens = 0;         // of the bucket
  int32_t block_size = 64;
};
void build_step_inputs(Stream& stream, const BuildInputsParams& params);

// slot_mapping of the rows' leading num_unwritten tokens becomes -1. Runs after the plan.
struct MaskUnwrittenParams {
  DevPtr<const int32_t> upload;
  DevPtr<int32_t> slot_mapping;  // [tokens]
};
void mask_unwritten(Stream& stream, const MaskUnwrittenParams& params);

// The rows of logits: all tokens of the decodes in order, then the last token of each prefill that samples.
struct PrepareSamplesParams {
  DevPtr<const int32_t> upload;
  DevPtr<int32_t> token_rows;        // [rows]: the token of the step; -1: padding
  DevPtr<int32_t> sample_start_loc;  // [requests + 1], and
  DevPtr<int32_t> request_slots;     // [requests]: as SampleRequests has them
  DevPtr<int32_t> num_rows;          // [1]: rows that are no padding
  DevPtr<int32_t> row_masks{};       // optional [rows]: the mask of each row of logits; -1: none
  int32_t rows = 0;                  // of the bucket
};
void prepare_samples(Stream& stream, const PrepareSamplesParams& params);

// The rows of logits that score prompts: of each row its num_scored tokens, in order. Runs before advance_slots().
struct PrepareScoresParams {
  DevPtr<const int32_t> upload;
  SlotArrays slots;
  DevPtr<int32_t> token_rows;  // [rows]: the token of the step; -1: padding
  DevPtr<int32_t> row_slots;   // [rows]; -1: padding
  DevPtr<int32_t> positions;   // [rows]: of the token in its sequence
  DevPtr<int32_t> counts;      // [rows]: most likely tokens to list; -1: padding
  int32_t rows = 0;            // of the bucket
};
void prepare_scores(Stream& stream, const PrepareScoresParams& params);

// Keeps what a layer's indexer chose for rows of logits: as many records as a row of the step has of them, from its
// first_traced on. Runs between the layer's index_select() and the next one.
struct TraceSelectionsParams {
  DevPtr<const int32_t> upload;
  DevPtr<const int32_t> positions;  // [tokens, top_k] and
  DevPtr<const int32_t> counts;     // [tokens]: as index_select() leaves them
  int32_t top_k = 0;
  DevPtr<int32_t> records;  // [max_traced_rows, 1 + top_k]: the count, then the positions; -1 beyond the count
};
void trace_selections(Stream& stream, const TraceSelectionsParams& params);

// Where the outcome of a step lies on the device, by row.
struct StepOutcome {
  DevPtr<int32_t> tokens;      // [requests][max_query_len]
  DevPtr<int32_t> num_tokens;  // [requests]; 0 where the row does not sample
  DevPtr<int32_t> status;      // [requests]; RowStatus
  DevPtr<int32_t> faults;      // [1]; what the plan found wrong
  int32_t max_query_len = 1;
};

// After verification: slots move on by what was run and accepted, and have no drafts for now.
struct AdvanceSlotsParams {
  DevPtr<const int32_t> upload;
  SlotArrays slots;
  DevPtr<const int32_t> plan_counts;  // [kNumCounts]
  StepOutcome outcome;                // faults are written
  // [requests]: drafts to make, as many as the row wants and its slot's length has use for; 0 for a row that failed or
  // does not sample.
  DevPtr<int32_t> wanted_drafts;
};
void advance_slots(Stream& stream, const AdvanceSlotsParams& params);

// A pass of the MTP layer as kernels of attention see it: requests are those of the step, and the entry of a token that
// sees n keys lies at place n of its request (StepView::key_offset is 1).
struct MtpInputs {
  DevPtr<int32_t> token_request;      // [tokens]
  DevPtr<int32_t> token_context_len;  // [tokens]
  DevPtr<int32_t> slot_mapping;       // [tokens]
  DevPtr<int32_t> next_token_ids;     // [tokens]
};

// The first pass: over the tokens of the step, each with the token behind it. Rejected drafts become padding.
struct PrepareMtpParams {
  DevPtr<const int32_t> upload;
  SlotArrays slots;
  StepInputs::Writable inputs;
  DevPtr<const int32_t> token_ids;          // [tokens] of the step
  DevPtr<const int32_t> token_request;      // [tokens] as planned
  DevPtr<const int32_t> token_context_len;  // [tokens] as planned
  StepOutcome outcome;
  MtpInputs mtp;
  DevPtr<int32_t> draft_rows;  // [sampling rows]: the last accepted token of each; -1: padding
  int32_t tokens = 0;          // of the bucket
  int32_t num_sampling = 0;    // of the bucket
  int32_t block_size = 64;
};
void prepare_mtp(Stream& stream, const PrepareMtpParams& params);

// Pass `pass` (1, 2, ...) has drafted: puts the drafts into the slots of the sampling rows that want them, and makes
// them the input of the next pass, one token for each sampling row.
struct AdvanceDraftsParams {
  DevPtr<const int32_t> upload;
  SlotArrays slots;
  StepInputs::Writable inputs;
  DevPtr<const int32_t> wanted_drafts;  // [requests]
  DevPtr<const int32_t> drafts;         // [sampling rows]
  MtpInputs mtp;
  int32_t num_sampling = 0;  // of the bucket
  int32_t pass = 1;
  int32_t block_size = 64;
};
void advance_drafts(Stream& stream, const AdvanceDraftsParams& params);

}  // namespace lantern
