// Stands in for the CUDA device where it is not built.
#include "device/device.h"

namespace lantern {

Result<std::unique_ptr<Device>> make_cuda_device(int /*ordinal*/) {
  return Error(ErrorCode::kUnsupported,
               "this build has no CUDA device (nvcc was not found when it was configured); use --device cpu");
}

}  // namespace lantern
