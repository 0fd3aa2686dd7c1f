// Random and adversarial batches against the oracle, with everything that must not be read poisoned, and the invariants
// of every plan. RC_PARAMS="max_success=100000 seed=7" in the environment makes rapidcheck try more, or the same again.
#include <gtest/gtest.h>

#include <rapidcheck.h>

#include <algorithm>
#include <cstdlib>

#include "attention/plan/plan_invariants.h"
#include "attention/plan/plan_math.h"
#include "attention/plan/step_inputs.h"
#include "oracle.h"
#include "plan_cases.h"

namespace lantern::test {
namespace {

// Before rapidcheck reads its parameters, which is at the first check.
[[maybe_unused]] const int kMoreTries = setenv("RC_PARAMS", "max_success=1000", 0);

// Any value of the range from the first try on, where rapidcheck would begin with small ones.
int32_t between(int32_t lowest, int32_t highest) {
  return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange(lowest, highest + 1));
}
bool sometimes(int32_t one_in) { return between(1, one_in) == 1; }
template <class T>
T one_of(std::initializer_list<T> choices) {
  const std::vector<T> list(choices);
  return list[static_cast<size_t>(between(0, static_cast<int32_t>(list.size()) - 1))];
}

// A ratio that divides the block size, except where `adversarial`.
int32_t ratio_for(int32_t block_size, bool adversarial) {
  if (adversarial && sometimes(20)) return block_size + 1;
  const int32_t ratio = one_of({1, 1, 4, 128});
  return block_size % ratio == 0 ? ratio : 1;
}

StepLimits random_limits() {
  StepLimits limits;
  limits.max_requests = one_of({1, 2, 5, 9});
  limits.max_query_len = between(1, 6);
  limits.max_tokens = limits.max_requests * limits.max_query_len + between(0, 40);
  limits.block_size = one_of({1, 16, 64, 128, 256});
  limits.max_model_len = one_of({1, 64, 65, 300, 1000}) + limits.max_query_len;
  const int32_t needed = (limits.max_model_len + limits.block_size - 1) / limits.block_size;
  limits.max_blocks_per_request = needed + between(0, 3);
  limits.num_blocks = 2 + needed * limits.max_requests + between(0, 5);
  return limits;
}

int32_t random_length(int32_t least, int32_t most) {
  const int32_t length = one_of({0, 1, 63, 64, 65, most, most - 1, between(0, most), between(0, most)});
  return std::clamp(length, std::min(least, most), most);
}

// Shuffled blocks of the pool in rows that may be longer than needed, with anything in what no length needs.
std::vector<Ints> random_table(const CacheGroup& group, const Ints& seq_lens) {
  Ints pool;
  for (int32_t block = 1; block < group.num_blocks; ++block) pool.push_back(block);
  std::vector<Ints> table;
  for (const int32_t seq_len : seq_lens) {
    Ints row;
    for (int32_t at = 0; at < seq_len; at += group.block_size) {
      const size_t pick = pool.empty() ? 0 : static_cast<size_t>(between(0, static_cast<int32_t>(pool.size()) - 1));
      row.push_back(pool.empty() || sometimes(30) ? 0 : pool[pick]);
      if (!pool.empty()) pool.erase(pool.begin() + static_cast<std::ptrdiff_t>(pick));
    }
    while (static_cast<int32_t>(row.size()) < group.max_blocks_per_request && !sometimes(3)) {
      row.push_back(one_of({0, 1, -1, group.num_blocks - 1, group.num_blocks, kPlanPoison, INT32_MAX}));
    }
    table.push_back(row);
  }
  return table;
}

void add_outputs(PlanCase& c, bool adversarial) {
  StepPlanConfig& config = c.config;
  const int32_t groups = between(1, 2);
  for (int32_t g = 0; g < groups; ++g) {
    CacheGroup group = StepPlanConfig::group_of(config.limits);
    if (g > 0) {
      group.block_size = one_of({16, 32, 128});
      group.max_blocks_per_request = (config.limits.max_model_len + group.block_size - 1) / group.block_size;
      group.num_blocks = 2 + group.max_blocks_per_request * config.limits.max_requests;
    }
    group.compress_ratio = ratio_for(group.block_size, adversarial);
    group.block_table_stride = group.max_blocks_per_request + between(0, 5);
    config.groups.push_back(group);
    c.block_table.push_back(random_table(group, c.seq_lens));
  }
  config.flattened = config.per_request = true;
  config.workers = between(0, 9);
  if (!sometimes(3)) config.mla = MlaTiles{between(1, 9), between(0, 6), one_of({0, 0, 64, 100, 2048})};
  if (!sometimes(3)) config.prefill = PrefillBudget{between(1, 2000), one_of<int64_t>({4, 100, 4000, 1 << 20})};
  if (!sometimes(3)) {
    const int32_t world = between(1, 8);
    config.dcp = ContextShard{world, between(0, world - 1), one_of({1, 2, 16, 64})};
  }
}

// A batch that follows every rule: decodes, prefills and padding between them.
PlanCase valid_case() {
  PlanCase c;
  StepLimits& limits = c.config.limits;
  limits = random_limits();
  c.num_requests = between(0, limits.max_requests);
  const int32_t decodes = between(0, c.num_requests);
  c.query_start_loc = {0};
  int32_t spare = limits.max_tokens - limits.max_requests * limits.max_query_len;
  for (int32_t b = 0; b < c.num_requests; ++b) {
    const bool prefill = b >= decodes;
    int32_t query_len = between(0, limits.max_query_len);
    if (prefill && spare > 0) {
      const int32_t more = between(0, std::min(spare, limits.max_model_len - query_len));
      query_len += more;
      spare -= more;
    }
    const bool padding = sometimes(6);
    if (padding) query_len = 0;
    c.query_start_loc.push_back(c.query_start_loc.back() + query_len);
    c.seq_lens.push_back(padding ? 0 : random_length(query_len, limits.max_model_len));
    c.prefilling.push_back(prefill ? 1 : 0);
    c.accepted.push_back(query_len > 0 ? between(0, query_len - 1) : kPlanPoison);
  }
  c.num_tokens = c.query_start_loc.back();
  c.config.drafts = !sometimes(3);
  if (sometimes(2)) c.bucket_tokens = between(c.num_tokens, limits.max_tokens);
  if (sometimes(2)) c.bucket_requests = between(c.num_requests, limits.max_requests);
  if (sometimes(2)) c.bucket_query_width = limits.max_query_len;
  add_outputs(c, false);
  return c;
}

// The same with entries that contradict the rules.
PlanCase damaged_case() {
  PlanCase c = valid_case();
  const auto wild = [&] {
    return one_of({-1, 0, 1, 7, c.num_tokens, c.num_tokens + 1, kPlanPoison, INT32_MIN + 1, INT32_MAX});
  };
  const auto damage = [&](Ints& values) {
    if (values.empty()) return;
    values[static_cast<size_t>(between(0, static_cast<int32_t>(values.size()) - 1))] = wild();
  };
  const int32_t hits = between(1, 3);
  for (int32_t i = 0; i < hits; ++i) {
    switch (between(0, 5)) {
      case 0: damage(c.query_start_loc); break;
      case 1: damage(c.seq_lens); break;
      case 2: damage(c.prefilling); break;
      case 3: damage(c.accepted); break;
      case 4: {
        std::vector<Ints>& table =
            c.block_table[static_cast<size_t>(between(0, static_cast<int32_t>(c.block_table.size()) - 1))];
        if (!table.empty()) damage(table[static_cast<size_t>(between(0, c.num_requests - 1))]);
        break;
      }
      default: {
        CacheGroup& group = c.config.groups[0];
        group.compress_ratio = ratio_for(group.block_size, true);
      }
    }
  }
  return c;
}

void expect_as_oracle(const PlanCase& c, bool valid) {
  const PlanResult got = run_poisoned(c);
  const PlanResult want = oracle_plan(c);
  const std::string differing = differences(got, want);
  if (!differing.empty()) RC_FAIL(differing);
  if (valid && !got.errors.empty()) RC_FAIL("a batch that follows every rule has faults");
  for (const std::string& violation : plan_violations(c, got)) RC_FAIL(violation);
  RC_CLASSIFY(!got.errors.empty(), "with faults");
  RC_CLASSIFY(c.num_requests == 0, "empty");
  RC_CLASSIFY(got.counts[kNumPrefills] > 0, "with prefills");
}

TEST(Property, ValidBatchesArePlannedAsTheOracleSays) {
  EXPECT_TRUE(rc::check("valid batches", [] { expect_as_oracle(valid_case(), true); }));
}

TEST(Property, DamagedBatchesArePlannedAsTheOracleSays) {
  EXPECT_TRUE(rc::check("damaged batches", [] { expect_as_oracle(damaged_case(), false); }));
}

// What lies beyond the counts changes nothing: stale tails, a larger bucket's padding, other rows of the table.
TEST(Property, StaleTailsChangeNothing) {
  EXPECT_TRUE(rc::check("stale tails", [] {
    PlanCase c = valid_case();
    const PlanResult clean = run_plan(c);
    for (Ints* values : {&c.query_start_loc, &c.seq_lens, &c.prefilling, &c.accepted}) {
      for (int32_t i = 0; i < 3; ++i) values->push_back(*rc::gen::arbitrary<int32_t>());
    }
    for (auto& table : c.block_table) table.push_back({1, kPlanPoison, -5});
    const std::string differing = differences(run_poisoned(c), clean);
    if (!differing.empty()) RC_FAIL(differing);
  }));
}

// Padding never changes what real rows get.
TEST(Property, ALargerBucketOnlyAddsPadding) {
  EXPECT_TRUE(rc::check("larger bucket", [] {
    PlanCase c = valid_case();
    c.bucket_tokens = c.num_tokens;
    c.bucket_requests = c.num_requests;
    const PlanResult tight = run_plan(c);
    c.bucket_tokens = c.config.limits.max_tokens;
    c.bucket_requests = c.config.limits.max_requests;
    const PlanResult wide = run_poisoned(c);
    const auto starts_with = [](const Ints& whole, const Ints& part) {
      return whole.size() >= part.size() && std::equal(part.begin(), part.end(), whole.begin());
    };
    RC_ASSERT(starts_with(wide.token_request, tight.token_request));
    RC_ASSERT(starts_with(wide.token_context_len, tight.token_context_len));
    RC_ASSERT(starts_with(wide.per_request_context_lens, tight.per_request_context_lens));
    RC_ASSERT(starts_with(wide.groups[0].slot_mapping, tight.groups[0].slot_mapping));
    RC_ASSERT(starts_with(wide.groups[0].expanded_block_table, tight.groups[0].expanded_block_table));
    RC_ASSERT(starts_with(wide.mla_num_splits, tight.mla_num_splits));
    RC_ASSERT(wide.prefill_chunks == tight.prefill_chunks);
  }));
}

// Each key of a context lies on exactly one rank.
TEST(Property, ShardsDivideEveryContext) {
  EXPECT_TRUE(rc::check("shards", [] {
    PlanCase c = valid_case();
    const int32_t world = between(1, 8);
    const int32_t interleave = one_of({1, 2, 3, 16, 64});
    std::vector<Ints> local;
    for (int32_t rank = 0; rank < world; ++rank) {
      c.config.dcp = ContextShard{world, rank, interleave};
      local.push_back(run_plan(c).local_context_len);
    }
    const PlanResult global = run_plan(c);
    for (size_t t = 0; t < global.token_context_len.size(); ++t) {
      int64_t sum = 0;
      for (const Ints& of_rank : local) sum += of_rank[t];
      RC_ASSERT(sum == global.token_context_len[t]);
    }
    // One more key makes exactly one rank's share grow, by one: each index is owned once.
    const int32_t len = between(0, 1 << 20);
    int32_t grown = 0;
    for (int32_t rank = 0; rank < world; ++rank) {
      const int32_t more = plan::local_context_len(len + 1, world, rank, interleave) -
                           plan::local_context_len(len, world, rank, interleave);
      RC_ASSERT(more == 0 || more == 1);
      grown += more;
    }
    RC_ASSERT(grown == 1);
  }));
}

}  // namespace
}  // namespace lantern::test
