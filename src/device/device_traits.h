// What choices among kernels (dispatch.h) know of a device.
#pragma once

#include "device/device.h"
#include "device/dispatch.h"

namespace lantern {

DeviceTraits traits_of(const Device& device);

// Of a CUDA device: for traits_of().
DeviceTraits cuda_traits_of(const Device& device);

}  // namespace lantern
