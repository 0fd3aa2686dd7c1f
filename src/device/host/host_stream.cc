#include "device/host/host_device.h"
#include "device/stream.h"

namespace lantern {

Stream::Stream(Device& device) : device_(device), context_{static_cast<HostDevice&>(device).threads()} {}

}  // namespace lantern
