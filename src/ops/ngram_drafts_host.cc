#include <algorithm>

#include "base/check.h"
#include "ops/cuda_ops.h"
#include "ops/ngram_drafts.h"
#include "ops/sampler_math.h"

namespace lantern {
namespace {

// The position after the latest of the longest earlier matches; -1 where none has min_ngram tokens.
int32_t find_match(const int32_t* history, int32_t history_len, int32_t min_ngram, int32_t max_ngram) {
  int32_t found = -1;
  int32_t longest = min_ngram - 1;
  for (int32_t end = history_len - 1; end >= min_ngram && longest < max_ngram; --end) {
    const int32_t length = sampler::match_length(history, history_len, end, max_ngram);
    if (length > longest) {
      longest = length;
      found = end;
    }
  }
  return found;
}

void draft_for(const NgramDraftsParams& p, int32_t slot, int32_t wanted) {
  const int32_t* history = p.slots.history.get() + int64_t{slot} * p.slots.max_model_len;
  const int32_t length = p.slots.history_len[slot];
  // The last draft is still followed by a sample that the context has room for.
  const int32_t count = std::min({wanted, p.slots.max_drafts, p.slots.max_model_len - length - 1});
  p.num_drafts[slot] = 0;
  if (count <= 0) return;
  const int32_t begin = find_match(history, length, p.min_ngram, p.max_ngram);
  if (begin < 0) return;
  int32_t* drafts = p.draft_tokens.get() + int64_t{slot} * p.slots.max_drafts;
  for (int32_t i = 0; i < count; ++i) drafts[i] = sampler::continued(history, length, begin, i);
  p.num_drafts[slot] = count;
}

void ngram_drafts_kernel(const NgramDraftsParams& p, HostContext& context) {
  context.threads.parallel_for(sampler::request_count(p.requests), 1, [&](int64_t first, int64_t last, int) {
    for (int64_t b = first; b < last; ++b) {
      const int32_t slot = p.requests.slots[b];
      const bool samples = p.requests.sample_start_loc[b + 1] > p.requests.sample_start_loc[b];
      if (samples && sampler::is_slot(p.slots, slot)) draft_for(p, slot, p.wanted[b]);
    }
  });
}

}  // namespace

void ngram_drafts(Stream& stream, const NgramDraftsParams& params) {
  CHECK(params.min_ngram >= 1 && params.max_ngram >= params.min_ngram, "n-grams of {} to {} tokens", params.min_ngram,
        params.max_ngram);
  launch_op(stream, "ngram_drafts", &ngram_drafts_kernel, &CudaOps::ngram_drafts, params);
}

}  // namespace lantern
