#include "cli/plan_device.h"

#include <utility>

#include "engine/session.h"

namespace lantern::cli {

Result<std::unique_ptr<Device>> plan_device(const std::string& name) {
  if (name != "cuda" && name != "auto") return make_device(name, 1);
  Result<std::unique_ptr<Device>> device = make_cuda_device();
  if (device.ok()) return device;
  if (name == "auto") return make_host_device(1);
  return std::move(device).error().within("--device cuda");
}

}  // namespace lantern::cli
