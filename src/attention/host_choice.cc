#include "attention/host_choice.h"

#include "attention/host_amx.h"
#include "attention/host_math.h"

namespace lantern {
namespace {

Refusal prefill_amx(const HostPrefillDesc& d, const DeviceTraits&) {
  if (d.layout == LatentLayout::kF32) return not_meant("an f32 cache asks for products in float");
  return {.reason = missing_host_amx()};
}

}  // namespace

const Implementations<HostPrefillKernel, HostPrefillDesc> kHostPrefillKernels{
    {{"mla_prefill.cpu.amx_bf16x3", &prefill_amx}, {"mla_prefill.cpu.highway", nullptr}}};

const char* highway_target() { return host_math::target_name(); }

}  // namespace lantern
