#include "attention/cuda_stream_check.h"

namespace lantern {

Status check_cuda_stream(void* /*cuda_stream*/) {
  return Error(ErrorCode::kUnsupported, "this build has no CUDA: nvcc was not found when it was configured");
}

}  // namespace lantern
