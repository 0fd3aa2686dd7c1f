// Verification of drafts by sample-and-match. Every row of a verify batch was sampled from the processed target
// distribution with noise keyed by (seed, output position). A draft is accepted exactly if it equals the sample of the
// row before it; the sample of the first row whose draft is not accepted is the last token. Each emitted token is thus
// the sample that a step without drafts would have drawn: the output has the target's distribution for every setting,
// and a seeded text is the same for every draft length (the speculative sampling of Leviathan et al. 2023 with a
// deterministic drafter accepts as often; it needs a second draw from the remainder).
#pragma once

#include <cstdint>

#include "device/fixed.h"
#include "device/stream.h"
#include "ops/sampler_slots.h"

namespace lantern {

struct VerifyParams {
  SamplerSlots slots{};  // accepted tokens and the last sample are appended to the history
  SampleRequests requests{};
  DevPtr<const int32_t> samples{};     // [rows]: by sample() from the processed logits
  DevPtr<const int32_t> row_status{};  // [rows]: RowStatus, by process_logits()
  DevPtr<int32_t> tokens{};            // [max_requests, max_query_len]: what is new; -1 beyond num_tokens
  DevPtr<int32_t> num_tokens{};        // [max_requests]: accepted drafts + 1; without rows and for padding 0
  DevPtr<int32_t> status{};            // [max_requests]: RowStatus
  int32_t max_query_len = 1;           // 1 + drafts at most
  // For benchmarks on random weights, whose drafts are never right. Below 0: off. In [0, 1]: each draft is accepted
  // with this chance, keyed like the noise of its sample, and emitted in place of the sample.
  double synthetic_acceptance = -1;
};
// A request of more rows than 1 + the drafts of its slot has its further rows ignored. A row that is not kOk ends its
// request: `tokens` then holds what came before it, which a step without drafts would have given too. Rows behind the
// last emitted token are not looked at, whatever they hold.
void verify_drafts(Stream& stream, const VerifyParams& params);

}  // namespace lantern
