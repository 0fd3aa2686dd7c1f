#include "device/memory_ledger.h"

#include <gtest/gtest.h>

#include <array>

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

}  // namespace
}  // namespace lantern
