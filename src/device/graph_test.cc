// Recording and replaying on the host device, by the rules that hold on every device.
#include "device/graph.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "device/graph_cache.h"
#include "device/kernel_count.h"
#include "device/persistent_buffer.h"
#include "device/stream.h"
#include "device/workspace.h"

namespace lantern {
namespace {

constexpr BucketKey kBucket{4, 2, 2, StepKind::kDecode};

struct ScaleParams {
  DevPtr<const int32_t> x;
  DevPtr<int32_t> y;
  int32_t count = 0;
  int32_t factor = 1;
};
void scale_kernel(const ScaleParams& p, HostContext&) {
  for (int32_t i = 0; i < p.count; ++i) p.y[i] = p.x[i] * p.factor;
}

class GraphTest : public testing::Test {
 protected:
  GraphTest() : device_(make_host_device(1)), stream_(*device_) {
    x_ = buffer("x", 4);
    y_ = buffer("y", 4);
    z_ = buffer("z", 4);
  }
  std::unique_ptr<PersistentBuffer<int32_t>> buffer(const char* owner, int64_t count) {
    return std::move(PersistentBuffer<int32_t>::create(*device_, owner, count)).value();
  }
  void write_x(const std::vector<int32_t>& values) {
    device_->copy_to_device(x_->fixed().data(), values.data(), values.size() * 4);
  }
  std::vector<int32_t> read(const PersistentBuffer<int32_t>& from) {
    return std::vector<int32_t>(from.fixed().data(), from.fixed().data() + from.capacity());
  }
  // z = 5 * (3 * x)
  Result<std::unique_ptr<Graph>> capture_product() {
    return capture_graph(stream_, kBucket, [&](Stream& stream) -> Status {
      ScaleParams params{x_->fixed(), y_->fixed(), 4, 3};
      stream.launch("triple", &scale_kernel, params);
      params = {y_->fixed(), z_->fixed(), 4, 5};
      stream.launch("quintuple", &scale_kernel, params);
      params.factor = 1000;  // after the launch: without effect
      return {};
    });
  }
  std::string capture_error(const std::function<void(Stream&)>& body) {
    const auto graph = capture_graph(stream_, kBucket, [&](Stream& stream) -> Status {
      body(stream);
      return {};
    });
    return graph.ok() ? "(captured)" : graph.error().message();
  }

  std::unique_ptr<Device> device_;
  Stream stream_;
  std::unique_ptr<PersistentBuffer<int32_t>> x_, y_, z_;
};

TEST_F(GraphTest, CountsItsKernels) {
  const auto graph = capture_product();
  ASSERT_TRUE(graph.ok());
  EXPECT_EQ(kernel_count(**graph), 2);
}

TEST_F(GraphTest, RecordsWithoutRunningAndReplaysOnNewInputs) {
  write_x({1, 2, 3, 4});
  const auto graph = capture_product();
  ASSERT_TRUE(graph.ok());
  EXPECT_EQ(read(*z_), (std::vector<int32_t>{0, 0, 0, 0}));
  EXPECT_EQ((*graph)->bucket(), kBucket);
  ASSERT_EQ((*graph)->launches().size(), 2u);
  EXPECT_STREQ((*graph)->launches()[1].name, "quintuple");
  EXPECT_EQ((*graph)->launches()[1].params_bytes, sizeof(ScaleParams));
  EXPECT_GE((*graph)->bytes(), 2 * sizeof(ScaleParams));
  (*graph)->replay(stream_);
  EXPECT_EQ(read(*z_), (std::vector<int32_t>{15, 30, 45, 60}));
  write_x({-1, 0, 7, 2});
  (*graph)->replay(stream_);
  EXPECT_EQ(read(*z_), (std::vector<int32_t>{-15, 0, 105, 30}));
  // On another stream of the device too.
  Stream other(*device_);
  write_x({1, 1, 1, 1});
  (*graph)->replay(other);
  EXPECT_EQ(read(*z_), (std::vector<int32_t>{15, 15, 15, 15}));
}

TEST_F(GraphTest, LaunchesRunAgainAfterTheCapture) {
  ASSERT_TRUE(capture_product().ok());
  EXPECT_FALSE(stream_.is_capturing());
  write_x({1, 2, 3, 4});
  stream_.launch("double", &scale_kernel, ScaleParams{x_->fixed(), y_->fixed(), 4, 2});
  stream_.synchronize();
  EXPECT_EQ(read(*y_), (std::vector<int32_t>{2, 4, 6, 8}));
}

// Parameters of every size and alignment lie in one block of bytes.
TEST_F(GraphTest, KeepsParametersApart) {
  struct alignas(16) Wide {
    DevPtr<int32_t> y;
    int32_t place;
    int32_t value;
  };
  struct Narrow {
    DevPtr<int32_t> y;
    uint8_t place;
  };
  const auto graph = capture_graph(stream_, kBucket, [&](Stream& stream) -> Status {
    for (uint8_t i = 0; i < 4; i = static_cast<uint8_t>(i + 2)) {
      stream.launch("wide", static_cast<HostKernel<Wide>>([](const Wide& p, HostContext&) {
                      CHECK(reinterpret_cast<uintptr_t>(&p) % alignof(Wide) == 0, "misaligned parameters");
                      p.y[p.place] = p.value;
                    }),
                    Wide{y_->fixed(), i, 40 + i});
      stream.launch("narrow",
                    static_cast<HostKernel<Narrow>>([](const Narrow& p, HostContext&) { p.y[p.place] = p.place; }),
                    Narrow{y_->fixed(), static_cast<uint8_t>(i + 1)});
    }
    return {};
  });
  ASSERT_TRUE(graph.ok());
  (*graph)->replay(stream_);
  EXPECT_EQ(read(*y_), (std::vector<int32_t>{40, 1, 42, 3}));
}

TEST_F(GraphTest, RefusesPointersIntoUnknownMemory) {
  int32_t on_stack[4] = {};
  std::vector<int32_t> on_heap(4);
  for (int32_t* outside : {&on_stack[0], on_heap.data()}) {
    const std::string error = capture_error([&](Stream& stream) {
      stream.launch("good", &scale_kernel, ScaleParams{x_->fixed(), y_->fixed(), 4, 3});
      stream.launch("smuggler", &scale_kernel, ScaleParams{x_->fixed(), borrow_fixed(outside, 4), 4, 3});
    });
    EXPECT_NE(error.find("launch 'smuggler' in the capture of the decode bucket of 4 tokens, 2 requests"),
              std::string::npos)
        << error;
    EXPECT_NE(error.find("at byte 16 of its parameters"), std::string::npos) << error;
    EXPECT_NE(error.find("16 bytes, does not lie in memory that cpu (1 threads) knows"), std::string::npos) << error;
    EXPECT_FALSE(stream_.is_capturing());
    // Run eagerly, the same launch is nobody's business.
    stream_.launch("smuggler", &scale_kernel, ScaleParams{x_->fixed(), borrow_fixed(outside, 4), 4, 3});
  }
}

TEST_F(GraphTest, RefusesPointersThatReachBeyondTheirMemory) {
  int32_t* y = y_->fixed().data();
  const auto error_of = [&](int32_t* begin, int64_t count) {
    return capture_error([&](Stream& stream) {
      stream.launch("reach", &scale_kernel, ScaleParams{x_->fixed(), borrow_fixed(begin, count), 0, 3});
    });
  };
  EXPECT_EQ(error_of(y, 4), "(captured)");
  EXPECT_EQ(error_of(y + 3, 1), "(captured)");
  EXPECT_EQ(error_of(y + 4, 0), "(captured)");
  EXPECT_NE(error_of(y, 5).find("launch 'reach'"), std::string::npos);
  EXPECT_NE(error_of(y + 3, 2).find("launch 'reach'"), std::string::npos);
  EXPECT_NE(error_of(y - 1, 1).find("launch 'reach'"), std::string::npos);
  EXPECT_NE(error_of(y, -1).find("launch 'reach'"), std::string::npos);
}

TEST_F(GraphTest, TakesABorrowedBufferThatIsRegistered) {
  std::vector<int32_t> callers(4);
  const auto body = [&](Stream& stream) -> Status {
    stream.launch("triple", &scale_kernel, ScaleParams{x_->fixed(), borrow_fixed(callers.data(), 4), 4, 3});
    return {};
  };
  EXPECT_FALSE(capture_graph(stream_, kBucket, body).ok());
  device_->register_memory(MemoryClass::kPersistent, "caller's outputs", callers.data(), 16);
  const auto graph = capture_graph(stream_, kBucket, body);
  ASSERT_TRUE(graph.ok());
  write_x({1, 2, 3, 4});
  (*graph)->replay(stream_);
  EXPECT_EQ(callers, (std::vector<int32_t>{3, 6, 9, 12}));
  device_->unregister_memory(callers.data());
  EXPECT_DEATH((*graph)->replay(stream_), "decode bucket of 4 tokens.* was recorded on memory that has been released");
}

// A dangling address is found at the replay, even where the allocator gave the address to somebody else.
TEST_F(GraphTest, DoesNotReplayOnReleasedMemory) {
  auto scratch = buffer("scratch", 4);
  const auto graph = capture_graph(stream_, kBucket, [&](Stream& stream) -> Status {
    stream.launch("triple", &scale_kernel, ScaleParams{x_->fixed(), scratch->fixed(), 4, 3});
    return {};
  });
  ASSERT_TRUE(graph.ok());
  auto unrelated = buffer("unrelated", 4);
  unrelated.reset();
  (*graph)->replay(stream_);  // memory that the graph does not use may come and go
  scratch.reset();
  scratch = buffer("scratch again", 4);
  EXPECT_DEATH((*graph)->replay(stream_), "was recorded on memory that has been released since");
}

TEST_F(GraphTest, DoesNotReplayElsewhereOrWhileRecording) {
  const auto graph = capture_product();
  ASSERT_TRUE(graph.ok());
  const auto other_device = make_host_device(1);
  Stream other(*other_device);
  EXPECT_DEATH((*graph)->replay(other), "replayed on another device");
  ASSERT_TRUE(stream_.begin_capture({9, 9, 1, StepKind::kMixed}).ok());
  EXPECT_DEATH((*graph)->replay(stream_), "a replay during the capture of the mixed bucket of 9 tokens");
  stream_.abandon_capture();
  (*graph)->replay(stream_);
}

TEST_F(GraphTest, ABodysErrorEndsTheCapture) {
  const auto graph = capture_graph(stream_, kBucket, [&](Stream& stream) -> Status {
    stream.launch("triple", &scale_kernel, ScaleParams{x_->fixed(), y_->fixed(), 4, 3});
    return Error(ErrorCode::kUnsupported, "no kernel for this");
  });
  ASSERT_FALSE(graph.ok());
  EXPECT_EQ(graph.error().message(), "no kernel for this");
  EXPECT_FALSE(stream_.is_capturing());
  const auto next = capture_product();
  ASSERT_TRUE(next.ok());
  EXPECT_EQ((*next)->launches().size(), 2u);  // nothing is left of the first
}

TEST_F(GraphTest, IsNotCapturedAfterStartUp) {
  const auto before = capture_product();
  ASSERT_TRUE(before.ok());
  device_->seal();
  const auto after = capture_product();
  ASSERT_FALSE(after.ok());
  EXPECT_NE(after.error().message().find("decode bucket of 4 tokens, 2 requests, query width 2 cannot be captured"),
            std::string::npos)
      << after.error().message();
  write_x({1, 2, 3, 4});
  (*before)->replay(stream_);
  EXPECT_EQ(read(*z_), (std::vector<int32_t>{15, 30, 45, 60}));
}

TEST_F(GraphTest, AStreamThatGoesWhileRecordingLeavesNoGuard) {
  {
    Stream stream(*device_);
    ASSERT_TRUE(stream.begin_capture(kBucket).ok());
  }
  EXPECT_TRUE(PersistentBuffer<int32_t>::create(*device_, "afterwards", 2).ok());
  ASSERT_TRUE(capture_product().ok());
}

// Two values pass from step to step by the workspace: one is written first, one is what the last step left.
TEST_F(GraphTest, PoisonShowsWhatTheWorkspaceCarriesOver) {
  auto workspace = std::move(Workspace::create(*device_, 1024)).value();
  const Fixed<float> scratch = workspace.take<float>(4);
  struct Params {
    DevPtr<float> scratch;
    DevPtr<int32_t> y;
  };
  const HostKernel<Params> kernel = [](const Params& p, HostContext&) {
    p.scratch[0] = 1;
    p.y[0] = static_cast<int32_t>(p.scratch[0]);
    p.y[1] = p.scratch[1] == p.scratch[1] ? 1 : -1;  // -1: not a number
  };
  const auto graph = capture_graph(stream_, kBucket, [&](Stream& stream) -> Status {
    stream.launch("carry", kernel, Params{scratch, y_->fixed()});
    return {};
  });
  ASSERT_TRUE(graph.ok());
  stream_.set_poison_before_replay(false);
  (*graph)->replay(stream_);
  EXPECT_EQ(read(*y_), (std::vector<int32_t>{1, 1, 0, 0}));
  stream_.set_poison_before_replay(true);
  (*graph)->replay(stream_, {.keep_workspace = true});
  EXPECT_EQ(read(*y_), (std::vector<int32_t>{1, 1, 0, 0}));
  (*graph)->replay(stream_);
  EXPECT_EQ(read(*y_), (std::vector<int32_t>{1, -1, 0, 0}));
  // Persistent memory and registered weights are left alone.
  EXPECT_EQ(read(*x_), (std::vector<int32_t>{0, 0, 0, 0}));
}

TEST_F(GraphTest, AHostLaunchCostsNoMemoryOnceRecorded) {
  const auto graph = capture_product();
  ASSERT_TRUE(graph.ok());
  const size_t bytes = (*graph)->bytes();
  for (int i = 0; i < 100; ++i) (*graph)->replay(stream_);
  EXPECT_EQ((*graph)->bytes(), bytes);
}

TEST_F(GraphTest, ThreadsCaptureSideBySide) {
  ASSERT_TRUE(stream_.begin_capture(kBucket).ok());
  stream_.launch("triple", &scale_kernel, ScaleParams{x_->fixed(), y_->fixed(), 4, 3});
  std::thread([&] {
    Stream stream(*device_);
    const auto graph = capture_graph(stream, {1, 1, 1, StepKind::kDecode}, [&](Stream& s) -> Status {
      s.launch("double", &scale_kernel, ScaleParams{x_->fixed(), z_->fixed(), 4, 2});
      return {};
    });
    ASSERT_TRUE(graph.ok());
    const int32_t ones[4] = {1, 1, 1, 1};
    stream.copy_to_device(x_->fixed().data(), ones, sizeof(ones));
    (*graph)->replay(stream);
  }).join();
  const auto graph = stream_.end_capture();
  ASSERT_TRUE(graph.ok());
  EXPECT_EQ((*graph)->launches().size(), 1u);
  (*graph)->replay(stream_);
  EXPECT_EQ(read(*z_), (std::vector<int32_t>{2, 2, 2, 2}));
  EXPECT_EQ(read(*y_), (std::vector<int32_t>{3, 3, 3, 3}));
}

class GraphCacheTest : public GraphTest {
 protected:
  Status capture(const BucketKey& bucket) {
    return cache_.capture(stream_, bucket, [&](Stream& stream) -> Status {
      stream.launch("triple", &scale_kernel, ScaleParams{x_->fixed(), y_->fixed(), 4, 3});
      ++runs_;
      return {};
    });
  }
  GraphCache cache_;
  int runs_ = 0;
};

TEST_F(GraphCacheTest, RunsABodyOnceBeforeItIsCaptured) {
  write_x({1, 2, 3, 4});
  ASSERT_TRUE(capture(kBucket).ok());
  EXPECT_EQ(runs_, 2);
  EXPECT_EQ(read(*y_), (std::vector<int32_t>{3, 6, 9, 12}));  // by the eager run
  ASSERT_NE(cache_.find(kBucket), nullptr);
  EXPECT_EQ(cache_.find(kBucket)->launches().size(), 1u);
  EXPECT_EQ(cache_.bytes(), cache_.find(kBucket)->bytes());
  EXPECT_DEATH((void)capture(kBucket), "decode bucket of 4 tokens.* was captured twice");
}

TEST_F(GraphCacheTest, FindsTheSmallestBucketThatHoldsAStep) {
  using enum StepKind;
  for (const BucketKey& bucket :
       {BucketKey{16, 4, 4, kDecode}, BucketKey{8, 4, 2, kDecode}, BucketKey{8, 2, 4, kDecode},
        BucketKey{4, 4, 1, kDecode}, BucketKey{4, 1, 4, kMixed}}) {
    ASSERT_TRUE(capture(bucket).ok());
  }
  EXPECT_EQ(cache_.size(), 5u);
  const auto fit = [&](const BucketKey& step) {
    const Graph* graph = cache_.fitting(step);
    return graph == nullptr ? BucketKey{} : graph->bucket();
  };
  EXPECT_EQ(fit({3, 3, 1, kDecode}), (BucketKey{4, 4, 1, kDecode}));
  EXPECT_EQ(fit({4, 4, 1, kDecode}), (BucketKey{4, 4, 1, kDecode}));
  EXPECT_EQ(fit({4, 1, 2, kDecode}), (BucketKey{8, 2, 4, kDecode}));  // fewer requests, then columns
  EXPECT_EQ(fit({5, 3, 2, kDecode}), (BucketKey{8, 4, 2, kDecode}));
  EXPECT_EQ(fit({5, 3, 3, kDecode}), (BucketKey{16, 4, 4, kDecode}));
  EXPECT_EQ(fit({16, 5, 1, kDecode}), BucketKey{});
  EXPECT_EQ(fit({17, 1, 1, kDecode}), BucketKey{});
  EXPECT_EQ(fit({1, 1, 1, kMixed}), (BucketKey{4, 1, 4, kMixed}));
  EXPECT_EQ(fit({5, 1, 1, kMixed}), BucketKey{});  // a decode graph is not for a step with prefills
  EXPECT_EQ(cache_.find({16, 4, 3, kDecode}), nullptr);
  EXPECT_EQ(cache_.buckets().front(), (BucketKey{4, 4, 1, kDecode}));
  EXPECT_EQ(cache_.buckets().back(), (BucketKey{4, 1, 4, kMixed}));
}

}  // namespace
}  // namespace lantern
