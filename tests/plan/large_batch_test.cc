// Batches of more requests than a group, a block of threads or a piece of the CUDA kernels holds, and shapes that the
// schedules turn on: equal lengths, parts that end where requests do, requests much longer or shorter than a part.
// run_plan() compares every implementation; the oracle judges the sizes that it can do in time.
#include <gtest/gtest.h>

#include <random>

#include "attention/plan/plan_invariants.h"
#include "attention/plan/step_inputs.h"
#include "oracle.h"
#include "plan_cases.h"

namespace lantern::test {
namespace {

enum class Lengths : uint8_t { kEqual, kShort, kMixed, kLong, kFewLong };

class LargeBatches {
 public:
  explicit LargeBatches(uint32_t seed) : random_(seed) {}

  int32_t between(int32_t lowest, int32_t highest) {
    return lowest + static_cast<int32_t>(random_() % static_cast<uint32_t>(highest - lowest + 1));
  }
  template <class T>
  T one_of(std::initializer_list<T> choices) {
    return choices.begin()[between(0, static_cast<int32_t>(choices.size()) - 1)];
  }

  PlanCase next(int32_t requests) {
    constexpr int32_t kBlockSize = 64;
    const int32_t width = one_of({1, 2, 4});
    const auto lengths = one_of({Lengths::kEqual, Lengths::kShort, Lengths::kMixed, Lengths::kLong, Lengths::kFewLong});
    const int32_t longest = lengths == Lengths::kShort ? 200 : (requests > 600 ? 2000 : 6000);
    const int32_t common = between(width, longest);
    const int32_t decodes = between(0, 3) > 0 ? requests : between(0, requests);
    PlanCase c;
    c.num_requests = requests;
    c.query_start_loc = {0};
    for (int32_t b = 0; b < requests; ++b) {
      const bool prefill = b >= decodes;
      int32_t query_len = between(0, 9) > 0 ? width : between(0, width);
      if (prefill) query_len = between(0, 3) > 0 ? between(0, 100) : 0;
      int32_t seq_len = common;
      if (lengths == Lengths::kMixed) seq_len = between(0, longest);
      if (lengths == Lengths::kFewLong) seq_len = between(0, 20) == 0 ? longest : between(0, 100);
      if (lengths == Lengths::kShort) seq_len = one_of({0, 1, 63, 64, 65, 128});
      if (between(0, 30) == 0) query_len = seq_len = 0;
      c.query_start_loc.push_back(c.query_start_loc.back() + query_len);
      c.seq_lens.push_back(std::max(seq_len, query_len));
      c.prefilling.push_back(prefill ? 1 : 0);
      c.accepted.push_back(query_len > 0 ? between(0, query_len - 1) : 0);
    }
    c.num_tokens = c.query_start_loc.back();
    StepLimits& limits = c.config.limits;
    limits.max_requests = requests + between(0, 20);
    limits.max_query_len = width;
    limits.max_tokens = std::max(c.num_tokens, limits.max_requests * width) + between(0, 50);
    limits.block_size = kBlockSize;
    limits.max_model_len = longest + 100;
    limits.max_blocks_per_request = (limits.max_model_len + kBlockSize - 1) / kBlockSize;
    limits.num_blocks = 1000;
    add_table(c, lengths == Lengths::kShort);
    c.config.per_request = true;
    c.config.workers = one_of({1, 66, 132, 148});
    c.config.mla = MlaTiles{one_of({1, 7, 33, 132, 700}), one_of({0, 1, 5, 60}), one_of({0, 0, 64, 2048})};
    if (between(0, 1) == 0) c.config.prefill = PrefillBudget{20000, 1 << 20};
    c.config.drafts = between(0, 1) == 0;
    if (between(0, 1) == 0) c.bucket_requests = limits.max_requests;
    if (between(0, 1) == 0) c.bucket_tokens = limits.max_tokens;
    c.bucket_query_width = width;
    c.poison = true;
    return c;
  }

  void damage(PlanCase& c) {
    const auto at = static_cast<size_t>(between(0, c.num_requests - 1));
    switch (between(0, 4)) {
      case 0: c.query_start_loc[at] = one_of({-5, 0, 1 << 20, c.query_start_loc[at] + 1}); break;
      case 1: c.seq_lens[at] = one_of({-1, 1 << 30}); break;
      case 2: c.prefilling[at] = 1; break;
      case 3: c.accepted[at] = 99; break;
      default:
        if (!c.block_table[0][at].empty()) c.block_table[0][at].back() = one_of({-7, kMissingBlock, 1 << 20});
    }
  }

 private:
  void add_table(PlanCase& c, bool flattened) {
    CacheGroup group = StepPlanConfig::group_of(c.config.limits);
    group.compress_ratio = one_of({1, 4});
    group.block_table_stride = group.max_blocks_per_request + one_of({0, 1, 4});
    c.config.groups = {group};
    c.config.flattened = flattened;
    c.block_table.emplace_back();
    for (const int32_t seq_len : c.seq_lens) {
      Ints& row = c.block_table[0].emplace_back(static_cast<size_t>((seq_len + 63) / 64));
      for (int32_t& block : row) block = between(0, 999);
    }
  }

  std::mt19937 random_;
};

TEST(LargeBatches, AreTheSameEverywhere) {
  LargeBatches batches(3);
  for (const int32_t requests : {15, 16, 17, 31, 33, 100, 257, 513}) {
    for (int32_t round = 0; round < 12; ++round) {
      PlanCase c = batches.next(requests);
      if (round % 3 == 2) batches.damage(c);
      const PlanResult got = run_plan(c);
      ASSERT_EQ(differences(got, oracle_plan(c)), "") << requests << " requests, round " << round;
      for (const std::string& violation : plan_violations(c, got)) ADD_FAILURE() << violation;
    }
  }
}

TEST(LargeBatches, AreTheSameBeyondAPiece) {
  LargeBatches batches(4);
  for (const int32_t requests : {1023, 1024, 1025, 2500}) {
    for (int32_t round = 0; round < 6; ++round) {
      PlanCase c = batches.next(requests);
      if (round % 3 == 2) batches.damage(c);
      const PlanResult got = run_plan(c);
      for (const std::string& violation : plan_violations(c, got)) ADD_FAILURE() << violation;
    }
  }
}

// The decode of a sparse model: every request has the same number of blocks, and parts end where requests do.
TEST(LargeBatches, PartsMayEndWhereRequestsDo) {
  for (const int32_t requests : {1, 16, 17, 64, 128}) {
    for (const int32_t parts : {1, 63, 64, 65, 127, 128, 132, 264}) {
      for (const int32_t overhead : {0, 1, 5}) {
        const auto count = static_cast<size_t>(requests);
        PlanCase c = make_case(Ints(count, 2048), Ints(count, 1), 1);
        c.config.groups = {StepPlanConfig::group_of(c.config.limits)};
        c.config.mla = MlaTiles{parts, overhead, 2048};
        ASSERT_EQ(differences(run_poisoned(c), oracle_plan(c)), "") << requests << " requests, " << parts << " parts";
      }
    }
  }
}

// Entries are read four at a time.
TEST(LargeBatches, TheFirstBadBlockNamesTheFault) {
  for (int32_t at = 0; at < 8; ++at) {
    PlanCase c = make_case({640}, {1}, 1);
    c.config.groups = {StepPlanConfig::group_of(c.config.limits)};
    Ints& row = c.block_table[0][0];
    row[static_cast<size_t>(at)] = -7;
    row[static_cast<size_t>(at) + 1] = kMissingBlock;
    EXPECT_EQ(run_poisoned(c).errors[0].fault, PlanFault::kBlockOutsidePool) << at;
    std::swap(row[static_cast<size_t>(at)], row[static_cast<size_t>(at) + 1]);
    EXPECT_EQ(run_poisoned(c).errors[0].fault, PlanFault::kTooFewBlocks) << at;
  }
}

// A long prompt among decodes, whose tokens tiles of the first kernel take, down to one token too many for a row.
TEST(LargeBatches, LongPromptsAreCutIntoTiles) {
  for (const int32_t prompt : {15, 16, 17, 31, 32, 33, 64, 1000}) {
    PlanCase c = make_case({70, 3, prompt + 40, 9, prompt}, {2, 1, prompt, 9, prompt}, 2);
    c.prefilling = {0, 0, 1, 1, 1};
    c.bucket_tokens = c.config.limits.max_tokens = c.num_tokens + 100;
    c.config.groups = {StepPlanConfig::group_of(c.config.limits)};
    c.config.flattened = true;
    ASSERT_EQ(differences(run_poisoned(c), oracle_plan(c)), "") << prompt;
    c.block_table[0][2][0] = -3;  // the prompt becomes padding, in whatever block its tokens are
    const PlanResult r = run_poisoned(c);
    EXPECT_EQ(faults(r), (std::vector<std::pair<int32_t, PlanFault>>{{2, PlanFault::kBlockOutsidePool}}));
    ASSERT_EQ(differences(r, oracle_plan(c)), "") << prompt;
  }
}

}  // namespace
}  // namespace lantern::test
