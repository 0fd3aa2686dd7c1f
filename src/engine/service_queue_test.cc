#include "engine/service_queue.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

namespace lantern {
namespace {

TEST(ServiceQueue, WalksInOrderAndChangesNothing) {
  ServiceQueue<int> queue(8);
  for (const int id : {3, 1, 7, 0, 5}) queue.insert(id, id * 10);
  ServiceQueue<int>::Walk walk(8);
  for (int again = 0; again < 2; ++again) {
    walk.restart(queue);
    std::vector<int> seen;
    for (int id = walk.next(); id >= 0; id = walk.next()) seen.push_back(id);
    EXPECT_EQ(seen, (std::vector<int>{0, 1, 3, 5, 7}));
  }
  EXPECT_EQ(queue.first(), 0);
  EXPECT_DEATH(queue.insert(3, 1), "in the queue already");
  EXPECT_DEATH(queue.erase(2), "not in the queue");
}

TEST(ServiceQueue, AgreesWithASortedMap) {
  constexpr int kCapacity = 200;
  ServiceQueue<int> queue(kCapacity);
  ServiceQueue<int>::Walk walk(kCapacity);
  std::map<int, int> by_key;  // keys are distinct
  std::vector<int> key_of(kCapacity, -1);
  std::mt19937 random(3);
  for (int turn = 0; turn < 20000; ++turn) {
    const int id = static_cast<int>(random() % kCapacity);
    const int key = static_cast<int>(random() % 1000000);
    if (queue.contains(id)) {
      by_key.erase(key_of[static_cast<size_t>(id)]);
      queue.erase(id);
    } else if (!by_key.contains(key)) {
      by_key[key] = id;
      key_of[static_cast<size_t>(id)] = key;
      queue.insert(id, key);
    }
    ASSERT_EQ(queue.size(), static_cast<int>(by_key.size()));
    walk.restart(queue);
    int left = 5;
    for (const auto& [unused, expected] : by_key) {
      if (left-- == 0) break;
      ASSERT_EQ(walk.next(), expected);
    }
  }
  EXPECT_TRUE(queue.consistent());
}

}  // namespace
}  // namespace lantern
