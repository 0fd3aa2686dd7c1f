// What the two halves of the CUDA indexer share: scores of a group of tokens, then the choice from them.
#pragma once

#include "attention/indexer.h"

namespace lantern::cuda {

struct IndexScratch {
  float* query;    // [group, heads, dim], as its layout stores it, without the scale; f16 for the tensor cores
  float* weights;  // [group, heads], times the query's scale; rows of weight_stride
  float* scores;   // [group, row_stride]
  int64_t weight_stride;
  int64_t row_stride;  // a multiple of 4
};

__device__ inline int32_t context_len(const IndexSelectParams& p, int32_t t) {
  return p.step.token_request[t] < 0 ? 0 : p.step.token_context_len[t];
}
__device__ inline bool must_score(const IndexSelectParams& p, int32_t t) {
  return p.mode == IndexSelectParams::Mode::kScore && context_len(p, t) > p.top_k;
}
__device__ inline const int32_t* table_of(const IndexSelectParams& p, int32_t t) {
  return p.step.block_table.get() + int64_t{p.step.token_request[t]} * p.step.block_table_stride;
}

// s.scores of the tokens [first, first + tokens) that must be scored.
void index_scores(void* stream, const IndexSelectParams& p, const IndexScratch& s, int32_t first, int32_t tokens);
// Positions, slots and counts of all of them.
void index_choose(void* stream, const IndexSelectParams& p, const IndexScratch& s, int32_t first, int32_t tokens);

}  // namespace lantern::cuda
