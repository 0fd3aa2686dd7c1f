// What choices among kernels (dispatch.h) know of a device.
#pragma once

#include "device/device.h"
#include "device/dispatch.h"

namespace lantern {

DeviceTraits traits_of(const Device& device);

// For kernels of sm_90a.
inline Refusal refuse_all_but_hopper(const DeviceTraits& device) {
  return device.compute_capability == 90 ? Refusal{} : cannot("it needs a GPU of compute capability 9.0");
}

// Of a CUDA device: for traits_of().
DeviceTraits cuda_traits_of(const Device& device);

}  // namespace lantern
