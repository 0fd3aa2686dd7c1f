// From the model's logits to those that tokens are drawn from. In this order, which is vLLM's:
//   allowed tokens      others become -infinity
//   logit_bias          is added
//   bad words           the last token of a bad word becomes -infinity where the text (prompt, output, drafts) ends
//                       with the rest of the word
//   min_tokens          stop tokens become -infinity while the output is shorter
//   repetition_penalty  of tokens in prompt or output: a logit above 0 is divided by it, others are multiplied
//   frequency_penalty   times the count in the output is subtracted
//   presence_penalty    is subtracted from tokens in the output
// Temperature and the filters follow in sample(). The row after j drafts counts these drafts as output, so that each
// row of a verify batch is what a step without drafts would compute after accepting them. All in float, one operation
// per line above, so that every device and every batch gives the same bits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/fixed.h"
#include "device/stream.h"
#include "ops/sampler_slots.h"

namespace lantern {

// Rows of requests; see SampleRequests and SampleRows. Launch shape: max_requests and max_rows.
struct ExpandSampleRowsParams {
  SamplerSlots slots{};
  SampleRequests requests{};
  SampleRows rows{};     // [max_rows], all of it is written
  int32_t max_rows = 0;  // rows of requests beyond are padding
};
void expand_sample_rows(Stream& stream, const ExpandSampleRowsParams& params);

struct ProcessLogitsParams {
  SamplerSlots slots{};
  DevPtr<const float> logits{};               // [rows, vocab]
  DevPtr<float> processed{};                  // [rows, vocab]; may be the memory of logits. Padding is left as it is
  DevPtr<int32_t> status{};                   // [rows]: RowStatus; a row that is not kOk holds nothing to draw from
  DevPtr<const int32_t> row_slots{};          // [rows]: SampleRows::slots
  DevPtr<const int32_t> drafts_before{};      // [rows]: SampleRows::drafts_before
  DevPtr<const uint32_t> allowed_tokens{};    // optional [masks, ceil(vocab / 32)]: bit id % 32 of word id / 32
  DevPtr<const int32_t> row_allowed_masks{};  // [rows], where there are masks: the row's mask; -1: none
  int64_t rows = 0;
  DevPtr<std::byte> scratch{};  // process_logits_scratch_bytes()
  int64_t scratch_bytes = 0;
};
int64_t process_logits_scratch_bytes(int64_t max_rows, int32_t vocab);
void process_logits(Stream& stream, const ProcessLogitsParams& params);

// For prompt_logprobs: targets[r] = token that follows position positions[r] in the prompt of slot row_slots[r]; -1
// where none does, and for slot -1. With these, logprobs() scores a prompt in as many rows at a time as there are
// logits for.
struct PromptTargetsParams {
  SamplerSlots slots{};
  DevPtr<const int32_t> row_slots{};  // [rows]
  DevPtr<const int32_t> positions{};  // [rows]
  DevPtr<int32_t> targets{};          // [rows]
  int64_t rows = 0;
};
void prompt_targets(Stream& stream, const PromptTargetsParams& params);

}  // namespace lantern
