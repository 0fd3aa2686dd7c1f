#include "engine/cuda_step_kernels.h"

namespace lantern {

const CudaStepKernels* cuda_step_kernels() { return nullptr; }

}  // namespace lantern
