#include "device/device_traits.h"

namespace lantern {

DeviceTraits traits_of(const Device& device) {
  return device.kind() == DeviceKind::kCuda ? cuda_traits_of(device) : DeviceTraits{};
}

}  // namespace lantern
