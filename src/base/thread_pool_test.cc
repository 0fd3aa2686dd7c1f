#include "base/thread_pool.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <set>
#include <system_error>
#include <thread>
#include <vector>

namespace lantern {
namespace {

TEST(ThreadPool, TellsOfAThreadThatTheSystemRefuses) {
  pthread_attr_t usual;
  ASSERT_EQ(pthread_getattr_default_np(&usual), 0);
  pthread_attr_t huge;
  ASSERT_EQ(pthread_getattr_default_np(&huge), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&huge, size_t{1} << 48), 0);  // more than there are addresses
  ASSERT_EQ(pthread_setattr_default_np(&huge), 0);
  EXPECT_THROW(ThreadPool pool(3), std::system_error);
  EXPECT_EQ(ThreadPool(1).thread_count(), 1);
  ASSERT_EQ(pthread_setattr_default_np(&usual), 0);
  EXPECT_EQ(ThreadPool(3).thread_count(), 3);
  pthread_attr_destroy(&usual);
  pthread_attr_destroy(&huge);
}

TEST(ThreadPool, CoversEveryItemOnceForAnySizes) {
  for (int threads : {1, 2, 3, 5}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.thread_count(), threads);
    for (int64_t count : {0, 1, 2, 7, 64, 1000}) {
      for (int64_t grain : {-1, 0, 1, 3, 64, 5000}) {
        std::vector<std::atomic<int>> hits(static_cast<size_t>(count));
        pool.parallel_for(count, grain, [&](int64_t begin, int64_t end, int worker) {
          EXPECT_LT(begin, end);
          EXPECT_GE(worker, 0);
          EXPECT_LT(worker, threads);
          if (threads > 1) {
            EXPECT_LE(end - begin, std::max<int64_t>(1, grain));
          }
          for (int64_t i = begin; i < end; ++i) ++hits[static_cast<size_t>(i)];
        });
        for (const auto& hit : hits) ASSERT_EQ(hit.load(), 1) << count << " items in pieces of " << grain;
      }
    }
  }
}

TEST(ThreadPool, ManyShortLoopsInARowLoseNothing) {
  // Loops that end while workers are still waking up, and wake-ups that find the next loop.
  ThreadPool pool(4);
  std::vector<int64_t> values(37, 0);  // no atomics: the pool orders loops and their callers
  for (int64_t round = 0; round < 20000; ++round) {
    pool.parallel_for(37, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) values[static_cast<size_t>(i)] += round;
    });
  }
  for (int64_t value : values) EXPECT_EQ(value, 20000 * 19999 / 2);
}

TEST(ThreadPool, WorkersSleepAndWakeAgain) {
  ThreadPool pool(2);
  for (int round = 0; round < 5; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // far beyond the spinning
    std::atomic<int64_t> sum{0};
    pool.parallel_for(100, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) sum += i;
    });
    EXPECT_EQ(sum.load(), 4950);
  }
}

TEST(ThreadPool, TwoThreadsWorkAtTheSameTime) {
  ThreadPool pool(2);
  std::atomic<int> arrived{0};
  std::mutex mutex;
  std::set<int> workers;
  pool.parallel_for(2, 1, [&](int64_t, int64_t, int worker) {
    {
      std::lock_guard lock(mutex);
      workers.insert(worker);
    }
    ++arrived;
    // Each piece waits for the other: one thread alone would never get here twice.
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (arrived.load() < 2 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  });
  EXPECT_EQ(workers, (std::set<int>{0, 1}));
}

TEST(ThreadPool, ZeroMeansEveryUsableCore) {
  const ThreadPool pool(0);
  EXPECT_GE(pool.thread_count(), 1);
  EXPECT_LE(static_cast<unsigned>(pool.thread_count()), std::max(1u, std::thread::hardware_concurrency()));
}

TEST(ThreadPoolDeathTest, NestingAndNegativeSizesAreBrokenInvariants) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(ThreadPool(-1), "-1 threads");
  for (int threads : {1, 2}) {
    EXPECT_DEATH(
        {
          ThreadPool pool(threads);
          pool.parallel_for(8, 1,
                            [&](int64_t, int64_t, int) { pool.parallel_for(1, 4, [](int64_t, int64_t, int) {}); });
        },
        "inside a parallel_for body");
  }
}

}  // namespace
}  // namespace lantern
