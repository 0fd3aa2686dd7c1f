#include "engine/rank_router.h"

#include <gtest/gtest.h>

#include <numeric>

namespace lantern {
namespace {

EngineSettings settings() {
  EngineSettings settings;
  settings.limits.block_size = 16;
  settings.limits.max_model_len = 1024;
  return settings;
}

Request request_of(int32_t first, int32_t length, int32_t max_tokens) {
  Request request;
  request.prompt.resize(static_cast<size_t>(length));
  std::iota(request.prompt.begin(), request.prompt.end(), first);
  request.max_tokens = max_tokens;
  return request;
}

constexpr uint8_t kRoom[3] = {0, 0, 0};

TEST(RankRouter, LeastLoadedByTokens) {
  const auto router = RankRouter::create(3, settings(), HashKey{});
  auto big = router->choose(request_of(0, 10, 500), kRoom);
  auto small = router->choose(request_of(1000, 10, 20), kRoom);
  auto middle = router->choose(request_of(2000, 10, 200), kRoom);
  EXPECT_EQ(big->rank(), 0);
  EXPECT_EQ(small->rank(), 1);
  EXPECT_EQ(middle->rank(), 2);
  EXPECT_EQ(router->loads(), (std::vector<int64_t>{510, 30, 210}));
  auto next = router->choose(request_of(3000, 10, 100), kRoom);
  EXPECT_EQ(next->rank(), 1);
  big.reset();
  EXPECT_EQ(router->loads(), (std::vector<int64_t>{0, 140, 210}));
  EXPECT_EQ(router->choose(request_of(4000, 10, 100), kRoom)->rank(), 0);
  EXPECT_EQ(router->loads(), (std::vector<int64_t>{0, 140, 210})) << "a ticket that is dropped counts for nothing";
}

// Choices share the prompt; the context's end bounds what is taken.
TEST(RankRouter, CountsWhatARequestCanTake) {
  const auto router = RankRouter::create(1, settings(), HashKey{});
  Request request = request_of(0, 24, 100);
  request.n = 3;
  const uint8_t room[1] = {0};
  auto ticket = router->choose(request, room);
  EXPECT_EQ(router->loads().front(), 24 + 3 * 100);
  ticket = router->choose(request_of(0, 1000, 5000), room);
  EXPECT_EQ(router->loads().front(), 1024);
}

TEST(RankRouter, APromptGoesWhereItsBeginningIs) {
  const auto router = RankRouter::create(3, settings(), HashKey{});
  auto other = router->choose(request_of(5000, 40, 10), kRoom);  // rank 0
  auto first = router->choose(request_of(0, 160, 10), kRoom);
  EXPECT_EQ(first->rank(), 1);
  first.reset();
  // Rank 1 and 2 are idle; 1 has the beginning.
  auto again = router->choose(request_of(0, 200, 10), kRoom);
  EXPECT_EQ(again->rank(), 1);
  // It has more to do than the beginning would save.
  EXPECT_EQ(router->choose(request_of(0, 160, 10), kRoom)->rank(), 2);
}

TEST(RankRouter, SaltsAndOffSwitchShareNothing) {
  for (const bool caching : {true, false}) {
    EngineSettings other = settings();
    other.prefix_caching = caching;
    const auto router = RankRouter::create(3, other, HashKey{});
    auto busy = router->choose(request_of(5000, 40, 10), kRoom);
    EXPECT_EQ(router->choose(request_of(0, 160, 10), kRoom)->rank(), 1);
    auto busier = router->choose(request_of(6000, 64, 10), kRoom);
    ASSERT_EQ(busier->rank(), 1);
    Request request = request_of(0, 160, 10);
    if (caching) request.cache_salt = "another";
    EXPECT_EQ(router->choose(request, kRoom)->rank(), 2);
    if (!caching) continue;
    EXPECT_EQ(router->choose(request_of(0, 160, 10), kRoom)->rank(), 1);
  }
}

TEST(RankRouter, AFullRankIsPassed) {
  const auto router = RankRouter::create(3, settings(), HashKey{});
  const uint8_t first_full[3] = {1, 0, 0};
  const uint8_t all_full[3] = {1, 1, 1};
  auto a = router->choose(request_of(0, 10, 500), first_full);
  EXPECT_EQ(a->rank(), 1);
  EXPECT_EQ(router->choose(request_of(100, 10, 10), all_full)->rank(), 0);
}

}  // namespace
}  // namespace lantern
