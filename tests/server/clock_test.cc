// The day's clock may be set at any moment: what waits, waits by another one.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <ctime>
#include <thread>

#include "socket_client.h"
#include "tiny_server.h"

namespace {
std::atomic<time_t> jump = 0;  // seconds by which the day's clock is wrong
}  // namespace

// Stands before the C library's, which std::chrono calls (and std::time() does not).
extern "C" int clock_gettime(clockid_t clock, timespec* now) {
  const long failed = syscall(SYS_clock_gettime, clock, now);
  if (failed == 0 && clock == CLOCK_REALTIME) now->tv_sec += jump;
  return static_cast<int>(failed);
}

namespace lantern::test {
namespace {

using std::chrono::milliseconds;

TEST(ClockTest, JumpsHoldUpNobodyAndEndNothing) {
  TinyServerOptions options;
  options.http.idle_timeout = milliseconds(1500);
  options.http.ping_interval = milliseconds(300);
  TinyServer server(std::move(options));
  jump = 1000;
  const auto wrong_by = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now()) - std::time(nullptr);
  ASSERT_NEAR(static_cast<double>(wrong_by), 1000, 3) << "the clock cannot be set here";
  std::atomic<bool> done = false;
  std::thread jumps([&] {
    constexpr time_t kDay = 86'400;
    for (int i = 0; !done; ++i) {
      jump = std::array<time_t, 4>{0, kDay, -3650 * kDay, 3650 * kDay}[static_cast<size_t>(i) % 4];
      std::this_thread::sleep_for(milliseconds(20));
    }
    jump = 0;
  });
  const auto start = std::chrono::steady_clock::now();
  Client stream(server.port());
  ASSERT_TRUE(stream.send(post_text(
      "/v1/completions", R"({"prompt":"Hello","max_tokens":400,"ignore_eos":true,"temperature":0,"stream":true})")));
  for (int i = 0; i < 20; ++i) {
    const Answer answer =
        post(server.port(), "/v1/completions", R"({"prompt":"Hello","max_tokens":4,"temperature":0})");
    EXPECT_EQ(answer.status, 200) << answer.body;
    EXPECT_EQ(get(server.port(), "/health").status, 200);
    EXPECT_LT(server.api().watch(std::chrono::steady_clock::now()), milliseconds(60'000));
  }
  EXPECT_EQ(json_events_of(stream.read_answer().value_or(Answer{})).size(), 400u);
  // An idle connection is closed when its time is over, and not before.
  Client idle(server.port());
  EXPECT_FALSE(idle.is_closed(milliseconds(700)));
  EXPECT_TRUE(idle.is_closed(milliseconds(5000)));
  EXPECT_LT(metric(server.port(), "vllm:e2e_request_latency_seconds_sum"), 1000);
  EXPECT_GE(metric(server.port(), "vllm:e2e_request_latency_seconds_sum"), 0);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(120));
  done = true;
  jumps.join();
}

}  // namespace
}  // namespace lantern::test
