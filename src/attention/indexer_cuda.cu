// Tokens are scored in groups, each into a row of scores over all its keys; then a block for each token chooses from
// its row. Which tokens must be scored is known on the device only: blocks of others have little to do.
#include "attention/indexer_cuda.cuh"

#include "attention/cuda_launches.h"
#include "attention/index_scratch.h"
#include "device/cuda/launch.cuh"

namespace lantern::cuda {

void index_select(void* stream, const IndexSelectParams& p) {
  CHECK(p.dim > 0 && p.dim <= kMaxIndexDim, "index keys of {} values; at most {} are supported", p.dim, kMaxIndexDim);
  IndexScratch s{};
  s.row_stride = (int64_t{p.step.block_table_stride} * p.step.block_size + 3) / 4 * 4;
  s.weight_stride = (p.heads + 3) / 4 * 4;
  const int64_t room = p.scratch_bytes / 4 / index_token_floats(s.row_stride, p.heads, p.dim);
  CHECK(room > 0, "index_select of {} heads over up to {} keys got {} bytes of scratch", p.heads, s.row_stride,
        p.scratch_bytes);
  const auto group = static_cast<int32_t>(std::min<int64_t>(room, kIndexGroup));
  s.scores = reinterpret_cast<float*>(p.scratch.get());
  s.query = s.scores + group * s.row_stride;
  s.weights = s.query + int64_t{group} * p.heads * p.dim;
  for (int32_t first = 0; first < p.step.tokens; first += group) {
    const int32_t tokens = std::min(group, p.step.tokens - first);
    if (p.mode == IndexSelectParams::Mode::kScore) index_scores(stream, p, s, first, tokens);
    index_choose(stream, p, s, first, tokens);
  }
}

}  // namespace lantern::cuda
