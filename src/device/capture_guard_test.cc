// What is refused while a graph is captured: on every device, with the names of the culprit and of the bucket.
#include "device/capture_guard.h"

#include <gtest/gtest.h>

#include <thread>

#include "device/devices_test.h"
#include "device/persistent_buffer.h"
#include "device/stream.h"
#include "device/workspace.h"

namespace lantern {
namespace {

constexpr BucketKey kBucket{6, 3, 2, StepKind::kDecode};
const char* const kBucketName = "decode bucket of 6 tokens, 3 requests, query width 2";

class Capture : public test::DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (device_ == nullptr) return;
    stream_.emplace(*device_);
    buffer_ = std::move(PersistentBuffer<int32_t>::create(*device_, "draft tokens", 8)).value();
  }
  void TearDown() override {
    if (stream_ && stream_->is_capturing()) stream_->abandon_capture();
    buffer_.reset();
    stream_.reset();
  }
  void begin() { ASSERT_TRUE(stream_->begin_capture(kBucket).ok()); }
  static std::string during(const std::string& culprit) {
    return culprit + " during the capture of the " + kBucketName;
  }

  std::unique_ptr<PersistentBuffer<int32_t>> buffer_;
  std::optional<Stream> stream_;
};
using CaptureDeathTest = Capture;
INSTANTIATE_TEST_SUITE_P(Devices, Capture, testing::ValuesIn(test::test_devices()), test::device_name);
INSTANTIATE_TEST_SUITE_P(Devices, CaptureDeathTest, testing::ValuesIn(test::test_devices()), test::device_name);

TEST_P(Capture, AllocationIsAnErrorAndFailsTheCapture) {
  begin();
  const auto late = PersistentBuffer<float>::create(*device_, "late logits", 16);
  ASSERT_FALSE(late.ok());
  const std::string& message = late.error().message();
  EXPECT_NE(message.find(during("'late logits' asked for 64 bytes of device memory")), std::string::npos) << message;
  const auto workspace = Workspace::create(*device_, 256);
  ASSERT_FALSE(workspace.ok());
  EXPECT_NE(workspace.error().message().find("'workspace' asked for 256 bytes"), std::string::npos);
  // Though nobody returned the errors; the first culprit is named.
  const auto graph = stream_->end_capture();
  ASSERT_FALSE(graph.ok());
  EXPECT_EQ(graph.error().message(), message);
  // And then all is as before.
  EXPECT_TRUE(PersistentBuffer<float>::create(*device_, "late logits", 16).ok());
  begin();
  EXPECT_TRUE(stream_->end_capture().ok());
}

TEST_P(Capture, AnotherThreadMayAllocateCopyAndWait) {
  begin();
  std::thread([&] {
    auto other = PersistentBuffer<int32_t>::create(*device_, "of another thread", 8);
    ASSERT_TRUE(other.ok());
    const int32_t in[2] = {5, 6};
    int32_t out[2] = {};
    device_->copy_to_device((*other)->fixed().data(), in, sizeof(in));
    device_->copy_to_host(out, (*other)->fixed().data(), sizeof(out));
    EXPECT_EQ(out[1], 6);
    Stream stream(*device_);
    stream.synchronize();
    other->reset();
  }).join();
  EXPECT_TRUE(stream_->end_capture().ok());
}

TEST_P(Capture, GuardsStandForTheirThreadOnly) {
  EXPECT_EQ(CaptureGuard::active(), nullptr);
  begin();
  ASSERT_NE(CaptureGuard::active(), nullptr);
  EXPECT_EQ(CaptureGuard::active()->bucket(), kBucket);
  std::thread([] { EXPECT_EQ(CaptureGuard::active(), nullptr); }).join();
  stream_->abandon_capture();
  EXPECT_EQ(CaptureGuard::active(), nullptr);
}

TEST_P(CaptureDeathTest, ReleaseNamesTheOwner) {
  begin();
  EXPECT_DEATH(buffer_.reset(), during("'draft tokens' released its device memory"));
}

TEST_P(CaptureDeathTest, UnregisteringNamesTheOwner) {
  int32_t callers[4] = {};
  device_->register_memory(MemoryClass::kWeights, "model-00001.safetensors", callers, sizeof(callers));
  begin();
  EXPECT_DEATH(device_->unregister_memory(callers), during("'model-00001.safetensors' unregistered its memory"));
}

TEST_P(CaptureDeathTest, SynchronizationIsNamed) {
  begin();
  EXPECT_DEATH(stream_->synchronize(), during("synchronize\\(\\)"));
  Stream other(*device_);
  EXPECT_DEATH(other.synchronize(), during("synchronize\\(\\)"));
}

TEST_P(CaptureDeathTest, HostReadsAndWritesAreNamed) {
  begin();
  int32_t value = 0;
  int32_t* on_device = buffer_->fixed().data();
  EXPECT_DEATH(device_->copy_to_host(&value, on_device, 4), during("copy_to_host\\(\\)"));
  EXPECT_DEATH(stream_->copy_to_host(&value, on_device, 4), during("copy_to_host\\(\\)"));
  EXPECT_DEATH(device_->copy_to_device(on_device, &value, 4), during("copy_to_device\\(\\)"));
  EXPECT_DEATH(stream_->copy_to_device(on_device, &value, 4), during("copy_to_device\\(\\)"));
  EXPECT_DEATH(stream_->poison_workspaces(), during("poison_workspaces\\(\\)"));
}

TEST_P(CaptureDeathTest, CapturesDoNotNest) {
  begin();
  EXPECT_DEATH((void)stream_->begin_capture({1, 1, 1, StepKind::kMixed}),
               during("capture of the mixed bucket of 1 .*"));
  Stream other(*device_);
  EXPECT_DEATH((void)other.begin_capture({1, 1, 1, StepKind::kMixed}), during("capture of the mixed bucket of 1 .*"));
}

TEST_P(CaptureDeathTest, OnlyWhatBeganCanEnd) {
  EXPECT_DEATH((void)stream_->end_capture(), "nothing is being captured");
  begin();
  EXPECT_DEATH(std::thread([&] { (void)stream_->end_capture(); }).join(), "ended on another thread than it began on");
}

TEST_P(CaptureDeathTest, AllocationAfterStartUpNamesTheOwner) {
  device_->seal();
  EXPECT_DEATH((void)PersistentBuffer<float>::create(*device_, "late logits", 16),
               "'late logits' asked for 64 bytes of device memory after start-up");
  EXPECT_DEATH((void)Workspace::create(*device_, 256), "'workspace' asked for 256 bytes of device memory after");
}

}  // namespace
}  // namespace lantern
