#include "device/stream_event.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <thread>

#include "device/devices_test.h"
#include "device/persistent_buffer.h"
#include "device/pinned_buffer.h"
#include "device/workspace.h"

namespace lantern {
namespace {

struct NoParams {};

TEST(StreamEvent, TimesTheLaunchesBetweenThem) {
  const auto device = make_host_device(1);
  Stream stream(*device);
  const auto first = StreamEvent::make(stream), second = StreamEvent::make(stream);
  const auto sleep = static_cast<HostKernel<NoParams>>(
      [](const NoParams&, HostContext&) { std::this_thread::sleep_for(std::chrono::milliseconds(20)); });
  const auto start = std::chrono::steady_clock::now();
  first->record();
  stream.launch("sleep", sleep, NoParams{});
  second->record();
  const double passed = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  EXPECT_GE(second->seconds_since(*first), 0.02);
  EXPECT_LE(second->seconds_since(*first), passed);
  first->record();  // again: elsewhere now
  EXPECT_LE(second->seconds_since(*first), 0);
}

class StreamEventOnDevice : public test::DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, StreamEventOnDevice, testing::ValuesIn(test::test_devices()), test::device_name);

TEST_P(StreamEventOnDevice, IsInTheOrderOfTheStream) {
  Stream stream(*device_);
  const auto workspace = Workspace::create(*device_, 64 << 20);
  ASSERT_TRUE(workspace.ok());
  const auto first = StreamEvent::make(stream), second = StreamEvent::make(stream), third = StreamEvent::make(stream);
  const auto start = std::chrono::steady_clock::now();
  first->record();
  stream.poison_workspaces();
  second->record();
  stream.poison_workspaces();
  third->record();
  const double one = second->seconds_since(*first), two = third->seconds_since(*second);
  const double passed = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  EXPECT_GT(one, 64e6 / 1e14);  // no memory takes 100 TB/s
  EXPECT_GT(two, 64e6 / 1e14);
  EXPECT_LT(one + two, passed);
}

TEST_P(StreamEventOnDevice, HasPassedWhenPinnedMemoryHoldsWhatWasCopied) {
  constexpr int64_t kCount = 1 << 20;
  Stream stream(*device_);
  const auto sent = PinnedBuffer<int32_t>::create(*device_, "sent", kCount);
  const auto received = PinnedBuffer<int32_t>::create(*device_, "received", kCount);
  const auto there = PersistentBuffer<int32_t>::create(*device_, "there", kCount);
  ASSERT_TRUE(sent.ok() && received.ok() && there.ok());
  EXPECT_EQ(std::ranges::count((*received)->values(), 0), kCount);
  std::iota((*sent)->values().begin(), (*sent)->values().end(), 1);
  const size_t bytes = (*sent)->values().size_bytes();
  stream.copy_to_device((*there)->fixed().data(), (*sent)->values().data(), bytes);
  stream.copy_to_host((*received)->values().data(), (*there)->fixed().data(), bytes);
  const auto event = StreamEvent::make(stream);
  event->record();
  event->wait();
  EXPECT_TRUE(event->passed());
  EXPECT_TRUE(std::ranges::equal((*received)->values(), (*sent)->values()));
}

TEST_P(StreamEventOnDevice, IsNoPartOfACapture) {
  Stream stream(*device_);
  const auto event = StreamEvent::make(stream);
  ASSERT_TRUE(stream.begin_capture({4, 2, 2, StepKind::kDecode}).ok());
  EXPECT_DEATH(event->record(), "StreamEvent::record\\(\\) during the capture of the decode bucket of 4 tokens");
  stream.abandon_capture();
}

}  // namespace
}  // namespace lantern
