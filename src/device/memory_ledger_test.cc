#include "device/memory_ledger.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace lantern {
namespace {

TEST(MemoryLedger, KnowsWhatLiesInsideOfOneEntry) {
  std::array<std::byte, 300> memory{};
  MemoryLedger ledger;
  EXPECT_FALSE(ledger.contains(memory.data(), 1));
  ledger.add(MemoryClass::kWeights, "a", memory.data(), 100);
  ledger.add(MemoryClass::kPool, "b", memory.data() + 100, 200);
  EXPECT_TRUE(ledger.contains(memory.data(), 100));
  EXPECT_TRUE(ledger.contains(memory.data() + 99, 1));
  EXPECT_TRUE(ledger.contains(memory.data() + 100, 200));
  EXPECT_FALSE(ledger.contains(memory.data() + 50, 100)) << "two entries are not one range";
  EXPECT_FALSE(ledger.contains(memory.data() + 299, 2));
  EXPECT_FALSE(ledger.contains(memory.data() + 299, static_cast<size_t>(-1)));
  ledger.remove(memory.data());
  EXPECT_FALSE(ledger.contains(memory.data(), 1));
  EXPECT_EQ(ledger.total_bytes(), 200u);
  EXPECT_DEATH(ledger.remove(memory.data()), "ledger does not know");
}

TEST(MemoryLedger, AddsUpByClassAndPrintsLargeOwners) {
  std::array<std::byte, 3> place{};
  MemoryLedger ledger;
  ledger.add(MemoryClass::kWeights, "model.safetensors", &place[0], size_t{3} << 20);
  ledger.add(MemoryClass::kWeights, "small", &place[1], 1000);
  ledger.add(MemoryClass::kPool, "latent cache", &place[2], size_t{5} << 19);
  EXPECT_EQ(ledger.total_bytes(MemoryClass::kWeights), (size_t{3} << 20) + 1000);
  EXPECT_EQ(ledger.total_bytes(MemoryClass::kPersistent), 0u);
  EXPECT_EQ(ledger.total_bytes(), (size_t{3} << 20) + 1000 + (size_t{5} << 19));
  const std::string table = ledger.table();
  EXPECT_NE(table.find("model.safetensors"), std::string::npos);
  EXPECT_NE(table.find("2.5 MiB"), std::string::npos) << table;
  EXPECT_EQ(table.find("small"), std::string::npos);
  for (const char* name : {"weights", "persistent", "workspace", "pool"}) {
    EXPECT_NE(table.find(name), std::string::npos) << name;
  }
}

TEST(MemoryLedger, EntriesAreNeverTakenForEachOther) {
  MemoryLedger ledger;
  std::vector<std::byte> memory(100);
  ledger.add(MemoryClass::kPersistent, "first", memory.data(), 40);
  ledger.add(MemoryClass::kPool, "second", memory.data() + 40, 60);
  const auto first = ledger.find(memory.data() + 10, 30);
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->owner, "first");
  EXPECT_FALSE(ledger.find(memory.data() + 10, 31).has_value()) << "half of it in the next entry";
  EXPECT_EQ(ledger.find(memory.data() + 99, 1)->owner, "second");
  EXPECT_FALSE(ledger.find(memory.data() + 99, SIZE_MAX).has_value());
  EXPECT_EQ(ledger.entry_at(memory.data() + 40)->owner, "second");
  EXPECT_FALSE(ledger.entry_at(memory.data() + 41).has_value());
  EXPECT_EQ(ledger.removals(), 0u);
  ledger.remove(memory.data());
  EXPECT_EQ(ledger.removals(), 1u);
  EXPECT_FALSE(ledger.has(first->id));
  ledger.add(MemoryClass::kPersistent, "first", memory.data(), 40);
  EXPECT_FALSE(ledger.has(first->id)) << "the same memory, but another entry";
  EXPECT_TRUE(ledger.has(ledger.entry_at(memory.data())->id));
}

}  // namespace
}  // namespace lantern
