// Worked values of the public decode paths, computed by hand or from their published algorithms. Where a public value
// follows a public fault (lengths by the widest query, a split by shape), the request's own query length and its
// `prefilling` flag decide instead.
#include <gtest/gtest.h>

#include "attention/plan/plan_math.h"
#include "plan_cases.h"

namespace lantern::test {
namespace {

using Pairs = std::vector<std::pair<int32_t, int32_t>>;

Pairs pairs(const Ints& flat) {
  Pairs list;
  for (size_t i = 0; i + 1 < flat.size(); i += 2) list.emplace_back(flat[i], flat[i + 1]);
  return list;
}

TEST(Lengths, EachRequestCountsByItsOwnQueryLength) {
  PlanCase c = make_case({10, 7, 12, 0}, {3, 1, 4, 0}, 4);
  c.bucket_tokens = 12;
  const PlanResult r = run_poisoned(c);
  EXPECT_EQ(r.errors.size(), 0u);
  EXPECT_EQ(r.token_context_len, (Ints{8, 9, 10, 7, 9, 10, 11, 12, 0, 0, 0, 0}));
  EXPECT_EQ(r.token_request, (Ints{0, 0, 0, 1, 2, 2, 2, 2, -1, -1, -1, -1}));
  EXPECT_EQ(r.groups[0].slot_mapping, (Ints{71, 72, 73, 134, 200, 201, 202, 203, -1, -1, -1, -1}));
}

TEST(Lengths, APaddedRequestHasNone) {
  PlanCase c = make_case({10, 20, 0}, {4, 4, 0}, 4);
  c.bucket_tokens = 12;
  EXPECT_EQ(run_poisoned(c).token_context_len, (Ints{7, 8, 9, 10, 17, 18, 19, 20, 0, 0, 0, 0}));
}

TEST(Lengths, NothingIsNegative) {
  // A request shorter than the widest query: its own two tokens see one and two keys.
  PlanCase c = make_case({2, 9}, {2, 4}, 4);
  c.config.per_request = true;
  const PlanResult r = run_poisoned(c);
  EXPECT_EQ(r.token_context_len, (Ints{1, 2, 6, 7, 8, 9}));
  EXPECT_EQ(r.per_request_context_lens, (Ints{1, 2, 2, 2, 6, 7, 8, 9}));
  // The clamp itself.
  EXPECT_EQ(plan::context_len(2, 4, 0), 0);
  EXPECT_EQ(plan::context_len(2, 4, 1), 0);
  EXPECT_EQ(plan::context_len(2, 4, 2), 1);
  EXPECT_EQ(plan::context_len(2, 4, 3), 2);
}

TEST(Lengths, CompressionDividesAfterExpansion) {
  PlanCase c = make_case({105, 203}, {5, 3}, 5, 128);
  CacheGroup group = StepPlanConfig::group_of(c.config.limits);
  group.compress_ratio = 4;
  c.config.groups = {group};
  const PlanResult r = run_poisoned(c);
  EXPECT_EQ(r.groups[0].compressed_context_len, (Ints{25, 25, 25, 26, 26, 50, 50, 50}));
  // Windows end at the lengths 104 and 204 (not reached): one slot, the 26th of block 1 with its 32 entries.
  EXPECT_EQ(r.groups[0].compressed_slot_mapping, (Ints{-1, -1, -1, 1 * 32 + 25, -1, -1, -1, -1}));
  EXPECT_EQ(r.groups[0].slot_mapping[0], 1 * 128 + 100);
}

TEST(Lengths, ShardsAreCutFromGlobalLengths) {
  PlanCase c = make_case({10}, {3}, 3);
  c.config.dcp = ContextShard{2, 0, 1};
  EXPECT_EQ(run_poisoned(c).local_context_len, (Ints{4, 5, 5}));
  c.config.dcp->rank = 1;
  EXPECT_EQ(run_poisoned(c).local_context_len, (Ints{4, 4, 5}));

  const Ints lengths = {0, 1, 2, 3, 4, 5, 8, 9, 10, 17, 64, 65};
  const std::pair<ContextShard, Ints> table[] = {
      {{2, 0, 1}, {0, 1, 1, 2, 2, 3, 4, 5, 5, 9, 32, 33}}, {{2, 1, 1}, {0, 0, 1, 1, 2, 2, 4, 4, 5, 8, 32, 32}},
      {{2, 0, 2}, {0, 1, 2, 2, 2, 3, 4, 5, 6, 9, 32, 33}}, {{2, 1, 2}, {0, 0, 0, 1, 2, 2, 4, 4, 4, 8, 32, 32}},
      {{4, 3, 1}, {0, 0, 0, 0, 1, 1, 2, 2, 2, 4, 16, 16}}, {{4, 1, 16}, {0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 16, 16}},
  };
  for (const auto& [shard, expected] : table) {
    for (size_t i = 0; i < lengths.size(); ++i) {
      EXPECT_EQ(plan::local_context_len(lengths[i], shard.world, shard.rank, shard.interleave), expected[i])
          << "world " << shard.world << " rank " << shard.rank << " interleave " << shard.interleave << " length "
          << lengths[i];
    }
  }
}

// Lengths of a captured decode of two tokens a request, the last of four requests padding.
TEST(Views, APaddedGraphWithDrafts) {
  PlanCase c = make_case({300, 300, 300, 0}, {2, 2, 2, 0}, 2);
  c.bucket_tokens = 8;
  c.config.flattened = true;
  c.config.per_request = true;
  const PlanResult r = run_poisoned(c);
  EXPECT_EQ(r.token_context_len, (Ints{299, 300, 299, 300, 299, 300, 0, 0}));
  EXPECT_EQ(r.per_request_context_lens, (Ints{299, 300, 299, 300, 299, 300, 0, 0}));
  EXPECT_EQ(r.decode_lens, Ints(8, 1));
  EXPECT_EQ(r.token_request, (Ints{0, 0, 1, 1, 2, 2, -1, -1}));
  ASSERT_EQ(r.groups[0].expanded_block_table.size(), 8u * 5);
  EXPECT_EQ(Ints(r.groups[0].expanded_block_table.begin() + 30, r.groups[0].expanded_block_table.end()), Ints(10, 0));
  EXPECT_EQ(r.counts[kNumDecodes], 3);
  EXPECT_EQ(r.counts[kNumDecodeTokens], 6);
}

TEST(Views, TheExpandedTableRepeatsRows) {
  PlanCase c = make_case({100, 200, 300}, {3, 1, 3}, 3);
  c.config.flattened = true;
  c.config.limits.max_blocks_per_request = 1876;
  c.config.limits.num_blocks = 3 * 1876 + 1;
  Ints expected;
  for (int32_t b = 0; b < 3; ++b) {
    Ints& row = c.block_table[0][static_cast<size_t>(b)];
    row.clear();
    for (int32_t i = 0; i < 1876; ++i) row.push_back(1 + (i * 3 + b) % (3 * 1876));
    for (int32_t j = 0; j < (b == 1 ? 1 : 3); ++j) expected.insert(expected.end(), row.begin(), row.end());
  }
  EXPECT_EQ(run_poisoned(c).groups[0].expanded_block_table, expected);
  // A table one entry too narrow for its longest request is refused, not cut.
  PlanCase narrow = make_case({100, 300}, {1, 1}, 1);
  narrow.config.limits.max_blocks_per_request = 4;
  EXPECT_EQ(faults(run_poisoned(narrow)), (std::vector<std::pair<int32_t, PlanFault>>{{1, PlanFault::kTooFewBlocks}}));
}

TEST(Split, IsByFlagAndNotByShape) {
  PlanCase c = make_case({9, 4}, {4, 4}, 4);
  EXPECT_EQ(run_poisoned(c).counts[kNumDecodes], 2);
  c.prefilling = {0, 1};  // a prompt, or the tail of one, with exactly as many tokens as a decode
  const PlanResult r = run_poisoned(c);
  EXPECT_EQ(r.counts[kNumDecodes], 1);
  EXPECT_EQ(r.counts[kNumPrefills], 1);
  EXPECT_EQ(r.counts[kNumDecodeTokens], 4);
  EXPECT_EQ(r.counts[kNumPrefillTokens], 4);
  EXPECT_EQ(r.counts[kPrefillRequestBegin], 1);
  EXPECT_EQ(r.counts[kPrefillTokenBegin], 4);
}

TEST(Split, PaddingIsNoDecode) {
  PlanCase c = make_case({110, 110, 110, 110, 110, 110, 0}, {110, 110, 110, 110, 110, 110, 0}, 110);
  const PlanResult r = run_poisoned(c);
  EXPECT_EQ(r.counts[kNumDecodes], 6);
  EXPECT_EQ(r.counts[kNumDecodeTokens], 660);
  EXPECT_EQ(r.query_len, (Ints{110, 110, 110, 110, 110, 110, 0}));
  EXPECT_EQ(r.seq_len, (Ints{110, 110, 110, 110, 110, 110, 0}));
  PlanCase prefill = make_case({50}, {50}, 1);
  prefill.prefilling = {1};
  const PlanResult p = run_poisoned(prefill);
  EXPECT_EQ(p.counts[kNumDecodes], 0);
  EXPECT_EQ(p.counts[kNumPrefills], 1);
  EXPECT_EQ(p.counts[kNumPrefillTokens], 50);
}

std::vector<Ints> chunks(const Ints& seq_lens, const Ints& query_lens, int32_t workspace, int64_t bytes,
                         int32_t ratio = 1) {
  PlanCase c = make_case(seq_lens, query_lens, 1);
  c.prefilling = Ints(seq_lens.size(), 1);
  c.config.prefill = PrefillBudget{workspace, bytes};
  c.config.groups = {StepPlanConfig::group_of(c.config.limits)};
  c.config.groups[0].compress_ratio = ratio;
  const PlanResult r = run_poisoned(c);
  std::vector<Ints> list;
  for (size_t i = 0; i < r.prefill_chunks.size(); i += 4) {
    list.emplace_back(r.prefill_chunks.begin() + static_cast<std::ptrdiff_t>(i),
                      r.prefill_chunks.begin() + static_cast<std::ptrdiff_t>(i) + 4);
  }
  return list;
}

TEST(PrefillChunks, KeepBothBudgets) {
  using List = std::vector<Ints>;
  EXPECT_EQ(chunks({0}, {0}, 100, 1000), List{});
  EXPECT_EQ(chunks({100, 100, 100}, {10, 10, 10}, 1000, 5000), (List{{0, 1, 0, 10}, {1, 2, 10, 20}, {2, 3, 20, 30}}));
  EXPECT_EQ(chunks({10, 10, 10}, {5, 5, 5}, 100, 10000), (List{{0, 3, 0, 15}}));
  EXPECT_EQ(chunks({50, 50, 50}, {1, 1, 1}, 50, 1000000), (List{{0, 1, 0, 1}, {1, 2, 1, 2}, {2, 3, 2, 3}}));
  EXPECT_EQ(chunks({10, 10, 10}, {5, 5, 5}, 100, 1000), (List{{0, 2, 0, 10}, {2, 3, 10, 15}}));
  // A request beyond the logits budget is cut along its queries: 1000 keys leave room for none of 250 scores.
  List overflow;
  for (int32_t q = 0; q < 100; ++q) overflow.push_back({0, 1, q, q + 1});
  overflow.push_back({1, 2, 100, 105});
  EXPECT_EQ(chunks({1000, 50}, {100, 5}, 2000, 1000), overflow);
  // 250 scores of 100 keys are two queries at a time; the rest makes a chunk of one.
  EXPECT_EQ(chunks({100}, {5}, 2000, 1000), (List{{0, 1, 0, 2}, {0, 1, 2, 4}, {0, 1, 4, 5}}));
  // Both budgets count compressed keys.
  EXPECT_EQ(chunks({100, 100}, {10, 10}, 50, 4000, 4), (List{{0, 2, 0, 20}}));
  EXPECT_EQ(chunks({100, 100}, {10, 10}, 49, 4000, 4), (List{{0, 1, 0, 10}, {1, 2, 10, 20}}));
}

TEST(PrefillChunks, StartBehindTheDecodes) {
  PlanCase c = make_case({8, 30, 20}, {2, 6, 4}, 2);
  c.prefilling = {0, 1, 1};
  c.config.prefill = PrefillBudget{1000, 1 << 20};
  EXPECT_EQ(run_poisoned(c).prefill_chunks, (Ints{1, 3, 2, 12}));
}

PlanResult scheduled(const Ints& seq_lens, const Ints& query_lens, int32_t width, int32_t workers) {
  PlanCase c = make_case(seq_lens, query_lens, width);
  c.bucket_query_width = width;
  c.config.per_request = true;
  c.config.workers = workers;
  return run_poisoned(c);
}

TEST(PagedMqa, Sm90GivesTheLastWorkersOneMore) {
  EXPECT_EQ(pairs(scheduled({300, 1000}, {1, 1}, 1, 4).paged_mqa_sm90),
            (Pairs{{0, 0}, {0, 1}, {1, 0}, {1, 2}, {2, 0}}));
  EXPECT_EQ(pairs(scheduled({300, 0, 1025}, {2, 0, 2}, 2, 4).paged_mqa_sm90),
            (Pairs{{0, 0}, {0, 1}, {2, 1}, {2, 3}, {3, 0}}));
  EXPECT_EQ(pairs(scheduled({300, 512}, {4, 4}, 4, 6).paged_mqa_sm90),
            (Pairs{{0, 0}, {0, 1}, {1, 0}, {1, 1}, {2, 0}, {3, 0}, {4, 0}}));
  EXPECT_EQ(pairs(scheduled({1}, {1}, 1, 4).paged_mqa_sm90), (Pairs{{0, 0}, {0, 0}, {0, 0}, {0, 0}, {1, 0}}));
}

TEST(PagedMqa, Sm100GivesTheFirstWorkersOneMore) {
  EXPECT_EQ(pairs(scheduled({300, 1000}, {1, 1}, 1, 4).paged_mqa_sm100),
            (Pairs{{0, 0}, {1, 0}, {1, 2}, {1, 3}, {2, 0}}));
  // The second request's two rows are padding: it has fewer keys than tokens.
  EXPECT_EQ(pairs(scheduled({300, 0, 1025}, {2, 2, 2}, 2, 4).paged_mqa_sm100),
            (Pairs{{0, 0}, {4, 0}, {4, 2}, {4, 3}, {6, 0}}));
  EXPECT_EQ(pairs(scheduled({1000, 700, 2000}, {3, 1, 1}, 3, 4).paged_mqa_sm100),
            (Pairs{{0, 0}, {0, 2}, {3, 0}, {4, 3}, {5, 0}}));
}

TEST(PagedMqa, NoWorkIsTheSentinelEverywhere) {
  for (const int32_t requests : {3, 32}) {
    const auto count = static_cast<size_t>(requests);
    PlanCase c = make_case(Ints(count, 0), Ints(count, 0), 1);
    c.bucket_tokens = requests;
    c.config.workers = 4;
    const PlanResult r = run_poisoned(c);
    EXPECT_EQ(pairs(r.paged_mqa_sm90), Pairs(5, {requests, 0}));
    EXPECT_EQ(pairs(r.paged_mqa_sm100), Pairs(5, {requests, 0}));
  }
}

struct Tiles {
  std::vector<Ints> tiles;
  Ints num_splits;
};
Tiles tiles(const Ints& seq_lens, int32_t parts, int32_t topk, int32_t more_rows = 0) {
  PlanCase c = make_case(seq_lens, Ints(seq_lens.size(), 0), 1);
  for (int32_t i = 0; i < c.num_requests; ++i) {
    if (seq_lens[static_cast<size_t>(i)] > 0) ++c.num_tokens;
    c.query_start_loc[static_cast<size_t>(i) + 1] = c.num_tokens;
  }
  c.config.limits.max_requests += more_rows;
  c.config.limits.max_tokens += more_rows;
  c.bucket_requests = c.num_requests + more_rows;
  c.config.mla = MlaTiles{parts, 5, topk};
  const PlanResult r = run_poisoned(c);
  Tiles out{{}, r.mla_num_splits};
  for (size_t i = 0; i < r.mla_tiles.size(); i += 8) {
    out.tiles.emplace_back(r.mla_tiles.begin() + static_cast<std::ptrdiff_t>(i),
                           r.mla_tiles.begin() + static_cast<std::ptrdiff_t>(i) + 8);
  }
  return out;
}

TEST(MlaTiles, GoldenSchedules) {
  // begin request, end request, begin block, end block, begin split, first is split, last is split, 0
  const Tiles two = tiles({4000, 5000}, 4, 2048);
  EXPECT_EQ(two.num_splits, (Ints{0, 2, 5}));
  EXPECT_EQ(two.tiles, (std::vector<Ints>{{0, 0, 0, 19, 0, 1, 1, 0},
                                          {0, 1, 19, 1, 1, 1, 1, 0},
                                          {1, 1, 1, 20, 1, 1, 1, 0},
                                          {1, 1, 20, 32, 2, 1, 1, 0}}));
  EXPECT_EQ(tiles({4000, 4000, 4000}, 4, 2048).num_splits, (Ints{0, 2, 4, 6}));
  const Tiles dense = tiles({100, 1000, 0, 64}, 4, 0);
  EXPECT_EQ(dense.num_splits, (Ints{0, 1, 4, 5, 6}));
  EXPECT_EQ(
      dense.tiles,
      (std::vector<Ints>{
          {0, 1, 0, 3, 0, 0, 1, 0}, {1, 1, 3, 13, 1, 1, 1, 0}, {1, 2, 13, 0, 2, 1, 0, 0}, {3, 3, 0, 1, 0, 0, 0, 0}}));
  EXPECT_EQ(tiles({100, 1000, 0, 64}, 1, 0).num_splits, (Ints{0, 1, 2, 3, 4}));
}

TEST(MlaTiles, RowsBeyondTheBatchOwnNothing) {
  const Tiles padded = tiles({64, 64}, 8, 0, 3);
  EXPECT_EQ(padded.num_splits, (Ints{0, 1, 2, 2, 2, 2}));
  EXPECT_EQ(padded.tiles.back(), (Ints{5, 4, 0, 0, 0, 0, 0, 0}));
  const Tiles nothing = tiles({}, 2, 0, 2);
  EXPECT_EQ(nothing.num_splits, (Ints{0, 0, 0}));
  EXPECT_EQ(nothing.tiles, std::vector<Ints>(2, {2, 1, 0, 0, 0, 0, 0, 0}));
}

TEST(Drafts, RejectedTokensAreTakenBack) {
  // Four tokens of which none, three and one draft were accepted; blocks for what may come.
  PlanCase c = make_case({46, 46, 46}, {4, 4, 4}, 5, 16);
  c.config.limits.max_model_len = 1000;
  c.config.limits.max_blocks_per_request = 4;
  c.config.limits.num_blocks = 20;
  for (int32_t b = 0; b < 3; ++b) c.block_table[0][static_cast<size_t>(b)].push_back(13 + b);
  c.config.drafts = true;
  c.accepted = {0, 3, 1};
  const PlanResult r = run_poisoned(c);
  // 46 - 3 keys are left of the first request; each step adds one.
  EXPECT_EQ(r.draft_seq_lens, (Ints{44, 47, 45, 45, 48, 46, 46, 49, 47}));
  EXPECT_EQ(r.draft_positions, (Ints{43, 46, 44, 44, 47, 45, 45, 48, 46}));
  EXPECT_EQ(r.draft_token_indices, (Ints{0, 7, 9}));
  EXPECT_EQ(r.draft_query_start_loc, (Ints{0, 1, 2, 3}));
  EXPECT_EQ(r.groups[0].draft_slot_mapping, (Ints{3 * 16 + 11, 6 * 16 + 14, 9 * 16 + 12,  //
                                                  3 * 16 + 12, 6 * 16 + 15, 9 * 16 + 13,  //
                                                  3 * 16 + 13, 14 * 16 + 0, 9 * 16 + 14}));
}

TEST(Drafts, NothingIsWrittenBeyondTheLongestContext) {
  PlanCase c = make_case({62}, {4}, 4);
  c.config.limits.max_model_len = 63;
  c.config.drafts = true;
  c.accepted = {3};
  c.bucket_requests = 2;
  c.config.limits.max_requests = 2;
  c.config.limits.max_tokens = 8;
  const PlanResult r = run_poisoned(c);
  EXPECT_EQ(r.draft_positions, (Ints{62, 0, 0, 0}));
  EXPECT_EQ(r.draft_seq_lens, (Ints{63, 0, 1, 0}));
  EXPECT_EQ(r.groups[0].draft_slot_mapping, (Ints{64 + 62, -1, -1, -1}));
  EXPECT_EQ(r.draft_token_indices, (Ints{3, -1}));
  EXPECT_EQ(r.draft_query_start_loc, (Ints{0, 1, 1}));
}

TEST(Drafts, ABlockThatTheTableDoesNotHaveIsNoSlot) {
  // Both requests fill their only block; the next would lie beyond the first's row, where the second's begins.
  PlanCase c = make_case({64, 64}, {3, 3}, 3);
  c.config.limits.max_model_len = 200;
  c.config.drafts = true;
  c.accepted = {2, 2};
  const PlanResult r = run_poisoned(c);
  EXPECT_EQ(r.draft_positions, (Ints{64, 64}));
  EXPECT_EQ(r.draft_seq_lens, (Ints{65, 65}));
  EXPECT_EQ(r.groups[0].draft_slot_mapping, (Ints{-1, -1}));
  // A row that has the entry, but no block in it.
  c.config.limits.max_blocks_per_request = 2;
  c.block_table[0][0].push_back(0);
  EXPECT_EQ(run_poisoned(c).groups[0].draft_slot_mapping, (Ints{-1, -1}));
  c.block_table[0][0][1] = c.config.limits.num_blocks;
  EXPECT_EQ(run_poisoned(c).groups[0].draft_slot_mapping, (Ints{-1, -1}));
}

}  // namespace
}  // namespace lantern::test
