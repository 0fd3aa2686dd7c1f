#include <algorithm>

#include "attention/plan/plan_host.h"
#include "attention/plan/plan_math.h"

namespace lantern::plan {
namespace {

void fill(const DevPtr<int32_t>& values, int64_t count, int32_t value) {
  if (values) std::fill_n(values.get(), count, value);
}

void plan_token_of_group(const PlanGroupParams& g, int32_t token, int32_t request, int32_t len) {
  const CacheGroup& group = g.group;
  const int32_t* row = g.block_table.get() + int64_t{request} * group.block_table_stride;
  if (len > 0) {
    const int32_t position = len - 1;
    const int32_t block = row[position / group.block_size];
    if (g.slot_mapping) g.slot_mapping[token] = slot_of(block, position, group.block_size);
    if (g.compressed_slot_mapping) {
      g.compressed_slot_mapping[token] = compressed_slot_of(block, position, group.block_size, group.compress_ratio);
    }
  }
  if (g.compressed_context_len) g.compressed_context_len[token] = len / group.compress_ratio;
  if (g.expanded_block_table) {
    int32_t* expanded = g.expanded_block_table.get() + int64_t{token} * group.max_blocks_per_request;
    // Entries that no length needs may hold anything; what leaves here lies in the pool.
    for (int32_t i = 0; i < group.max_blocks_per_request; ++i) {
      expanded[i] = row[i] >= 0 && row[i] < group.num_blocks ? row[i] : 0;
    }
  }
}

}  // namespace

void plan_tokens(const StepPlanParams& p) {
  const int32_t tokens = p.bucket.tokens;
  fill(p.token_request, tokens, -1);
  fill(p.token_context_len, tokens, 0);
  fill(p.local_context_len, tokens, 0);
  fill(p.decode_lens, tokens, 1);
  for (int32_t g = 0; g < p.num_groups; ++g) {
    fill(p.groups[g].slot_mapping, tokens, -1);
    fill(p.groups[g].compressed_context_len, tokens, 0);
    fill(p.groups[g].compressed_slot_mapping, tokens, -1);
    fill(p.groups[g].expanded_block_table, int64_t{tokens} * p.groups[g].group.max_blocks_per_request, 0);
  }
  for (int32_t b = 0; b < p.bucket.requests; ++b) {
    for (int32_t j = 0; j < p.query_len[b]; ++j) {
      const int32_t t = p.query_start[b] + j;
      const int32_t len = context_len(p.seq_len[b], p.query_len[b], j);
      p.token_request[t] = b;
      p.token_context_len[t] = len;
      if (p.local_context_len) {
        p.local_context_len[t] = local_context_len(len, p.dcp.world, p.dcp.rank, p.dcp.interleave);
      }
      for (int32_t g = 0; g < p.num_groups; ++g) plan_token_of_group(p.groups[g], t, b, len);
    }
  }
}

void plan_per_request(const StepPlanParams& p) {
  if (!p.per_request_context_lens) return;
  const int32_t width = p.bucket.query_width;
  for (int32_t b = 0; b < p.bucket.requests; ++b) {
    for (int32_t j = 0; j < width; ++j) {
      // Columns past a request's own tokens hold its full length: public kernels size their work by the last column.
      const int32_t len = j < p.query_len[b] ? context_len(p.seq_len[b], p.query_len[b], j) : p.seq_len[b];
      p.per_request_context_lens[int64_t{b} * width + j] = len;
    }
  }
}

}  // namespace lantern::plan
