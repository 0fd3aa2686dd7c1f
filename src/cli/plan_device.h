// Where step plans run. A plan needs no more of a device than its own kernels, so that cuda is there before models run
// on it.
#pragma once

#include <memory>
#include <string>

#include "device/device.h"

namespace lantern::cli {

// auto takes a GPU where there is one. Errors name the flag.
Result<std::unique_ptr<Device>> plan_device(const std::string& name);

}  // namespace lantern::cli
