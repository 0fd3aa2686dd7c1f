#include "device/device.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <limits>
#include <map>
#include <sstream>
#include <string>
#include <type_traits>

#include "device/fixed.h"
#include "device/persistent_buffer.h"
#include "device/stream.h"

namespace lantern {
namespace {

// Memory that caches files counts as available: on a machine that has read much, little else is free.
TEST(HostMemory, CountsWhatTheSystemCanDrop) {
  std::ifstream meminfo("/proc/meminfo");
  std::map<std::string, size_t> kib;
  std::string line, key;
  for (size_t value = 0; std::getline(meminfo, line);) {
    if (std::istringstream(line) >> key >> value) kib[key] = value;
  }
  // Between the two readings other programs may take or give some.
  constexpr double kSlack = 512.0 * 1024 * 1024;
  EXPECT_NEAR(static_cast<double>(available_host_memory()), 1024.0 * static_cast<double>(kib.at("MemAvailable:")),
              kSlack);
}

// What a recorded launch reads cannot be made from memory that may move.
static_assert(!std::is_constructible_v<Fixed<float>, float*, int64_t>);
static_assert(!std::is_constructible_v<DevPtr<float>, float*>);
static_assert(!std::is_convertible_v<float*, DevPtr<float>>);
static_assert(std::is_convertible_v<Fixed<float>, DevPtr<float>>);
static_assert(std::is_convertible_v<Fixed<float>, DevPtr<const float>>);
static_assert(std::is_convertible_v<Fixed<float>, Fixed<const float>>);
static_assert(!std::is_convertible_v<Fixed<const float>, Fixed<float>>);
static_assert(!std::is_convertible_v<Fixed<const float>, DevPtr<float>>);
static_assert(!std::is_convertible_v<Fixed<int32_t>, DevPtr<float>>);
static_assert(std::is_trivially_copyable_v<DevPtr<float>>);
// One allocation for life.
static_assert(!std::is_copy_constructible_v<PersistentBuffer<float>>);
static_assert(!std::is_move_constructible_v<PersistentBuffer<float>>);
static_assert(!std::is_move_assignable_v<PersistentBuffer<float>>);
static_assert(!std::is_copy_constructible_v<Device>);
// Launch parameters are bytes.
template <class Params>
concept Launchable = requires(Stream& stream, HostKernel<Params> kernel, const Params& params) {
  stream.launch("name", kernel, params);
};
struct Plain {
  DevPtr<float> x;
  int64_t count = 0;
};
struct Owning {
  std::string text;
};
static_assert(Launchable<Plain>);
static_assert(!Launchable<Owning>);

// Empty vectors have no address; a copy of nothing must not reach memcpy with one (the undefined-behaviour sanitizer
// sees).
TEST(Device, CopiesNothingFromAndToNowhere) {
  const auto device = make_host_device(1);
  int value = 7;
  device->copy_to_host(nullptr, &value, 0);
  device->copy_to_device(nullptr, nullptr, 0);
  device->copy_to_device(&value, nullptr, 0);
  EXPECT_EQ(value, 7);
}

TEST(Device, AllocatesZeroedAlignedMemoryAndBooksIt) {
  const auto device = make_host_device(1);
  for (size_t bytes : {size_t{0}, size_t{1}, size_t{4096}, size_t{100001}}) {
    const auto memory = device->allocate(MemoryClass::kPool, "kv", bytes);
    ASSERT_TRUE(memory.ok());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(*memory) % 4096, 0u);
    for (size_t i = 0; i < bytes; ++i) ASSERT_EQ(static_cast<const char*>(*memory)[i], 0);
    std::memset(*memory, 0xff, bytes);  // so that the next one is not zero by luck
    EXPECT_EQ(device->ledger().total_bytes(MemoryClass::kPool), bytes);
    device->release(*memory);
    EXPECT_EQ(device->ledger().total_bytes(), 0u);
  }
}

TEST(Device, RefusesMoreThanThereIsWithNumbers) {
  const auto device = make_host_device(1);
  for (size_t bytes : {size_t{1} << 60, std::numeric_limits<size_t>::max()}) {
    const auto memory = device->allocate(MemoryClass::kPool, "latent cache", bytes);
    ASSERT_FALSE(memory.ok());
    EXPECT_EQ(memory.error().code(), ErrorCode::kOutOfMemory);
    const std::string& message = memory.error().message();
    EXPECT_NE(message.find("latent cache"), std::string::npos) << message;
    EXPECT_NE(message.find("GiB are free"), std::string::npos) << message;
    EXPECT_NE(message.find("a shorter context"), std::string::npos) << message;
  }
  EXPECT_EQ(device->ledger().total_bytes(), 0u);
}

TEST(Device, DescribesItself) {
  const auto device = make_host_device(3);
  EXPECT_EQ(device->kind(), DeviceKind::kCpu);
  EXPECT_EQ(device->description(), "cpu (3 threads)");
  EXPECT_EQ(device->worker_count(), 3);
  EXPECT_GT(device->available_bytes(), size_t{1} << 20);
  const int source[2] = {1, 2};
  int on_device[2] = {};
  int back[2] = {};
  device->copy_to_device(on_device, source, sizeof(source));
  device->copy_to_host(back, on_device, sizeof(source));
  EXPECT_EQ(std::memcmp(source, back, sizeof(source)), 0);
}

TEST(DeviceDeathTest, NothingIsAllocatedAfterStartUp) {
  const auto device = make_host_device(1);
  const auto buffer = PersistentBuffer<float>::create(*device, "logits", 4);
  ASSERT_TRUE(buffer.ok());
  device->seal();
  EXPECT_DEATH((void)device->allocate(MemoryClass::kPersistent, "late buffer", 64), "'late buffer' asked for 64 bytes");
  // Releasing stays possible: the buffer goes here.
}

TEST(DeviceDeathTest, ReleasingTwiceIsABrokenInvariant) {
  const auto device = make_host_device(1);
  const auto memory = device->allocate(MemoryClass::kPool, "x", 64);
  ASSERT_TRUE(memory.ok());
  device->release(*memory);
  EXPECT_DEATH(device->release(*memory), "ledger does not know");
}

TEST(PersistentBuffer, KeepsItsAddressAndReturnsItsMemory) {
  const auto device = make_host_device(1);
  {
    const auto buffer = PersistentBuffer<int32_t>::create(*device, "block_table", 100);
    ASSERT_TRUE(buffer.ok());
    EXPECT_EQ((*buffer)->capacity(), 100);
    const Fixed<int32_t> all = (*buffer)->fixed();
    EXPECT_EQ(all.size(), 100);
    EXPECT_EQ((*buffer)->fixed(7).data(), all.data());
    EXPECT_EQ((*buffer)->fixed(7).size(), 7);
    EXPECT_TRUE(device->ledger().contains(all.data(), 400));
    EXPECT_EQ(device->ledger().total_bytes(MemoryClass::kPersistent), 400u);
    EXPECT_EQ(device->ledger().entries()[0].owner, "block_table");
  }
  EXPECT_TRUE(device->ledger().entries().empty());
}

TEST(PersistentBuffer, RefusesSizesThatOverflow) {
  const auto device = make_host_device(1);
  // 2^62 elements of 8 bytes are 0 bytes modulo 2^64.
  const auto buffer = PersistentBuffer<int64_t>::create(*device, "huge", int64_t{1} << 62);
  ASSERT_FALSE(buffer.ok());
  EXPECT_EQ(buffer.error().code(), ErrorCode::kOutOfMemory);
  EXPECT_DEATH((void)PersistentBuffer<int64_t>::create(*device, "negative", -1), "'negative' asked for -1");
}

TEST(Fixed, SubViewsAreCheckedAtBothEnds) {
  float memory[10] = {};
  const Fixed<float> all = borrow_fixed(memory, 10);
  EXPECT_EQ(all.sub(3, 4).data(), memory + 3);
  EXPECT_EQ(all.sub(3, 4).size(), 4);
  EXPECT_TRUE(all.sub(10, 0).empty());
  EXPECT_DEATH((void)all.sub(3, 8), "view of 8 elements from 3 of a buffer of 10");
  EXPECT_DEATH((void)all.sub(-1, 2), "view");
  EXPECT_DEATH((void)all.sub(0, -1), "view");
  EXPECT_DEATH((void)all.sub(11, 0), "view");
  EXPECT_DEATH((void)all.sub(2, std::numeric_limits<int64_t>::max()), "view");
}

TEST(DevPtr, IsNullUntilGiven) {
  const DevPtr<const float> none;
  EXPECT_FALSE(static_cast<bool>(none));
  float memory[3] = {1, 2, 3};
  const DevPtr<const float> some = borrow_fixed(memory, 3);
  EXPECT_TRUE(static_cast<bool>(some));
  EXPECT_EQ(some[2], 3.0f);
  EXPECT_EQ(some.get(), memory);
}

TEST(Stream, LaunchesRunInOrderOnACopyOfTheirParameters) {
  const auto device = make_host_device(2);
  Stream stream(*device);
  EXPECT_EQ(&stream.device(), device.get());
  const auto buffer = PersistentBuffer<float>::create(*device, "x", 1000);
  ASSERT_TRUE(buffer.ok());
  struct AddParams {
    DevPtr<float> x;
    int64_t count;
    float value;
  };
  const HostKernel<AddParams> add = [](const AddParams& p, HostContext& context) {
    context.threads.parallel_for(p.count, 100, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) p.x[i] = p.x[i] * 2 + p.value;
    });
  };
  AddParams params{(*buffer)->fixed(), 1000, 3};
  stream.launch("first", add, params);
  params.value = 5;
  stream.launch("second", add, params);
  params.value = 1000;  // after the launch: without effect
  stream.synchronize();
  EXPECT_STREQ(stream.last_launch(), "second");
  for (int64_t i = 0; i < 1000; ++i) ASSERT_EQ((*buffer)->fixed().data()[i], 11.0f);
}

}  // namespace
}  // namespace lantern
