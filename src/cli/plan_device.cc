#include "cli/plan_device.h"

#include <utility>

#include "engine/session.h"

namespace lantern::cli {

Result<std::unique_ptr<Device>> plan_device(const std::string& name) {
  if (name != "auto") return make_device(name, 1);
  Result<std::unique_ptr<Device>> device = make_cuda_device();
  return device.ok() ? std::move(device) : make_host_device(1);
}

}  // namespace lantern::cli
