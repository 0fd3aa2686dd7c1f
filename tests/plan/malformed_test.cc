// Batches that contradict themselves: each fault is named, its request becomes padding, the others stand.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <iterator>

#include "attention/plan/plan_invariants.h"
#include "oracle.h"
#include "plan_cases.h"

namespace lantern::test {
namespace {

using Faults = std::vector<std::pair<int32_t, PlanFault>>;

// Three decodes of two tokens and a prefill of three.
PlanCase good() {
  PlanCase c = make_case({10, 70, 20, 9}, {2, 2, 2, 3}, 2, 16);
  c.prefilling = {0, 0, 0, 1};
  c.config.groups = {StepPlanConfig::group_of(c.config.limits)};
  c.config.flattened = c.config.per_request = true;
  c.config.workers = 3;
  c.config.mla = MlaTiles{3, 5, 0};
  c.config.prefill = PrefillBudget{100, 4000};
  return c;
}

struct FaultCase {
  const char* name;
  std::function<void(PlanCase&)> damage;
  Faults expected;
  Ints token_request;  // what stands
};

TEST(Malformed, EachFaultIsNamedAndItsRequestBecomesPadding) {
  const FaultCase cases[] = {
      {"good", [](PlanCase&) {}, {}, {0, 0, 1, 1, 2, 2, 3, 3, 3}},
      {"start",
       [](PlanCase& c) { c.query_start_loc[0] = 1; },
       {{0, PlanFault::kQueryStart}},
       {-1, -1, 1, 1, 2, 2, 3, 3, 3}},
      {"negative start",
       [](PlanCase& c) { c.query_start_loc[0] = -1; },
       {{0, PlanFault::kQueryStart}},
       {-1, -1, 1, 1, 2, 2, 3, 3, 3}},
      {"decreasing",
       [](PlanCase& c) { c.query_start_loc[2] = 1; },
       {{1, PlanFault::kQueryDecreases}, {2, PlanFault::kQueryDecreases}},
       {0, 0, -1, -1, -1, -1, 3, 3, 3}},
      {"negative entry",
       [](PlanCase& c) { c.query_start_loc[2] = -7; },
       {{1, PlanFault::kQueryDecreases}, {2, PlanFault::kQueryDecreases}},
       {0, 0, -1, -1, -1, -1, 3, 3, 3}},
      {"an entry beyond the batch",
       [](PlanCase& c) { c.query_start_loc[2] = 1000000; },
       {{1, PlanFault::kQueryEnd}, {2, PlanFault::kQueryDecreases}},
       {0, 0, -1, -1, -1, -1, 3, 3, 3}},
      {"ends early",
       [](PlanCase& c) { c.query_start_loc[4] = 8; },
       {{3, PlanFault::kQueryEnd}},
       {0, 0, 1, 1, 2, 2, -1, -1, -1}},
      {"ends late",
       [](PlanCase& c) { c.query_start_loc[4] = 10; },
       {{3, PlanFault::kQueryEnd}},
       {0, 0, 1, 1, 2, 2, -1, -1, -1}},
      {"wide decode",
       [](PlanCase& c) { c.prefilling[3] = 0; },
       {{3, PlanFault::kQueryTooLong}},
       {0, 0, 1, 1, 2, 2, -1, -1, -1}},
      {"wider than the bucket",
       [](PlanCase& c) { c.bucket_query_width = 1; },
       {{0, PlanFault::kQueryWiderThanBucket},
        {1, PlanFault::kQueryWiderThanBucket},
        {2, PlanFault::kQueryWiderThanBucket}},
       {-1, -1, -1, -1, -1, -1, 3, 3, 3}},
      {"decode after prefill",
       [](PlanCase& c) { c.prefilling = {0, 1, 0, 1}; },
       {{2, PlanFault::kDecodeAfterPrefill}},
       {0, 0, 1, 1, -1, -1, 3, 3, 3}},
      {"length above the limit",
       [](PlanCase& c) { c.seq_lens[1] = 71; },
       {{1, PlanFault::kSeqLenTooLong}},
       {0, 0, -1, -1, 2, 2, 3, 3, 3}},
      {"huge length",
       [](PlanCase& c) { c.seq_lens[1] = INT32_MAX; },
       {{1, PlanFault::kSeqLenTooLong}},
       {0, 0, -1, -1, 2, 2, 3, 3, 3}},
      {"length below the query",
       [](PlanCase& c) { c.seq_lens[2] = 1; },
       {{2, PlanFault::kSeqLenTooShort}},
       {0, 0, 1, 1, -1, -1, 3, 3, 3}},
      {"negative length",
       [](PlanCase& c) { c.seq_lens[0] = INT32_MIN; },
       {{0, PlanFault::kSeqLenTooShort}},
       {-1, -1, 1, 1, 2, 2, 3, 3, 3}},
      {"row too short",
       [](PlanCase& c) { c.block_table[0][1].pop_back(); },
       {{1, PlanFault::kTooFewBlocks}},
       {0, 0, -1, -1, 2, 2, 3, 3, 3}},
      {"block outside the pool",
       [](PlanCase& c) { c.block_table[0][1][3] = c.config.limits.num_blocks; },
       {{1, PlanFault::kBlockOutsidePool}},
       {0, 0, -1, -1, 2, 2, 3, 3, 3}},
      {"negative block",
       [](PlanCase& c) { c.block_table[0][2][1] = -1; },
       {{2, PlanFault::kBlockOutsidePool}},
       {0, 0, 1, 1, -1, -1, 3, 3, 3}},
      {"ratio",
       [](PlanCase& c) { c.config.groups[0].compress_ratio = 3; },
       {{-1, PlanFault::kCompressRatio}},
       Ints(9, -1)},
      {"bucket of too few tokens",
       [](PlanCase& c) { c.bucket_tokens = 6; },
       {{-1, PlanFault::kNumTokens}, {3, PlanFault::kQueryEnd}},
       {0, 0, 1, 1, 2, 2}},
      {"accepted",
       [](PlanCase& c) {
         c.config.drafts = true;
         c.accepted = {0, 2, -1, 99};
       },
       {{1, PlanFault::kAccepted}, {2, PlanFault::kAccepted}},
       {0, 0, -1, -1, -1, -1, 3, 3, 3}},
  };
  for (const FaultCase& fault_case : cases) {
    SCOPED_TRACE(fault_case.name);
    PlanCase c = good();
    fault_case.damage(c);
    const PlanResult r = run_poisoned(c);
    EXPECT_EQ(faults(r), fault_case.expected);
    EXPECT_EQ(r.token_request, fault_case.token_request);
    EXPECT_EQ(differences(r, oracle_plan(c)), "");
    for (const std::string& violation : plan_violations(c, r)) ADD_FAILURE() << violation;
    for (const auto& [request, fault] : fault_case.expected) {
      if (request < 0) continue;
      EXPECT_EQ(r.query_len[static_cast<size_t>(request)], 0);
      EXPECT_EQ(r.seq_len[static_cast<size_t>(request)], 0);
      EXPECT_EQ(r.per_request_context_lens[static_cast<size_t>(request * r.bucket.query_width)], 0);
    }
  }
}

TEST(Malformed, TooManyRequestsForTheBucketAreNotFollowed) {
  PlanCase c = good();
  c.bucket_requests = 2;
  const PlanResult r = run_poisoned(c);
  EXPECT_EQ(faults(r), (Faults{{-1, PlanFault::kNumRequests}, {1, PlanFault::kQueryEnd}}));
  EXPECT_EQ(r.token_request, (Ints{0, 0, -1, -1, -1, -1, -1, -1, -1}));
}

TEST(Malformed, AnEmptyBatchStartsAtZero) {
  PlanCase c = make_case({}, {}, 1);
  EXPECT_EQ(faults(run_poisoned(c)), Faults{});
  c.query_start_loc[0] = 4;
  EXPECT_EQ(faults(run_poisoned(c)), (Faults{{-1, PlanFault::kQueryStart}}));
  c.query_start_loc[0] = 0;
  c.num_tokens = 1;
  EXPECT_EQ(faults(run_poisoned(c)), (Faults{{-1, PlanFault::kQueryEnd}}));
}

TEST(Malformed, PaddingMayFollowAPrefillAndStaleFlagsDoNotCount) {
  PlanCase c = make_case({9, 0, 0}, {3, 0, 0}, 3);
  c.prefilling = {1, 0, 0};
  EXPECT_EQ(faults(run_poisoned(c)), Faults{});
  PlanCase stale = make_case({0, 9}, {0, 3}, 3);
  stale.prefilling = {1, 0};
  const PlanResult r = run_poisoned(stale);
  EXPECT_EQ(faults(r), Faults{});
  EXPECT_EQ(r.counts[kNumDecodes], 1);
  EXPECT_EQ(r.counts[kNumPrefills], 0);
  EXPECT_TRUE(may_replay_decode_graph(r));
}

TEST(Malformed, AnIdleRanksDummyRunsOnTheNullBlock) {
  PlanCase c = make_case({4}, {4}, 4);
  c.block_table = {{{0}}};
  const PlanResult r = run_poisoned(c);
  EXPECT_EQ(faults(r), Faults{});
  EXPECT_EQ(r.token_context_len, (Ints{1, 2, 3, 4}));
  EXPECT_EQ(r.groups[0].slot_mapping, Ints(4, -1));
}

TEST(Malformed, EveryFaultHasANameOfItsOwn) {
  std::vector<std::string_view> names;
  for (const PlanFaultName& row : plan_fault_names()) names.push_back(row.name);
  std::sort(names.begin(), names.end());
  EXPECT_EQ(std::adjacent_find(names.begin(), names.end()), names.end());
  EXPECT_EQ(plan_fault_name(PlanFault::kAccepted).name, "accepted_outside_query");
  // And a row in the guide.
  std::ifstream file(std::string(LANTERN_SOURCE_DIR) + "/docs/plan.md");
  const std::string guide{std::istreambuf_iterator<char>(file), {}};
  for (const PlanFaultName& row : plan_fault_names()) {
    if (row.fault == PlanFault::kNone) continue;
    const std::string text = fmt::format("| {} | `{}` | {} |", static_cast<int32_t>(row.fault), row.name, row.message);
    EXPECT_NE(guide.find(text), std::string::npos) << text;
  }
}

TEST(Limits, ContradictionsAreRefusedByName) {
  const StepLimits good_limits = good().config.limits;
  ASSERT_TRUE(StepLimits::checked(good_limits).ok());
  const std::pair<const char*, std::function<void(StepLimits&)>> cases[] = {
      {"max_tokens", [](StepLimits& l) { l.max_tokens = 7; }},
      {"max_requests", [](StepLimits& l) { l.max_requests = 0; }},
      {"max_query_len", [](StepLimits& l) { l.max_query_len = 0; }},
      {"block_size", [](StepLimits& l) { l.block_size = -1; }},
      {"num_blocks", [](StepLimits& l) { l.num_blocks = INT32_MAX; }},
      {"max_blocks_per_request", [](StepLimits& l) { l.max_blocks_per_request = 0; }},
      {"max_model_len", [](StepLimits& l) { l.max_model_len = 0; }},
      {"index_topk", [](StepLimits& l) { l.index_topk = -1; }},
      {"scratch_bytes", [](StepLimits& l) { l.scratch_bytes = -1; }},
  };
  for (const auto& [name, damage] : cases) {
    StepLimits limits = good_limits;
    damage(limits);
    const Result<StepLimits> checked = StepLimits::checked(limits);
    ASSERT_FALSE(checked.ok()) << name;
    EXPECT_TRUE(checked.error().message().starts_with(name)) << checked.error().message();
  }
}

}  // namespace
}  // namespace lantern::test
