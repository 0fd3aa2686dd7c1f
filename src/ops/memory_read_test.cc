#include "ops/memory_read.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "ops/host_op_test.h"

namespace lantern {
namespace {

TEST(MemoryRead, MeasuresABuffer) {
  const std::vector<std::byte> buffer(16 << 20, std::byte{1});
  ThreadPool threads(2);
  const ReadBandwidth read = measure_read_bandwidth(threads, buffer, 3);
  EXPECT_EQ(read.bytes, 16 << 20);
  EXPECT_EQ(read.threads, 2);
  EXPECT_EQ(read.repetitions, 3);
  // Between a floppy disk and anything that was ever built: a rate that means time was not taken lies far outside.
  EXPECT_GT(read.median_bytes_per_second, 1e6);
  EXPECT_LT(read.best_bytes_per_second, 1e13);
  EXPECT_GE(read.best_bytes_per_second, read.median_bytes_per_second);
}

TEST(MemoryRead, MeasuresFreshMemory) {
  ThreadPool threads(1);
  const Result<ReadBandwidth> read = measure_read_bandwidth(threads, int64_t{8} << 20, 1);
  ASSERT_TRUE(read.ok()) << read.error().message();
  EXPECT_EQ(read->bytes, 8 << 20);
}

TEST(MemoryRead, AMeterReadsItsMemoryAgainAndAgain) {
  ThreadPool threads(2);
  const auto meter = ReadBandwidthMeter::create(threads, int64_t{8} << 20);
  ASSERT_TRUE(meter.ok()) << meter.error().message();
  EXPECT_EQ((*meter)->memory().size(), size_t{8} << 20);
  // Written, or every page would be the same page of zeros.
  for (size_t at = 0; at < (*meter)->memory().size(); at += 4096) {
    ASSERT_NE((*meter)->memory()[at], std::byte{0}) << at;
  }
  double best = 0;
  for (int i = 0; i < 2; ++i) {
    const double rate = (*meter)->measure();
    EXPECT_GT(rate, 1e6);
    EXPECT_LT(rate, 1e13);
    best = std::max(best, rate);
  }
  EXPECT_EQ((*meter)->result().repetitions, 2);  // the pass that warms up is none of them
  EXPECT_EQ((*meter)->result().best_bytes_per_second, best);
}

TEST(MemoryRead, TheOpReadsEveryWord) {
  std::vector<uint64_t> words(3 * kReadPieceBytes / 8);
  std::mt19937_64 random(1);
  uint64_t all = 0x1234;
  for (uint64_t& word : words) all ^= word = random();
  std::vector<uint64_t> word{0x1234};
  HostOps ops(2);
  const auto* bytes = reinterpret_cast<const std::byte*>(words.data());
  read_memory(ops.stream,
              {.data = borrow_fixed(bytes, 3 * kReadPieceBytes), .bytes = 3 * kReadPieceBytes, .word = fixed(word)});
  EXPECT_EQ(word[0], all);
}

TEST(MemoryRead, TheOpReadsWholePieces) {
  HostOps ops(1);
  EXPECT_DEATH(read_memory(ops.stream, {.bytes = 4096}), "4096 bytes to read are not whole pieces of 2097152");
}

TEST(MemoryRead, RefusesMoreThanThereIs) {
  ThreadPool threads(1);
  const Result<ReadBandwidth> read = measure_read_bandwidth(threads, int64_t{1} << 46, 1);
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.error().code(), ErrorCode::kOutOfMemory);
}

}  // namespace
}  // namespace lantern
