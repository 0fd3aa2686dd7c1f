#include "parallel/communicator.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <functional>
#include <numeric>
#include <random>
#include <thread>

namespace lantern {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kLong{60'000};  // no test waits so long unless a rank hangs

// Runs body(rank's end) on a thread for each rank. Ends are destroyed when all bodies have returned, unless a body
// takes its own.
void on_ranks(int32_t size, milliseconds timeout, const std::function<void(std::unique_ptr<Communicator>&)>& body) {
  auto ranks = make_thread_communicators(size, timeout);
  std::vector<std::thread> threads;
  threads.reserve(ranks.size());
  for (auto& rank : ranks) threads.emplace_back([&] { body(rank); });
  for (std::thread& thread : threads) thread.join();
}

TEST(Communicator, OneRankAlone) {
  const auto alone = make_single_communicator();
  std::array<int64_t, 3> values{3, -1, 7};
  ASSERT_TRUE(alone->all_reduce(values, Reduction::kSum).ok());
  EXPECT_EQ(values, (std::array<int64_t, 3>{3, -1, 7}));
  EXPECT_TRUE(alone->barrier().ok());
  alone->abort(Error(ErrorCode::kIo, "the cable was pulled"));
  EXPECT_EQ(alone->barrier().error().message(), "the cable was pulled");
}

TEST(Communicator, ReducesByEachRule) {
  for (const int32_t size : {1, 2, 3, 8}) {
    on_ranks(size, kLong, [size](std::unique_ptr<Communicator>& rank) {
      EXPECT_EQ(rank->size(), size);
      const int64_t r = rank->rank();
      std::array<int64_t, 3> values{r, -r, 100 + r * r};
      ASSERT_TRUE(rank->all_reduce(values, Reduction::kMax).ok());
      EXPECT_EQ(values, (std::array<int64_t, 3>{size - 1, 0, 100 + (size - 1) * (size - 1)}));
      values = {r, -r, 100 + r * r};
      ASSERT_TRUE(rank->all_reduce(values, Reduction::kMin).ok());
      EXPECT_EQ(values, (std::array<int64_t, 3>{0, 1 - size, 100}));
      std::array<int64_t, 1> sum{r + 1};
      ASSERT_TRUE(rank->all_reduce(sum, Reduction::kSum).ok());
      EXPECT_EQ(sum[0], int64_t{size} * (size + 1) / 2);
    });
  }
}

// Ranks that are fast and ranks that are slow: no result is mixed with that of the call before or after it.
TEST(Communicator, CallsOneAfterAnother) {
  constexpr int32_t kRanks = 4, kCalls = 3000;
  on_ranks(kRanks, kLong, [](std::unique_ptr<Communicator>& rank) {
    std::mt19937_64 random(static_cast<uint64_t>(rank->rank()));
    for (int64_t call = 0; call < kCalls; ++call) {
      const size_t count = static_cast<size_t>(call) % Communicator::kMaxValues + 1;
      std::vector<int64_t> values(count);
      std::iota(values.begin(), values.end(), call * 1000 + rank->rank());
      if (random() % 64 == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
      ASSERT_TRUE(rank->all_reduce(values, Reduction::kMax).ok());
      for (size_t i = 0; i < count; ++i) ASSERT_EQ(values[i], call * 1000 + kRanks - 1 + static_cast<int64_t>(i));
    }
  });
}

TEST(Communicator, NobodyPassesABarrierBeforeAllHaveCome) {
  constexpr int32_t kRanks = 3;
  std::atomic<int32_t> come{0};
  on_ranks(kRanks, kLong, [&](std::unique_ptr<Communicator>& rank) {
    for (int32_t round = 1; round <= 200; ++round) {
      ++come;
      ASSERT_TRUE(rank->barrier().ok());
      EXPECT_GE(come, round * kRanks);
      ASSERT_TRUE(rank->barrier().ok());
    }
  });
}

TEST(Communicator, ARankThatFailsEndsTheWaitOfTheOthers) {
  on_ranks(4, kLong, [](std::unique_ptr<Communicator>& rank) {
    ASSERT_TRUE(rank->barrier().ok());
    if (rank->rank() == 2) {
      rank->abort(Error(ErrorCode::kIo, "rank 2 has lost its device"));
      rank->abort(Error(ErrorCode::kIo, "something else"));
    }
    for (int32_t again = 0; again < 2; ++again) {
      const Status status = rank->barrier();
      ASSERT_FALSE(status.ok());
      EXPECT_EQ(status.error().message(), "rank 2 has lost its device");
    }
  });
}

TEST(Communicator, ARankThatLeavesEndsTheWaitOfTheOthers) {
  on_ranks(3, kLong, [](std::unique_ptr<Communicator>& rank) {
    ASSERT_TRUE(rank->barrier().ok());
    if (rank->rank() == 1) {
      rank.reset();
      return;
    }
    const Status status = rank->barrier();
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().message(), "rank 1 of 3 has left");
  });
}

// A call that was complete before a rank left is complete on every rank, however late that looks.
TEST(Communicator, WhatWasCompleteStaysSo) {
  for (int32_t repeat = 0; repeat < 200; ++repeat) {
    on_ranks(3, kLong, [](std::unique_ptr<Communicator>& rank) {
      std::array<int64_t, 1> value{rank->rank()};
      EXPECT_TRUE(rank->all_reduce(value, Reduction::kSum).ok());
      EXPECT_EQ(value[0], 3);
      rank.reset();
    });
  }
}

TEST(Communicator, WhoDoesNotComeIsNamedInTime) {
  on_ranks(4, milliseconds(50), [](std::unique_ptr<Communicator>& rank) {
    if (rank->rank() == 1 || rank->rank() == 3) return;
    const Status status = rank->barrier();
    ASSERT_FALSE(status.ok());
    // On a busy machine the other of the two may have come late as well.
    EXPECT_NE(status.error().message().find("has waited 50 ms for rank"), std::string::npos);
    EXPECT_NE(status.error().message().find("rank 1"), std::string::npos) << status.error().message();
    EXPECT_NE(status.error().message().find("rank 3, whose step"), std::string::npos) << status.error().message();
  });
}

TEST(Communicator, CallsThatDifferEndTheGroup) {
  for (const bool rule : {false, true}) {
    on_ranks(2, kLong, [rule](std::unique_ptr<Communicator>& rank) {
      std::array<int64_t, 3> values{};
      const bool other = rank->rank() == 1;
      const auto mine = std::span(values).first(other && !rule ? 2 : 3);
      const Status status = rank->all_reduce(mine, other && rule ? Reduction::kMin : Reduction::kMax);
      ASSERT_FALSE(status.ok());
      EXPECT_EQ(status.error().code(), ErrorCode::kInvalidArgument);
    });
  }
}

}  // namespace
}  // namespace lantern
