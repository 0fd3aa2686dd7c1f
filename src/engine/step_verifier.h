// Holds what a step may change against what the same step changes when it runs in another way: --graphs=verify. A tool
// for tests and for hunting faults: it waits, copies and allocates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "device/bucket_key.h"
#include "device/device.h"
#include "engine/sampler.h"
#include "engine/slot_state.h"
#include "engine/step_batch.h"
#include "model/kv_cache.h"

namespace lantern {

// Device memory with a name for reports.
struct NamedMemory {
  std::string name;
  void* begin = nullptr;
  size_t bytes = 0;
};

// Bytes of device memory at one time. Nothing may be in flight while one is taken or put back.
class MemorySnapshot {
 public:
  MemorySnapshot(Device& device, const std::vector<NamedMemory>& memory);
  void restore(Device& device) const;
  // The first difference, as "name differs from byte 12 of 64 on"; empty where there is none. Precondition: both are of
  // the same memory.
  std::string difference(const MemorySnapshot& other) const;

 private:
  const std::vector<NamedMemory>& memory_;  // the caller's
  std::vector<std::byte> bytes_;
};

// All that a step which was not launched yet may change for good: slots, texts, the caches at every position that its
// rows may write, and the null block, which it must not.
std::vector<NamedMemory> memory_of_step(Device& device, const StepBatch& batch, const StepLimits& limits,
                                        const SlotState& slots, const Sampler& sampler, const KvCache& cache);

}  // namespace lantern
