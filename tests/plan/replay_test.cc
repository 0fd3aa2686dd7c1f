// One set of launch parameters, many batches: only what device memory holds may change a plan.
#include <gtest/gtest.h>

#include <random>

#include "attention/plan/step_inputs.h"
#include "attention/plan/step_plan_buffers.h"
#include "oracle.h"
#include "plan_cases.h"

namespace lantern::test {
namespace {

// Buffers for a config, written and planned again and again.
class Replayed {
 public:
  Replayed(const StepPlanConfig& config, const BucketShape& bucket) : device_(make_host_device(1)), stream_(*device_) {
    EXPECT_TRUE(inputs_.create(*device_, config).ok());
    EXPECT_TRUE(buffers_.create(*device_, config).ok());
    device_->seal();  // nothing is allocated from here on
    params_ = buffers_.params(inputs_, bucket);
  }
  void plan(const PlanCase& c, bool poison) {
    if (poison) {
      inputs_.poison(*device_);
      buffers_.poison(*device_);
    }
    const Ints nobody(c.seq_lens.size(), 0);
    inputs_.write(*device_, {.num_requests = c.num_requests,
                             .num_tokens = c.num_tokens,
                             .query_start_loc = c.query_start_loc,
                             .seq_lens = c.seq_lens,
                             .prefilling = nobody});
    for (size_t b = 0; b < c.block_table[0].size(); ++b) {
      inputs_.write_block_table(*device_, 0, static_cast<int32_t>(b), c.block_table[0][b]);
    }
    plan_step(stream_, params_);
  }
  Ints read(const DevPtr<int32_t>& from, int64_t count) const { return Ints(from.get(), from.get() + count); }
  const StepPlanParams& params() const { return params_; }
  StepPlanParams fresh_params(const BucketShape& bucket) const { return buffers_.params(inputs_, bucket); }

 private:
  std::unique_ptr<Device> device_;
  Stream stream_;
  StepInputs inputs_;
  StepPlanBuffers buffers_;
  StepPlanParams params_;
};

TEST(Replay, TheCapturedViewShowsTheNewValues) {
  PlanCase capture = make_case({128, 128, 128, 128}, {1, 1, 1, 1}, 4, 256);
  capture.config.groups = {StepPlanConfig::group_of(capture.config.limits)};
  capture.config.groups[0].compress_ratio = 4;
  capture.config.per_request = true;
  Replayed replayed(capture.config, {4, 4, 4});
  replayed.plan(capture, true);
  const int32_t* captured = replayed.params().groups[0].compressed_context_len.get();
  EXPECT_EQ(Ints(captured, captured + 4), Ints(4, 32));
  PlanCase next = make_case({128, 0, 0, 0}, {4, 0, 0, 0}, 4, 256);
  replayed.plan(next, true);
  EXPECT_EQ(Ints(captured, captured + 4), (Ints{31, 31, 31, 32}));
  // Another bucket shares the addresses.
  const StepPlanParams other = replayed.fresh_params({8, 2, 4});
  EXPECT_EQ(other.groups[0].compressed_context_len.get(), captured);
  EXPECT_EQ(other.per_request_context_lens.get(), replayed.params().per_request_context_lens.get());
}

TEST(Replay, QueryLengthsMayMoveBetweenRequests) {
  PlanCase capture = make_case({13, 23}, {3, 3}, 5, 16);
  capture.config.limits.max_blocks_per_request = 2;
  capture.config.limits.num_blocks = 9;
  capture.config.limits.max_model_len = 32;
  capture.config.groups = {StepPlanConfig::group_of(capture.config.limits)};
  capture.config.flattened = true;
  capture.block_table = {{{5, 6}, {7, 8}}};
  Replayed replayed(capture.config, {6, 2, 5});
  replayed.plan(capture, true);
  EXPECT_EQ(replayed.read(replayed.params().token_context_len, 6), (Ints{11, 12, 13, 21, 22, 23}));
  PlanCase next = capture;
  next.query_start_loc = {0, 1, 6};
  next.seq_lens = {11, 25};
  replayed.plan(next, false);
  EXPECT_EQ(replayed.read(replayed.params().token_context_len, 6), (Ints{11, 21, 22, 23, 24, 25}));
  EXPECT_EQ(replayed.read(replayed.params().groups[0].expanded_block_table, 12),
            (Ints{5, 6, 7, 8, 7, 8, 7, 8, 7, 8, 7, 8}));
}

// A bucket of 8 requests, replayed with 0 to 8 of them in random order, an idle rank's dummy among them, and whatever
// the last batch left in the tails.
TEST(Replay, TenThousandBatchesThroughOneLaunch) {
  const StepLimits limits{.max_tokens = 32,
                          .max_requests = 8,
                          .max_query_len = 4,
                          .scratch_bytes = 0,
                          .max_blocks_per_request = 8,
                          .block_size = 64,
                          .num_blocks = 65,
                          .index_topk = 0,
                          .max_model_len = 512};
  PlanCase base;
  base.config.limits = limits;
  base.config.groups = {StepPlanConfig::group_of(limits)};
  base.config.flattened = base.config.per_request = true;
  base.config.workers = 7;
  base.config.mla = MlaTiles{5, 5, 0};
  const BucketShape bucket{32, 8, 4};
  base.bucket_tokens = bucket.tokens;
  base.bucket_requests = bucket.requests;
  base.bucket_query_width = bucket.query_width;
  Replayed replayed(base.config, bucket);
  const StepPlanParams& p = replayed.params();
  std::mt19937 random(1);
  const auto below = [&](int32_t end) { return static_cast<int32_t>(random() % static_cast<uint32_t>(end)); };
  for (int32_t round = 0; round < 10000; ++round) {
    PlanCase c = base;
    const bool idle = below(8) == 0;
    c.num_requests = idle ? 1 : below(9);
    c.query_start_loc = {0};
    c.block_table.emplace_back();
    for (int32_t b = 0; b < c.num_requests; ++b) {
      const int32_t query_len = idle ? 4 : below(5);
      c.query_start_loc.push_back(c.query_start_loc.back() + query_len);
      c.seq_lens.push_back(idle ? 4 : std::max(query_len, below(513)));
      Ints row(8);
      for (int32_t& block : row) block = idle ? 0 : below(65);
      c.block_table[0].push_back(row);
    }
    c.num_tokens = c.query_start_loc.back();
    replayed.plan(c, below(4) == 0);
    const PlanResult want = oracle_plan(c);
    ASSERT_EQ(replayed.read(p.token_request, 32), want.token_request) << "round " << round;
    ASSERT_EQ(replayed.read(p.token_context_len, 32), want.token_context_len) << "round " << round;
    ASSERT_EQ(replayed.read(p.groups[0].slot_mapping, 32), want.groups[0].slot_mapping) << "round " << round;
    ASSERT_EQ(replayed.read(p.groups[0].expanded_block_table, 256), want.groups[0].expanded_block_table);
    ASSERT_EQ(replayed.read(p.per_request_context_lens, 32), want.per_request_context_lens) << "round " << round;
    ASSERT_EQ(replayed.read(p.paged_mqa_sm90, 16), want.paged_mqa_sm90) << "round " << round;
    ASSERT_EQ(replayed.read(p.paged_mqa_sm100, 16), want.paged_mqa_sm100) << "round " << round;
    ASSERT_EQ(replayed.read(p.mla_tiles, 40), want.mla_tiles) << "round " << round;
    ASSERT_EQ(replayed.read(p.mla_num_splits, 9), want.mla_num_splits) << "round " << round;
    ASSERT_EQ(replayed.read(p.counts, kNumCounts), want.counts) << "round " << round;
  }
}

}  // namespace
}  // namespace lantern::test
