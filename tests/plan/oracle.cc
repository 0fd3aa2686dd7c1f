#include "oracle.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/check.h"

namespace lantern::test {
namespace {

using Ints = std::vector<int32_t>;

// A case with the accessors that a definition uses: everything is 64 bits wide and bounds-checked.
struct Batch {
  const PlanCase& c;
  int64_t start(int64_t b) const { return c.query_start_loc.at(static_cast<size_t>(b)); }
  int64_t query_len(int64_t b) const { return start(b + 1) - start(b); }
  int64_t seq_len(int64_t b) const { return c.seq_lens.at(static_cast<size_t>(b)); }
  bool prefilling(int64_t b) const { return !c.prefilling.empty() && c.prefilling.at(static_cast<size_t>(b)) != 0; }
  // Missing entries are kMissingBlock.
  int64_t block(size_t group, int64_t b, int64_t entry) const {
    const Ints& row = c.block_table.at(group).at(static_cast<size_t>(b));
    return entry < static_cast<int64_t>(row.size()) ? row.at(static_cast<size_t>(entry)) : kMissingBlock;
  }
};

PlanFault fault_of(const Batch& batch, const BucketShape& bucket, int64_t b) {
  const PlanCase& c = batch.c;
  const int64_t tokens = std::min(c.num_tokens, bucket.tokens);
  if (b == 0 && batch.start(0) != 0) return PlanFault::kQueryStart;
  if (batch.query_len(b) < 0) return PlanFault::kQueryDecreases;
  if (batch.start(b) < 0) return PlanFault::kQueryDecreases;
  for (int64_t earlier = 0; earlier < b; ++earlier) {
    if (batch.start(earlier) <= tokens && batch.start(earlier) > batch.start(b)) return PlanFault::kQueryDecreases;
  }
  if (batch.start(b + 1) > tokens) return PlanFault::kQueryEnd;
  if (b == c.num_requests - 1 && batch.start(b + 1) != tokens) return PlanFault::kQueryEnd;
  const bool has_content = batch.query_len(b) != 0 || batch.seq_len(b) != 0;
  if (has_content && !batch.prefilling(b)) {
    for (int64_t earlier = 0; earlier < b; ++earlier) {
      const bool counts = batch.query_len(earlier) != 0 || batch.seq_len(earlier) != 0;
      if (counts && batch.prefilling(earlier)) return PlanFault::kDecodeAfterPrefill;
    }
    if (batch.query_len(b) > c.config.limits.max_query_len) return PlanFault::kQueryTooLong;
    if (batch.query_len(b) > bucket.query_width) return PlanFault::kQueryWiderThanBucket;
  }
  if (batch.seq_len(b) > c.config.limits.max_model_len) return PlanFault::kSeqLenTooLong;
  if (batch.seq_len(b) < batch.query_len(b)) return PlanFault::kSeqLenTooShort;
  for (size_t g = 0; g < c.config.groups.size(); ++g) {
    const CacheGroup& group = c.config.groups[g];
    std::set<int64_t> entries;  // that the length needs
    for (int64_t position = 0; position < batch.seq_len(b); ++position) entries.insert(position / group.block_size);
    if (static_cast<int64_t>(entries.size()) > group.max_blocks_per_request) return PlanFault::kTooFewBlocks;
    for (const int64_t entry : entries) {
      const int64_t block = batch.block(g, b, entry);
      if (block == kMissingBlock) return PlanFault::kTooFewBlocks;
      if (block < 0 || block >= group.num_blocks) return PlanFault::kBlockOutsidePool;
    }
  }
  if (c.config.drafts && !batch.prefilling(b) && batch.query_len(b) > 0) {
    const int64_t accepted = c.accepted.at(static_cast<size_t>(b));
    if (accepted < 0 || accepted >= batch.query_len(b)) return PlanFault::kAccepted;
  }
  return PlanFault::kNone;
}

// A request that stands: not padding and without fault.
struct Standing {
  int64_t request, start, query_len, seq_len;
  bool prefilling;
};

std::vector<Standing> standing_of(const Batch& batch, const BucketShape& bucket, PlanResult& r) {
  const PlanCase& c = batch.c;
  std::vector<Standing> list;
  if (c.num_tokens > bucket.tokens) r.errors.push_back({-1, PlanFault::kNumTokens});
  for (const CacheGroup& group : c.config.groups) {
    if (group.block_size % group.compress_ratio == 0) continue;
    r.errors.push_back({-1, PlanFault::kCompressRatio});
    return list;
  }
  if (c.num_requests == 0 && batch.start(0) != 0) {
    r.errors.push_back({-1, PlanFault::kQueryStart});
  } else if (c.num_requests == 0 && c.num_tokens != 0) {
    r.errors.push_back({-1, PlanFault::kQueryEnd});
  }
  for (int64_t b = 0; b < c.num_requests; ++b) {
    const PlanFault fault = fault_of(batch, bucket, b);
    if (fault != PlanFault::kNone) {
      r.errors.push_back({static_cast<int32_t>(b), fault});
    } else if (batch.query_len(b) != 0 || batch.seq_len(b) != 0) {
      list.push_back({b, batch.start(b), batch.query_len(b), batch.seq_len(b), batch.prefilling(b)});
    }
  }
  return list;
}

int32_t as_int(int64_t value) { return static_cast<int32_t>(value); }

void set(Ints& values, int64_t at, int64_t value) { values.at(static_cast<size_t>(at)) = as_int(value); }

// Tokens of [0, len) that a rank owns, counted one by one.
int64_t owned(int64_t len, const ContextShard& shard) {
  int64_t count = 0;
  for (int64_t i = 0; i < len; ++i) count += i / shard.interleave % shard.world == shard.rank ? 1 : 0;
  return count;
}

void plan_tokens(const Batch& batch, const std::vector<Standing>& rows, PlanResult& r) {
  const StepPlanConfig& config = batch.c.config;
  const auto tokens = static_cast<size_t>(r.bucket.tokens);
  r.token_request = Ints(tokens, -1);
  r.token_context_len = Ints(tokens, 0);
  if (config.dcp) r.local_context_len = Ints(tokens, 0);
  if (config.flattened) r.decode_lens = Ints(tokens, 1);
  for (const Standing& row : rows) {
    for (int64_t j = 0; j < row.query_len; ++j) {
      set(r.token_request, row.start + j, row.request);
      const int64_t len = row.seq_len - row.query_len + 1 + j;
      set(r.token_context_len, row.start + j, len);
      if (config.dcp) set(r.local_context_len, row.start + j, owned(len, *config.dcp));
    }
  }
  for (size_t g = 0; g < config.groups.size(); ++g) {
    const CacheGroup& group = config.groups[g];
    const auto width = static_cast<size_t>(group.max_blocks_per_request);
    PlanResult::Group& out = r.groups.emplace_back();
    out.slot_mapping = out.compressed_slot_mapping = Ints(tokens, -1);
    out.compressed_context_len = Ints(tokens, 0);
    if (config.flattened) out.expanded_block_table = Ints(tokens * width, 0);
    for (size_t t = 0; t < tokens; ++t) {
      const int64_t request = r.token_request[t];
      if (request < 0) continue;
      const int64_t position = r.token_context_len[t] - 1;
      const int64_t block = batch.block(g, request, position / group.block_size);
      const int64_t within = position % group.block_size;
      const bool window_ends = r.token_context_len[t] % group.compress_ratio == 0;
      if (block > 0) out.slot_mapping[t] = as_int(block * group.block_size + within);
      if (block > 0 && window_ends) {
        out.compressed_slot_mapping[t] =
            as_int(block * (group.block_size / group.compress_ratio) + within / group.compress_ratio);
      }
      out.compressed_context_len[t] = r.token_context_len[t] / group.compress_ratio;
      for (size_t i = 0; i < width && config.flattened; ++i) {
        const int64_t entry = batch.block(g, request, static_cast<int64_t>(i));
        const bool in_pool = entry >= 0 && entry < group.num_blocks;
        out.expanded_block_table[t * width + i] = in_pool ? as_int(entry) : 0;
      }
    }
  }
}

void plan_rows(const Batch& batch, const std::vector<Standing>& rows, PlanResult& r) {
  const auto requests = static_cast<size_t>(r.bucket.requests);
  r.query_start = r.query_len = r.seq_len = Ints(requests, 0);
  r.counts = Ints(kNumCounts, 0);
  const int64_t tokens = std::min(batch.c.num_tokens, r.bucket.tokens);
  set(r.counts, kPrefillRequestBegin, batch.c.num_requests);
  set(r.counts, kPrefillTokenBegin, tokens);
  bool any_prefill = false;
  for (const Standing& row : rows) {
    set(r.query_start, row.request, row.start);
    set(r.query_len, row.request, row.query_len);
    set(r.seq_len, row.request, row.seq_len);
    ++r.counts[row.prefilling ? kNumPrefills : kNumDecodes];
    r.counts[row.prefilling ? kNumPrefillTokens : kNumDecodeTokens] += as_int(row.query_len);
    if (row.prefilling && !any_prefill) {
      any_prefill = true;
      set(r.counts, kPrefillRequestBegin, row.request);
      set(r.counts, kPrefillTokenBegin, row.start);
    }
  }
  const bool usable = std::none_of(r.errors.begin(), r.errors.end(), [](const PlanResult::Fault& error) {
    return error.fault == PlanFault::kCompressRatio;
  });
  for (int64_t b = 0; b < batch.c.num_requests && usable; ++b) {
    const bool other_width = r.query_len.at(static_cast<size_t>(b)) != r.bucket.query_width;
    if (!batch.prefilling(b) && other_width) r.counts[kRequiresPadding] = 1;
  }
  r.counts[kNumErrors] = as_int(static_cast<int64_t>(r.errors.size()));
  if (!batch.c.config.per_request) return;
  for (size_t b = 0; b < requests; ++b) {
    for (int64_t j = 0; j < r.bucket.query_width; ++j) {
      const int64_t token = r.query_start[b] + j;
      const bool own = j < r.query_len[b];
      r.per_request_context_lens.push_back(own ? r.token_context_len.at(static_cast<size_t>(token)) : r.seq_len[b]);
    }
  }
}

// Every unit of work as the entry that a worker starting there would read; then the starts by dealing units out.
Ints deal(const std::vector<std::pair<int32_t, int32_t>>& units, std::pair<int32_t, int32_t> sentinel, int32_t workers,
          bool last_get_more) {
  const auto total = static_cast<int64_t>(units.size());
  Ints flat;
  int64_t next = 0;
  for (int32_t s = 0; s <= workers; ++s) {
    const auto entry = next < total ? units.at(static_cast<size_t>(next)) : sentinel;
    flat.push_back(entry.first);
    flat.push_back(entry.second);
    const int64_t rest = total % workers;
    const bool more = last_get_more ? s >= workers - rest : s < rest;
    next += total / workers + (more ? 1 : 0);
  }
  return flat;
}

void plan_paged_mqa(const StepPlanConfig& config, const std::vector<Standing>& rows, PlanResult& r) {
  if (config.workers == 0) return;
  const int32_t width = r.bucket.query_width;
  const int32_t atoms = width == 1 ? 1 : (width + 1) / 2;
  std::vector<std::pair<int32_t, int32_t>> units90, units100;
  for (const Standing& row : rows) {
    const int64_t last_column =
        std::min<int64_t>(row.seq_len, row.query_len == 0 ? row.seq_len : row.seq_len - row.query_len + width);
    for (int32_t atom = 0; atom < atoms; ++atom) {
      for (int32_t split = 0; int64_t{split} * 256 < last_column; ++split) {
        units90.emplace_back(as_int(row.request) * atoms + atom, split);
      }
    }
    for (int32_t split = 0; int64_t{split} * 256 < row.seq_len; ++split) {
      for (int64_t j = 0; j < row.query_len; ++j) units100.emplace_back(as_int(row.start), split);
    }
  }
  r.paged_mqa_sm90 = deal(units90, {r.bucket.requests * atoms, 0}, config.workers, true);
  r.paged_mqa_sm100 = deal(units100, {r.bucket.tokens, 0}, config.workers, false);
}

// Parts take one block after another while their payload lasts.
void plan_mla(const Batch& batch, PlanResult& r) {
  if (!batch.c.config.mla) return;
  const MlaTiles& mla = *batch.c.config.mla;
  const int64_t overhead = mla.fixed_overhead_blocks;
  struct Request {
    int64_t keys, blocks, splits = 0;
  };
  std::vector<Request> requests;
  int64_t total = 0;
  for (int64_t b = 0; b < batch.c.num_requests; ++b) {
    int64_t keys = r.seq_len.at(static_cast<size_t>(b));
    if (mla.topk > 0) keys = std::max<int64_t>(1, std::min<int64_t>(keys, mla.topk));
    const int64_t blocks = std::max<int64_t>(1, (keys + 63) / 64);
    requests.push_back({keys, blocks});
    total += blocks + overhead;
  }
  const int64_t payload = (total + mla.parts - 1) / mla.parts + overhead;
  size_t now = 0;
  int64_t done = 0;  // blocks of `now` that earlier parts took
  for (int32_t part = 0; part < mla.parts; ++part) {
    if (now == requests.size()) {
      const Ints idle = {r.bucket.requests, r.bucket.requests - 1, 0, 0, 0, 0, 0, 0};
      r.mla_tiles.insert(r.mla_tiles.end(), idle.begin(), idle.end());
      continue;
    }
    std::map<size_t, std::pair<int64_t, int64_t>> taken;  // request -> blocks [begin, end)
    const int64_t begin_split = requests[now].splits;
    int64_t left = payload;
    while (now < requests.size()) {
      // A request is finished here if the rest of it and what starting costs both fit; else as much as fits.
      const int64_t rest = requests[now].blocks - done;
      const int64_t take = std::min(rest, left - overhead);
      if (take <= 0) break;
      taken[now] = {done, done + take};
      ++requests[now].splits;
      left -= take + overhead;
      done += take;
      if (done < requests[now].blocks) break;
      ++now;
      done = 0;
    }
    CHECK(!taken.empty(), "part {} of {} took nothing", part, mla.parts);
    const auto& [first, first_range] = *taken.begin();
    const auto& [last, last_range] = *taken.rbegin();
    const bool first_whole = first_range.first == 0 && (first != last || first_range.second == requests[first].blocks);
    const bool last_whole = last_range.second == requests[last].blocks && (first != last || last_range.first == 0);
    const int64_t end_block = requests[last].keys == 0 ? 0 : last_range.second;
    const Ints tile = {as_int(static_cast<int64_t>(first)),
                       as_int(static_cast<int64_t>(last)),
                       as_int(first_range.first),
                       as_int(end_block),
                       as_int(begin_split),
                       first_whole ? 0 : 1,
                       last_whole ? 0 : 1,
                       0};
    r.mla_tiles.insert(r.mla_tiles.end(), tile.begin(), tile.end());
  }
  CHECK(now == requests.size(), "{} of {} requests were given to parts", now, requests.size());
  r.mla_num_splits = {0};
  for (int64_t b = 0; b < r.bucket.requests; ++b) {
    const bool real = b < batch.c.num_requests;
    r.mla_num_splits.push_back(r.mla_num_splits.back() + (real ? as_int(requests[static_cast<size_t>(b)].splits) : 0));
  }
}

void plan_chunks(const StepPlanConfig& config, const std::vector<Standing>& rows, PlanResult& r) {
  if (!config.prefill) return;
  const int64_t scores = config.prefill->logits_bytes / 4;
  const int64_t ratio = config.groups[0].compress_ratio;
  // Candidate chunks [first, last] among neighbouring prefills, longest first.
  const auto fits = [&](size_t first, size_t last) {
    int64_t queries = 0, keys = 0;
    for (size_t i = first; i <= last; ++i) {
      if (!rows[i].prefilling || rows[i].request != rows[first].request + static_cast<int64_t>(i - first)) return false;
      queries += rows[i].query_len;
      keys += rows[i].seq_len / ratio;
    }
    return keys <= config.prefill->workspace_tokens && queries * keys <= scores;
  };
  for (size_t i = 0; i < rows.size();) {
    if (!rows[i].prefilling) {
      ++i;
      continue;
    }
    size_t last = i;
    while (last + 1 < rows.size() && fits(i, last + 1)) ++last;
    const int64_t begin = rows[i].start, end = rows[last].start + rows[last].query_len;
    const int64_t keys = rows[i].seq_len / ratio;
    // One request alone may be too much for the scores: then each piece has the most queries that fit, at least one.
    int64_t piece = end - begin;
    if (last == i && piece * keys > scores) piece = std::max<int64_t>(1, scores / keys);
    for (int64_t at = begin; at < end; at += piece) {
      const int64_t chunk[4] = {rows[i].request, rows[last].request + 1, at, std::min(at + piece, end)};
      for (const int64_t value : chunk) r.prefill_chunks.push_back(as_int(value));
      ++r.counts[kNumPrefillChunks];
    }
    i = last + 1;
  }
}

void plan_drafts(const Batch& batch, const std::vector<Standing>& rows, PlanResult& r) {
  const StepPlanConfig& config = batch.c.config;
  if (!config.drafts) return;
  const auto requests = static_cast<size_t>(r.bucket.requests);
  for (int32_t b = 0; b <= r.bucket.requests; ++b) r.draft_query_start_loc.push_back(std::min(b, batch.c.num_requests));
  r.draft_token_indices = Ints(requests, -1);
  const int64_t steps = std::max(0, config.limits.max_query_len - 2);
  const auto entries = static_cast<size_t>(steps) * requests;
  r.draft_seq_lens = r.draft_positions = Ints(entries, 0);
  for (PlanResult::Group& group : r.groups) group.draft_slot_mapping = Ints(entries, -1);
  for (const Standing& row : rows) {
    if (row.query_len == 0) continue;
    const int64_t accepted = row.prefilling ? row.query_len - 1 : batch.c.accepted.at(static_cast<size_t>(row.request));
    const int64_t last_accepted = row.start + accepted;
    set(r.draft_token_indices, row.request, last_accepted);
    int64_t position = row.seq_len - row.query_len + accepted;
    for (int64_t s = 0; s < steps; ++s) {
      ++position;
      const int64_t at = s * r.bucket.requests + row.request;
      const bool beyond = position >= config.limits.max_model_len;
      set(r.draft_positions, at, beyond ? 0 : position);
      set(r.draft_seq_lens, at, beyond ? 1 : position + 1);
      for (size_t g = 0; g < config.groups.size() && !beyond; ++g) {
        const CacheGroup& group = config.groups[g];
        const int64_t entry = position / group.block_size;
        const int64_t block = entry < group.max_blocks_per_request ? batch.block(g, row.request, entry) : 0;
        if (block <= 0 || block >= group.num_blocks) continue;
        set(r.groups[g].draft_slot_mapping, at, block * group.block_size + position % group.block_size);
      }
    }
  }
}

}  // namespace

PlanResult oracle_plan(const PlanCase& c) {
  CHECK(!c.config.groups.empty(), "the oracle wants its cache groups spelt out");
  const Batch batch{c};
  PlanResult r;
  r.bucket = bucket_of(c);
  const std::vector<Standing> rows = standing_of(batch, r.bucket, r);
  plan_tokens(batch, rows, r);
  plan_rows(batch, rows, r);
  plan_paged_mqa(c.config, rows, r);
  plan_mla(batch, r);
  plan_chunks(c.config, rows, r);
  plan_drafts(batch, rows, r);
  return r;
}

std::string differences(const PlanResult& got, const PlanResult& want) {
  std::string text;
  const auto compare = [&](const std::string& name, const Ints& a, const Ints& b) {
    if (a != b) text += fmt::format("{}\n   got {}\n  want {}\n", name, a, b);
  };
  compare("counts", got.counts, want.counts);
  compare("query_start", got.query_start, want.query_start);
  compare("query_len", got.query_len, want.query_len);
  compare("seq_len", got.seq_len, want.seq_len);
  compare("token_request", got.token_request, want.token_request);
  compare("token_context_len", got.token_context_len, want.token_context_len);
  compare("local_context_len", got.local_context_len, want.local_context_len);
  compare("decode_lens", got.decode_lens, want.decode_lens);
  compare("per_request_context_lens", got.per_request_context_lens, want.per_request_context_lens);
  compare("paged_mqa_sm90", got.paged_mqa_sm90, want.paged_mqa_sm90);
  compare("paged_mqa_sm100", got.paged_mqa_sm100, want.paged_mqa_sm100);
  compare("mla_tiles", got.mla_tiles, want.mla_tiles);
  compare("mla_num_splits", got.mla_num_splits, want.mla_num_splits);
  compare("prefill_chunks", got.prefill_chunks, want.prefill_chunks);
  compare("draft_query_start_loc", got.draft_query_start_loc, want.draft_query_start_loc);
  compare("draft_token_indices", got.draft_token_indices, want.draft_token_indices);
  compare("draft_seq_lens", got.draft_seq_lens, want.draft_seq_lens);
  compare("draft_positions", got.draft_positions, want.draft_positions);
  if (got.groups.size() != want.groups.size()) text += "number of groups\n";
  for (size_t g = 0; g < std::min(got.groups.size(), want.groups.size()); ++g) {
    const std::string prefix = fmt::format("group {} ", g);
    compare(prefix + "slot_mapping", got.groups[g].slot_mapping, want.groups[g].slot_mapping);
    compare(prefix + "compressed_context_len", got.groups[g].compressed_context_len,
            want.groups[g].compressed_context_len);
    compare(prefix + "compressed_slot_mapping", got.groups[g].compressed_slot_mapping,
            want.groups[g].compressed_slot_mapping);
    compare(prefix + "expanded_block_table", got.groups[g].expanded_block_table, want.groups[g].expanded_block_table);
    compare(prefix + "draft_slot_mapping", got.groups[g].draft_slot_mapping, want.groups[g].draft_slot_mapping);
  }
  const auto flat = [](const PlanResult& r) {
    Ints list;
    for (const PlanResult::Fault& error : r.errors) {
      list.push_back(error.request);
      list.push_back(static_cast<int32_t>(error.fault));
    }
    return list;
  };
  compare("errors", flat(got), flat(want));
  return text;
}

}  // namespace lantern::test
