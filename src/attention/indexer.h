// The lightning indexer of DeepSeek Sparse Attention: scores every visible key and keeps the top_k per token.
//   score(t, s) = sum_h weights[t, h] * relu(q[t, h] . key[s])        (key and query as their layouts store them)
// A token that sees at most top_k keys takes all of them without scoring. Otherwise the choice is exact under ties: the
// larger score first, the lower position first among equals. Scores are float, each head's dot product and the heads
// added in one fixed order of each device, so that a choice does not depend on batch, chunk or thread count.
#pragma once

#include <cstddef>
#include <cstdint>

#include "attention/cache_layout.h"
#include "attention/step_view.h"
#include "device/stream.h"

namespace lantern {

struct IndexSelectParams {
  StepView step;
  DevPtr<const float> query;    // [tokens, heads, dim], contiguous; rotated
  DevPtr<const float> weights;  // [tokens, heads]; already times heads^-0.5 * dim^-0.5
  int32_t heads = 0;
  int32_t dim = 0;
  int32_t top_k = 0;
  DevPtr<const std::byte> cache;
  int64_t block_bytes = 0;
  IndexKeyLayout layout = IndexKeyLayout::kFp8;  // with kFp8 the query is rounded to e4m3 per head as well
  bool hadamard = false;
  // kRecent takes the last top_k positions instead: the control experiment that shows what the indexer is worth.
  enum class Mode : uint8_t { kScore, kRecent } mode = Mode::kScore;

  DevPtr<int32_t> positions;  // [tokens, top_k], ascending; -1 beyond the count
  DevPtr<int32_t> slots;      // [tokens, top_k], physical slots in the same order; -1 beyond the count
  DevPtr<int32_t> counts;     // [tokens] = min(context length, top_k)
  // Optional: the attention's own query, [heads of the attention] rows for each token at the strides of mla.h. Where a
  // token's scores are not all numbers, a choice from them means nothing: each of its rows then begins with NaN, so
  // that what attends by the choice is NaN as well.
  DevPtr<float> attention_q = {};
  int32_t attention_heads = 0;
  int64_t q_token_stride = 0;
  int64_t q_head_stride = 0;
  DevPtr<std::byte> scratch;  // index_scratch_bytes()
  int64_t scratch_bytes = 0;
};
// Scratch for steps of up to max_context keys; does not grow with the number of tokens.
int64_t index_scratch_bytes(int32_t max_context, int32_t heads, int32_t dim, int32_t threads);
void index_select(Stream& stream, const IndexSelectParams& params);

// Rows of a selection move to its front: row rows[i] becomes row i. In place.
struct KeepSelectionParams {
  DevPtr<const int32_t> rows;  // [count], ascending but for -1: row i becomes empty
  DevPtr<int32_t> positions;   // [tokens, top_k]
  DevPtr<int32_t> slots;       // [tokens, top_k]
  DevPtr<int32_t> counts;      // [tokens]
  int32_t top_k = 0;
  int32_t count = 0;
};
void keep_selection(Stream& stream, const KeepSelectionParams& params);

}  // namespace lantern
