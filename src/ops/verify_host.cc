#include <algorithm>

#include "base/check.h"
#include "ops/sampler_math.h"
#include "ops/verify.h"

namespace lantern {
namespace {

void append(const SamplerSlots& slots, int32_t slot, const int32_t* tokens, int32_t count) {
  int32_t& length = slots.history_len[slot];
  // A sequence that ended unknown to the host may come to more than the context holds; what is over is never read.
  const int32_t added = std::clamp(slots.max_model_len - length, 0, count);
  std::copy(tokens, tokens + added, slots.history.get() + int64_t{slot} * slots.max_model_len + length);
  length += added;
}

void verify_drafts_kernel(const VerifyParams& p, HostContext&) {
  const int32_t requests = sampler::request_count(p.requests);
  for (int32_t b = 0; b < p.requests.max_requests; ++b) {
    int32_t* tokens = p.tokens.get() + int64_t{b} * p.max_query_len;
    std::fill(tokens, tokens + p.max_query_len, -1);
    p.num_tokens[b] = 0;
    p.status[b] = static_cast<int32_t>(RowStatus::kOk);
    if (b >= requests || !sampler::is_slot(p.slots, p.requests.slots[b])) continue;
    const int32_t slot = p.requests.slots[b];
    const int32_t begin = p.requests.sample_start_loc[b];
    const int32_t rows = std::min(p.requests.sample_start_loc[b + 1] - begin, p.max_query_len);
    if (rows <= 0) continue;
    int32_t drafts = sampler::drafts_of(p.slots, slot);
    const int32_t* draft_tokens =
        drafts > 0 ? p.slots.draft_tokens.get() + int64_t{slot} * p.slots.max_drafts : nullptr;
    const int32_t* row_status = p.row_status.get() + begin;
    std::copy(p.samples.get() + begin, p.samples.get() + begin + rows, tokens);
    if (p.synthetic_acceptance >= 0) {
      const uint64_t seed = p.slots.rules[slot].sampling.seed;
      const int64_t position = int64_t{p.slots.history_len[slot]} - p.slots.prompt_len[slot];
      const int32_t accepted =
          sampler::synthetic_hits(p.synthetic_acceptance, seed, position, std::min(rows - 1, drafts));
      std::copy(draft_tokens, draft_tokens + accepted, tokens);
      if (accepted < std::min(rows - 1, drafts)) drafts = accepted;
    }
    const sampler::Verdict verdict = sampler::verify_rows(tokens, row_status, rows, draft_tokens, drafts);
    std::fill(tokens + verdict.num_tokens, tokens + p.max_query_len, -1);
    p.num_tokens[b] = verdict.num_tokens;
    p.status[b] = static_cast<int32_t>(verdict.status);
    append(p.slots, slot, tokens, verdict.num_tokens);
  }
}

}  // namespace

void verify_drafts(Stream& stream, const VerifyParams& params) {
  CHECK(params.max_query_len >= 1, "max_query_len is {}", params.max_query_len);
  stream.launch("verify_drafts", &verify_drafts_kernel, params);
}

}  // namespace lantern
