// The plan of each bucket is captured once and replayed for ever: only device memory changes, everything that does not
// belong to the step is poisoned, and each plan is bit by bit the one that a fresh device makes without a graph.
#include "attention/plan/plan_graphs.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "device/devices_test.h"

namespace lantern::test {
namespace {

using Ints = std::vector<int32_t>;

class PlanGraphsTest : public DeviceTest {
 protected:
  static StepPlanConfig small_config(int32_t max_requests, int32_t max_query_len, int32_t max_tokens) {
    StepPlanConfig config;
    StepLimits& limits = config.limits;
    limits.max_tokens = max_tokens;
    limits.max_requests = max_requests;
    limits.max_query_len = max_query_len;
    limits.max_blocks_per_request = 5;
    limits.block_size = 64;
    limits.num_blocks = 11;
    limits.index_topk = 128;
    limits.max_model_len = 300;
    CacheGroup compressed = StepPlanConfig::group_of(limits);
    compressed.compress_ratio = 4;
    config.groups = {StepPlanConfig::group_of(limits), compressed};
    config.dcp = ContextShard{.world = 3, .rank = 1, .interleave = 2};
    config.flattened = true;
    config.per_request = true;
    config.workers = 5;
    config.mla = MlaTiles{.parts = 4, .fixed_overhead_blocks = 5, .topk = 0};
    config.prefill = PrefillBudget{.workspace_tokens = 320, .logits_bytes = 5000};
    config.drafts = max_query_len > 1;
    return config;
  }

  std::unique_ptr<PlanGraphs> capture(const StepPlanConfig& config, const std::vector<BucketKey>& buckets,
                                      const PlanGraphs::Step& step = &plan_step,
                                      const StepImage* at_capture = nullptr) {
    auto graphs = PlanGraphs::capture(*device_, config, buckets, step, at_capture);
    EXPECT_TRUE(graphs.ok()) << graphs.error().message();
    return graphs.ok() ? std::move(graphs).value() : nullptr;
  }

  // "" when the replayed plan is the one of a fresh device.
  std::string replay_and_compare(PlanGraphs& graphs, const BucketKey& bucket, const StepImage& image) {
    const Ints replayed = graphs.replay(bucket, image);
    const std::unique_ptr<Device> fresh_device = another_device();
    const auto fresh = plan_from_scratch(*fresh_device, graphs.buffers().config(), bucket, image);
    if (!fresh.ok()) return fresh.error().message();
    const std::string difference = first_difference(replayed, *fresh);
    return difference.empty() ? "" : to_string(bucket) + ": " + difference;
  }

  // A batch as the host writes it; what lies beyond stays as it is in the image.
  static void put(StepImage& image, const Ints& seq_lens, const Ints& query_lens, int32_t first_block = 1) {
    image.num_requests() = static_cast<int32_t>(seq_lens.size());
    image.query_start_loc()[0] = 0;
    int32_t token = 0;
    for (size_t b = 0; b < seq_lens.size(); ++b) {
      token += query_lens[b];
      image.query_start_loc()[b + 1] = token;
      image.seq_lens()[b] = seq_lens[b];
      image.prefilling()[b] = 0;
      if (!image.accepted().empty()) image.accepted()[b] = 0;
      for (int32_t g = 0; g < 2; ++g) {
        const std::span<int32_t> row = image.block_table(g, static_cast<int32_t>(b));
        for (int32_t i = 0; i < (seq_lens[b] + 63) / 64; ++i) {
          row[static_cast<size_t>(i)] = first_block == 0 ? 0 : first_block + (i + static_cast<int32_t>(b)) % 10;
        }
      }
    }
    image.num_tokens() = token;
  }

  static Ints part(const PlanGraphs& graphs, const Ints& words, const DevPtr<int32_t>& output, int64_t count) {
    const auto begin = words.begin() + (output.get() - graphs.buffers().all().data());
    return Ints(begin, begin + count);
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, PlanGraphsTest, testing::ValuesIn(test_devices()), device_name);

TEST_P(PlanGraphsTest, EveryBucketInRandomOrderEqualsAFreshPlan) {
  const StepPlanConfig config = small_config(2, 4, 8);
  std::vector<BucketKey> buckets;
  for (int32_t tokens = 0; tokens <= config.limits.max_tokens; ++tokens) {
    for (int32_t requests = 0; requests <= config.limits.max_requests; ++requests) {
      for (int32_t width = 1; width <= config.limits.max_query_len; ++width) {
        buckets.push_back({tokens, requests, width, StepKind::kDecode});
        buckets.push_back({tokens, requests, width, StepKind::kMixed});
      }
    }
  }
  const auto graphs = capture(config, buckets);
  ASSERT_EQ(graphs->graphs().size(), 9u * 3 * 4 * 2);
  RandomSteps steps(*graphs, 1);
  std::mt19937_64 random(2);
  std::vector<std::unique_ptr<PersistentBuffer<int32_t>>> noise(16);
  int64_t faulty = 0, with_prefills = 0, empty = 0;
  for (int replay = 0; replay < 10000; ++replay) {
    // Others allocate and release meanwhile: no address of a graph comes from an allocator.
    auto& slot = noise[random() % noise.size()];
    slot.reset();
    auto allocated = PersistentBuffer<int32_t>::create(*device_, "noise", static_cast<int64_t>(random() % 5000));
    ASSERT_TRUE(allocated.ok());
    slot = std::move(allocated).value();
    const BucketKey& bucket = buckets[random() % buckets.size()];
    const StepImage& image = steps.next(bucket);
    const std::string difference = replay_and_compare(*graphs, bucket, image);
    ASSERT_EQ(difference, "") << "replay " << replay;
    Ints counts(kNumCounts);
    const StepPlanParams params = graphs->buffers().params(graphs->inputs(), shape_of(bucket));
    device_->copy_to_host(counts.data(), params.counts.get(), sizeof(int32_t) * kNumCounts);
    faulty += counts[kNumErrors] > 0 ? 1 : 0;
    with_prefills += counts[kNumPrefills] > 0 ? 1 : 0;
    empty += counts[kNumDecodes] + counts[kNumPrefills] == 0 ? 1 : 0;
  }
  // The steps were of all sorts.
  EXPECT_GT(faulty, 500);
  EXPECT_LT(faulty, 9000);
  EXPECT_GT(with_prefills, 500);
  EXPECT_GT(empty, 500);
  EXPECT_LT(empty, 9000);
}

// An idle data-parallel rank runs one request of max_query_len tokens on the null block, and leaves in its inputs what
// the last real step had.
TEST_P(PlanGraphsTest, AnIdleRanksDummyBetweenRealBatchesWritesNowhere) {
  const BucketKey bucket{16, 4, 4, StepKind::kDecode};
  const auto graphs = capture(small_config(4, 4, 16), {bucket, {4, 1, 4, StepKind::kDecode}});
  RandomSteps steps(*graphs, 3);
  StepImage image = graphs->blank_image();
  put(image, {300, 128, 65, 4}, {4, 4, 4, 4});
  for (int round = 0; round < 50; ++round) {
    ASSERT_EQ(replay_and_compare(*graphs, bucket, image), "");
    StepImage dummy = image;
    put(dummy, {4}, {4}, /*first_block=*/0);
    for (const BucketKey& of_dummy : {bucket, BucketKey{4, 1, 4, StepKind::kDecode}}) {
      const Ints words = graphs->replay(of_dummy, dummy);
      const StepPlanParams p = graphs->buffers().params(graphs->inputs(), shape_of(of_dummy));
      const Ints counts = part(*graphs, words, p.counts, kNumCounts);
      EXPECT_EQ(counts[kNumErrors], 0);
      EXPECT_EQ(counts[kNumDecodes], 1);
      EXPECT_EQ(counts[kNumDecodeTokens], 4);
      for (const PlanGroupParams& group : {p.groups[0], p.groups[1]}) {
        EXPECT_EQ(part(*graphs, words, group.slot_mapping, of_dummy.tokens), Ints(size_t(of_dummy.tokens), -1));
        EXPECT_EQ(part(*graphs, words, group.draft_slot_mapping, 2 * of_dummy.requests),
                  Ints(size_t(2 * of_dummy.requests), -1));
      }
      EXPECT_EQ(part(*graphs, words, p.groups[1].compressed_slot_mapping, of_dummy.tokens),
                Ints(size_t(of_dummy.tokens), -1));
      Ints requests(size_t(of_dummy.tokens), -1), lengths(size_t(of_dummy.tokens), 0);
      for (size_t t = 0; t < 4; ++t) {
        requests[t] = 0;
        lengths[t] = static_cast<int32_t>(t) + 1;
      }
      EXPECT_EQ(part(*graphs, words, p.token_request, of_dummy.tokens), requests);
      EXPECT_EQ(part(*graphs, words, p.token_context_len, of_dummy.tokens), lengths);
      ASSERT_EQ(replay_and_compare(*graphs, of_dummy, dummy), "");
    }
    image = steps.next(bucket);
  }
}

TEST_P(PlanGraphsTest, CapturedForEightRequestsReplaysFiveNoneAndEight) {
  const BucketKey bucket{16, 8, 2, StepKind::kDecode};
  StepPlanConfig config = small_config(8, 2, 16);
  const auto graphs = capture(config, {bucket});
  StepImage image = graphs->blank_image();
  const StepPlanParams p = graphs->buffers().params(graphs->inputs(), shape_of(bucket));
  const auto replay = [&](const Ints& seq_lens, const Ints& query_lens) {
    put(image, seq_lens, query_lens);  // over what the step before has left
    EXPECT_EQ(replay_and_compare(*graphs, bucket, image), "");
    return graphs->replay(bucket, image);
  };
  const Ints full_lens{300, 2, 64, 65, 66, 128, 129, 10}, full_queries(8, 2);
  const Ints eight = replay(full_lens, full_queries);
  EXPECT_EQ(part(*graphs, eight, p.counts, 3), (Ints{8, 0, 16}));
  EXPECT_EQ(part(*graphs, eight, p.token_context_len, 16),
            (Ints{299, 300, 1, 2, 63, 64, 64, 65, 65, 66, 127, 128, 128, 129, 9, 10}));
  const Ints five = replay({10, 20, 30, 40, 50}, {1, 2, 1, 2, 2});
  EXPECT_EQ(part(*graphs, five, p.counts, 3), (Ints{5, 0, 8}));
  EXPECT_EQ(part(*graphs, five, p.token_context_len, 16),
            (Ints{10, 19, 20, 30, 39, 40, 49, 50, 0, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(part(*graphs, five, p.seq_len, 8), (Ints{10, 20, 30, 40, 50, 0, 0, 0}));
  const Ints none = replay({}, {});
  EXPECT_EQ(part(*graphs, none, p.counts, 3), (Ints{0, 0, 0}));
  EXPECT_EQ(part(*graphs, none, p.token_request, 16), Ints(16, -1));
  EXPECT_EQ(part(*graphs, none, p.groups[0].slot_mapping, 16), Ints(16, -1));
  EXPECT_EQ(replay(full_lens, full_queries), eight);
}

// Whatever the inputs hold while a graph is captured, it replays the same.
TEST_P(PlanGraphsTest, NothingOfTheMomentOfCaptureStays) {
  const BucketKey bucket{16, 4, 4, StepKind::kDecode};
  const StepPlanConfig config = small_config(4, 4, 16);
  const auto poisoned = capture(config, {bucket});
  StepImage longest = poisoned->blank_image(), nobody = poisoned->blank_image(), shortest = poisoned->blank_image();
  put(longest, {300, 300, 300, 300}, {4, 4, 4, 4});
  put(shortest, {1}, {1});
  put(nobody, {}, {});
  for (const StepImage* at_capture : {&longest, &shortest, &nobody}) {
    const auto graphs = capture(config, {bucket}, &plan_step, at_capture);
    RandomSteps steps(*graphs, 5);
    for (int replay = 0; replay < 200; ++replay) {
      const StepImage& image = steps.next(bucket);
      const Ints words = graphs->replay(bucket, image);
      ASSERT_EQ(first_difference(words, poisoned->replay(bucket, image)), "");
      ASSERT_EQ(replay_and_compare(*graphs, bucket, image), "");
    }
    for (const StepImage* extreme : {&longest, &nobody, &shortest}) {
      ASSERT_EQ(replay_and_compare(*graphs, bucket, *extreme), "");
    }
  }
}

TEST_P(PlanGraphsTest, TheDoctorsCheckPasses) {
  const auto report = check_plan_graphs(*device_, 500, 7);
  ASSERT_TRUE(report.ok()) << report.error().message();
  EXPECT_EQ(report->mismatches, 0) << report->first_mismatch;
  EXPECT_EQ(report->replays, 500);
  EXPECT_EQ(report->buckets, 19);
  // A GPU's driver takes memory for graphs in large pieces, of which these may need no further one.
  if (device_->kind() == DeviceKind::kCpu) {
    EXPECT_GT(report->graph_bytes, 0u);
  }
}

// The faults that public engines had are found.
TEST_P(PlanGraphsTest, TheCheckFindsALaunchShapedByTheBatch) {
  const auto report = check_plan_graphs(*device_, 500, 7, [](Stream& stream, StepPlanParams p) {
    p.bucket.requests = std::min(p.bucket.requests, 1);  // as if one request ran at the capture
    plan_step(stream, p);
  });
  ASSERT_TRUE(report.ok());
  EXPECT_GT(report->mismatches, 100);
  EXPECT_NE(report->first_mismatch.find("bucket of "), std::string::npos) << report->first_mismatch;
}

TEST_P(PlanGraphsTest, TheCheckFindsMetadataAtAnAddressOfItsOwn) {
  const auto stale = PersistentBuffer<int32_t>::create(*device_, "lengths of one step", 8);
  ASSERT_TRUE(stale.ok());
  const auto report = check_plan_graphs(*device_, 500, 7, [&](Stream& stream, StepPlanParams p) {
    p.seq_lens = (*stale)->fixed();
    plan_step(stream, p);
  });
  ASSERT_TRUE(report.ok());
  EXPECT_GT(report->mismatches, 100);
}

TEST_P(PlanGraphsTest, ACallersMemoryMustBeRegistered) {
  Ints callers(8);  // never read: the capture is refused, or ends before a replay
  const StepPlanConfig config = small_config(4, 4, 16);
  const std::vector<BucketKey> buckets{{16, 4, 4, StepKind::kDecode}};
  if (device_->kind() != DeviceKind::kCpu) GTEST_SKIP() << "the eager run before the capture would read host memory";
  const PlanGraphs::Step step = [&](Stream& stream, StepPlanParams p) {
    p.accepted = borrow_fixed<const int32_t>(callers.data(), 4);
    plan_step(stream, p);
  };
  const auto refused = PlanGraphs::capture(*device_, config, buckets, step);
  ASSERT_FALSE(refused.ok());
  const std::string& message = refused.error().message();
  EXPECT_NE(message.find("launch 'plan_step' in the capture of the decode bucket of 16 tokens"), std::string::npos)
      << message;
  EXPECT_NE(message.find("register it"), std::string::npos) << message;
  device_->register_memory(MemoryClass::kPersistent, "caller's accepted counts", callers.data(), 16);
  EXPECT_TRUE(PlanGraphs::capture(*device_, config, buckets, step).ok());
}

}  // namespace
}  // namespace lantern::test
