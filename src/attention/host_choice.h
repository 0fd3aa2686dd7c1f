// Which host kernel computes the expanded attention: the ordered list of mla_prefill on the CPU.
#pragma once

#include "attention/cache_layout.h"
#include "device/dispatch.h"

namespace lantern {

// kAmx: products of floats as sums of products of bf16 pieces (split_product_amx.h); kHighway: in float.
enum class HostPrefillKernel : uint8_t { kAmx, kHighway, kCount };
struct HostPrefillDesc {
  LatentLayout layout = LatentLayout::kBf16;
};
extern const Implementations<HostPrefillKernel, HostPrefillDesc> kHostPrefillKernels;

// The instruction set that Highway chose for this machine: "AVX2".
const char* highway_target();

}  // namespace lantern
