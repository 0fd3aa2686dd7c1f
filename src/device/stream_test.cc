// What a Stream does whatever its device is: seen on a device that keeps a record of what it is asked for.
#include "device/stream.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "device/persistent_buffer.h"
#include "device/workspace.h"

namespace lantern {
namespace {

constexpr BucketKey kBucket{4, 2, 2, StepKind::kDecode};

struct KernelParams {
  DevPtr<int32_t> x;
  int32_t count = 0;
};
void kernel(const KernelParams&, HostContext&) {}

using Calls = std::vector<std::string>;

class RecordingGraph final : public Graph {
 public:
  RecordingGraph(GraphCapture capture, Calls& calls) : Graph(std::move(capture)), calls_(calls) {}
  size_t bytes() const override { return 7; }

 protected:
  void run(StreamBackend&, LaunchLog& log) override {
    log.begin("graph", 0);
    calls_.emplace_back("run");
  }

 private:
  Calls& calls_;
};

class RecordingBackend final : public StreamBackend {
 public:
  RecordingBackend(Calls& calls, bool& refuses) : calls_(calls), refuses_(refuses) {}
  void* native_handle() override { return this; }
  void synchronize() override { calls_.emplace_back("synchronize"); }
  void copy_to_device(void*, const void*, size_t) override { calls_.emplace_back("copy_to_device"); }
  void copy_to_host(void*, const void*, size_t) override { calls_.emplace_back("copy_to_host"); }
  void fill(void*, uint32_t pattern, size_t bytes) override {
    calls_.push_back("fill " + std::to_string(bytes) + (pattern == kWorkspacePoison ? " with poison" : ""));
  }
  Status begin_capture() override {
    if (refuses_) return Error(ErrorCode::kUnsupported, "this device captures nothing");
    calls_.emplace_back("begin");
    return {};
  }
  Result<std::unique_ptr<Graph>> end_capture(GraphCapture capture) override {
    calls_.emplace_back("end");
    if (refuses_) return Error(ErrorCode::kUnsupported, "the capture is broken");
    return std::unique_ptr<Graph>(new RecordingGraph(std::move(capture), calls_));
  }
  void abandon_capture() override { calls_.emplace_back("abandon"); }
  void record(const HostLaunch&) override { calls_.emplace_back("record"); }

 private:
  Calls& calls_;
  bool& refuses_;
};

class RecordingDevice final : public Device {
 public:
  DeviceKind kind() const override { return DeviceKind::kCuda; }
  std::string description() const override { return "a device of paper"; }
  size_t available_bytes() const override { return size_t{1} << 20; }
  int worker_count() const override { return 1; }
  void copy_to_device(void*, const void*, size_t) override {}
  void copy_to_host(void*, const void*, size_t) override {}
  std::unique_ptr<StreamBackend> make_stream_backend() override {
    if (only_memory) return Device::make_stream_backend();
    return std::make_unique<RecordingBackend>(calls, refuses);
  }

  Calls calls;
  bool refuses = false;
  bool only_memory = false;

 protected:
  void* allocate_zeroed(size_t bytes) override { return std::calloc(1, bytes); }
  void release_memory(void* address) override { std::free(address); }
};

class StreamTest : public testing::Test {
 protected:
  StreamTest() : stream_(device_) { x_ = std::move(PersistentBuffer<int32_t>::create(device_, "x", 4)).value(); }

  RecordingDevice device_;
  Stream stream_;
  std::unique_ptr<PersistentBuffer<int32_t>> x_;
};

TEST_F(StreamTest, AHostKernelIsForAHost) {
  EXPECT_DEATH(stream_.launch("scale", &kernel, KernelParams{x_->fixed(), 4}),
               "the host kernel 'scale' was launched on a device of paper");
  ASSERT_TRUE(stream_.begin_capture(kBucket).ok());
  EXPECT_DEATH(stream_.launch("scale", &kernel, KernelParams{x_->fixed(), 4}), "the host kernel 'scale'");
  stream_.abandon_capture();
  EXPECT_NE(stream_.native_handle(), nullptr);
}

TEST_F(StreamTest, LaunchesOfTheDevicesKindAreLoggedAndCheckedWhileRecording) {
  int32_t outside[4] = {};
  const KernelParams good{x_->fixed(), 4}, bad{borrow_fixed(outside, 4), 4};
  stream_.note_launch("eager", &bad, sizeof(bad));
  EXPECT_TRUE(stream_.recent_launches()[0].running);
  stream_.synchronize();
  EXPECT_FALSE(stream_.recent_launches()[0].running);
  ASSERT_TRUE(stream_.begin_capture(kBucket).ok());
  stream_.note_launch("good", &good, sizeof(good));
  auto graph = stream_.end_capture();
  ASSERT_TRUE(graph.ok());
  ASSERT_EQ((*graph)->launches().size(), 1u);
  EXPECT_STREQ((*graph)->launches()[0].name, "good");
  ASSERT_TRUE(stream_.begin_capture(kBucket).ok());
  stream_.note_launch("bad", &bad, sizeof(bad));
  const auto refused = stream_.end_capture();
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message().find("launch 'bad' in the capture of the decode bucket of 4 tokens"),
            std::string::npos);
  EXPECT_NE(refused.error().message().find("memory that a device of paper knows"), std::string::npos);
  EXPECT_EQ(device_.calls, (Calls{"synchronize", "begin", "end", "begin", "abandon"}));
}

TEST_F(StreamTest, PoisonIsFilledInBeforeARun) {
  const auto workspace = Workspace::create(device_, 1001);
  ASSERT_TRUE(workspace.ok());
  const auto graph = capture_graph(stream_, kBucket, [](Stream&) -> Status { return {}; });
  ASSERT_TRUE(graph.ok());
  device_.calls.clear();
  stream_.set_poison_before_replay(false);
  (*graph)->replay(stream_);
  stream_.set_poison_before_replay(true);
  (*graph)->replay(stream_);
  (*graph)->replay(stream_, {.keep_workspace = true});
  EXPECT_EQ(device_.calls, (Calls{"run", "fill 1001 with poison", "run", "run"}));
  EXPECT_EQ(to_string(stream_.recent_launches()[0]),
            "#3 graph (0 bytes of parameters), replayed in the decode bucket of 4 tokens, 2 requests, query width 2, "
            "running");
}

TEST_F(StreamTest, ADevicesRefusalEndsTheCapture) {
  device_.refuses = true;
  const Status begun = stream_.begin_capture(kBucket);
  ASSERT_FALSE(begun.ok());
  EXPECT_EQ(begun.error().message(), "this device captures nothing");
  EXPECT_EQ(CaptureGuard::active(), nullptr);
  device_.refuses = false;
  ASSERT_TRUE(stream_.begin_capture(kBucket).ok());
  device_.refuses = true;
  EXPECT_FALSE(stream_.end_capture().ok());
  EXPECT_EQ(CaptureGuard::active(), nullptr);
  EXPECT_FALSE(stream_.is_capturing());
}

TEST_F(StreamTest, ADeviceThatOnlyHoldsMemoryHasNoStreams) {
  device_.only_memory = true;
  EXPECT_DEATH(Stream stream(device_), "a device of paper holds memory but runs no launches");
}

TEST(HostStream, PoisonFillsEveryByteOfAWorkspaceAndNoMore) {
  const auto device = make_host_device(1);
  Stream stream(*device);
  // A registered region inside a larger one, of a size that no word divides.
  std::vector<uint8_t> memory(32, 0x11);
  device->register_memory(MemoryClass::kWorkspace, "scratch", memory.data() + 4, 11);
  stream.poison_workspaces();
  const std::vector<uint8_t> poisoned{0xff, 0x7f, 0xff, 0x7f, 0xff, 0x7f, 0xff, 0x7f, 0xff, 0x7f, 0xff};
  EXPECT_EQ(std::vector<uint8_t>(memory.begin() + 4, memory.begin() + 15), poisoned);
  EXPECT_EQ(std::vector<uint8_t>(memory.begin(), memory.begin() + 4), std::vector<uint8_t>(4, 0x11));
  EXPECT_EQ(std::vector<uint8_t>(memory.begin() + 15, memory.end()), std::vector<uint8_t>(17, 0x11));
  device->unregister_memory(memory.data() + 4);
}

TEST(HostStream, CopiesInOrderWithLaunches) {
  const auto device = make_host_device(1);
  Stream stream(*device);
  const auto buffer = PersistentBuffer<int32_t>::create(*device, "x", 2);
  ASSERT_TRUE(buffer.ok());
  const int32_t in[2] = {3, 4};
  int32_t out[2] = {};
  stream.copy_to_device((*buffer)->fixed().data(), in, sizeof(in));
  stream.launch("double", static_cast<HostKernel<KernelParams>>([](const KernelParams& p, HostContext&) {
                  for (int32_t i = 0; i < p.count; ++i) p.x[i] *= 2;
                }),
                KernelParams{(*buffer)->fixed(), 2});
  stream.copy_to_host(out, (*buffer)->fixed().data(), sizeof(out));
  stream.copy_to_host(nullptr, nullptr, 0);
  stream.synchronize();
  EXPECT_EQ(out[0], 6);
  EXPECT_EQ(out[1], 8);
}

}  // namespace
}  // namespace lantern
