#include "base/check.h"
#include "device/device_traits.h"

namespace lantern {

DeviceTraits cuda_traits_of(const Device& device) {
  CHECK(false, "{} is no CUDA device, which this build has none of", device.description());
}

}  // namespace lantern
