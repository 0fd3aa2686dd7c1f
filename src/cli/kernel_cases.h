// What `bench kernels` measures, as data: ops as the engine calls them, at the sizes of public models.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cli/kernel_memory.h"
#include "device/stream.h"

namespace lantern::cli {

// One launch of a case.
struct KernelWork {
  std::function<void(Stream&)> launch;
  int64_t bytes = 0;  // read and written, each byte once
  double flops = 0;   // multiplications and additions of its products; 0 where there are none
};

// At most share^-1 byte floors and `us` microseconds on an H200; both 0: none is set.
struct KernelGoal {
  double share = 0;
  double us = 0;

  bool is_set() const { return share > 0 || us > 0; }
  double most_us(double floor_us) const { return (share > 0 ? floor_us / share : 0) + us; }
};

struct KernelCase {
  std::string name;  // "moe fp8 256x7168x2048 tokens 8"; begins with the op
  KernelGoal goal = {};
  // Lays the case out in `memory`; launched only where that was not counting. `workers` is the device's.
  std::function<KernelWork(KernelMemory& memory, int workers)> make;
};

// kSmall: a sixteenth of what makes a case large, for a CPU; without goals.
enum class CaseSize : uint8_t { kFull, kSmall };
std::vector<KernelCase> kernel_cases(CaseSize size);

// The parts of the list.
std::vector<KernelCase> product_kernel_cases(CaseSize size);    // linear, moe, router, norms
std::vector<KernelCase> attention_kernel_cases(CaseSize size);  // projections, mla_decode, index_select
std::vector<KernelCase> sampler_kernel_cases(CaseSize size);    // sample, process_logits

inline int32_t sized(CaseSize size, int32_t full) { return size == CaseSize::kFull ? full : std::max(1, full / 16); }
inline KernelGoal goal_of(CaseSize size, const KernelGoal& goal) {
  return size == CaseSize::kFull ? goal : KernelGoal{};
}

}  // namespace lantern::cli
