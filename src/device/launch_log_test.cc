#include "device/launch_log.h"

#include <gtest/gtest.h>

#include "base/check.h"
#include "device/graph.h"
#include "device/persistent_buffer.h"
#include "device/stream.h"

namespace lantern {
namespace {

struct TestParams {
  DevPtr<int32_t> x;
  int32_t at = 0;
};
void write_kernel(const TestParams& p, HostContext&) {
  CHECK(p.at < 4, "the kernel was given place {}", p.at);
  p.x[p.at] = p.at;
}
void threaded_kernel(const TestParams& p, HostContext& context) {
  context.threads.parallel_for(64, 1, [&](int64_t begin, int64_t, int) { CHECK(begin != 17, "item {}", p.at); });
}

class LaunchLogTest : public testing::Test {
 protected:
  LaunchLogTest() : device_(make_host_device(2)), stream_(*device_) {
    testing::GTEST_FLAG(death_test_style) = "threadsafe";  // the pool has a thread
    x_ = std::move(PersistentBuffer<int32_t>::create(*device_, "x", 4)).value();
  }
  TestParams at(int32_t place) const { return {x_->fixed(), place}; }

  std::unique_ptr<Device> device_;
  Stream stream_;
  std::unique_ptr<PersistentBuffer<int32_t>> x_;
};

TEST_F(LaunchLogTest, KeepsTheLastLaunchesNewestFirst) {
  EXPECT_TRUE(stream_.recent_launches().empty());
  EXPECT_STREQ(stream_.last_launch(), "");
  for (int i = 0; i < 20; ++i) stream_.launch(i % 2 == 0 ? "even" : "odd", &write_kernel, at(0));
  const std::vector<LaunchRecord> recent = stream_.recent_launches();
  ASSERT_EQ(recent.size(), LaunchLog::kCapacity);
  EXPECT_EQ(recent.front().sequence, 20u);
  EXPECT_STREQ(recent.front().name, "odd");
  EXPECT_EQ(recent.back().sequence, 5u);
  EXPECT_STREQ(recent.back().name, "even");
  EXPECT_EQ(recent.front().params_bytes, sizeof(TestParams));
  EXPECT_FALSE(recent.front().running);
  EXPECT_EQ(stream_.launch_count(), 20u);
}

TEST_F(LaunchLogTest, SaysWhatWasRecordedAndWhatReplayed) {
  auto graph = capture_graph(stream_, {8, 2, 4, StepKind::kDecode}, [&](Stream& stream) -> Status {
    stream.launch("write", &write_kernel, at(1));
    return {};
  });
  ASSERT_TRUE(graph.ok());
  EXPECT_EQ(to_string(stream_.recent_launches()[0]),
            "#1 write (24 bytes of parameters), recorded for the decode bucket of 8 tokens, 2 requests, query width 4");
  (*graph)->replay(stream_);
  EXPECT_EQ(to_string(stream_.recent_launches()[0]),
            "#2 write (24 bytes of parameters), replayed in the decode bucket of 8 tokens, 2 requests, query width 4");
  stream_.launch("write", &write_kernel, at(1));
  EXPECT_EQ(to_string(stream_.recent_launches()[0]), "#3 write (24 bytes of parameters)");
}

using LaunchLogDeathTest = LaunchLogTest;

TEST_F(LaunchLogDeathTest, AFaultInAKernelTellsWhatRanBeforeIt) {
  stream_.launch("first", &write_kernel, at(2));
  EXPECT_DEATH(stream_.launch("second", &write_kernel, at(9)),
               "the kernel was given place 9\nlantern: last launches on cpu \\(2 threads\\), newest first:\n"
               "  #2 second \\(24 bytes of parameters\\), running\n"
               "  #1 first \\(24 bytes of parameters\\)\n");
}

TEST_F(LaunchLogDeathTest, AFaultInAReplayTellsTheBucket) {
  auto graph = capture_graph(stream_, {8, 2, 4, StepKind::kMixed}, [&](Stream& stream) -> Status {
    stream.launch("bad", &write_kernel, at(4));
    return {};
  });
  ASSERT_TRUE(graph.ok());
  EXPECT_DEATH((*graph)->replay(stream_), "#2 bad .*, replayed in the mixed bucket of 8 tokens.*, running");
}

TEST_F(LaunchLogDeathTest, AFaultOnAThreadOfThePoolTellsIt) {
  EXPECT_DEATH(stream_.launch("threaded", &threaded_kernel, at(3)), "item 3\n(.|\n)*#1 threaded .*, running");
}

TEST_F(LaunchLogDeathTest, ReportsNameEachStream) {
  const auto other = make_host_device(1);
  Stream quiet(*other);
  EXPECT_EQ(recent_launches_report(), "");
  stream_.launch("write", &write_kernel, at(0));
  const std::string report = recent_launches_report();
  EXPECT_NE(report.find("last launches on cpu (2 threads)"), std::string::npos) << report;
  EXPECT_EQ(report.find("cpu (1 threads)"), std::string::npos) << report;
}

}  // namespace
}  // namespace lantern
