#include "device/cuda/cuda_device.h"
#include "device/cuda/launch.cuh"
#include "device/device_traits.h"

namespace lantern {

DeviceTraits cuda_traits_of(const Device& device) {
  static_cast<const CudaDevice&>(device).make_current();
  return device_traits();
}

}  // namespace lantern
