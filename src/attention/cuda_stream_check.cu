#include "attention/cuda_stream_check.h"

#include <string>

namespace lantern {
namespace {

// Without fmt, as the step plan's.
Error refused(const char* where, cudaError_t error) {
  return Error(ErrorCode::kUnsupported,
               std::string(where) + ": " + cudaGetErrorString(error) + " (" + cudaGetErrorName(error) + ")");
}

}  // namespace

Status check_cuda_stream(void* cuda_stream) {
  // A launch would find it and take it for its own.
  if (const cudaError_t error = cudaPeekAtLastError(); error != cudaSuccess) {
    return refused("an earlier call into CUDA left an error in this thread, and nothing was launched", error);
  }
  cudaStreamCaptureStatus capture{};
  if (const cudaError_t error = cudaStreamIsCapturing(static_cast<cudaStream_t>(cuda_stream), &capture);
      error != cudaSuccess) {
    cudaGetLastError();
    return refused("CUDA does not take launches on this stream", error);
  }
  if (capture == cudaStreamCaptureStatusInvalidated) {
    return Error(ErrorCode::kUnsupported,
                 "the capture on this stream has failed before, and nothing was launched; end it and begin anew");
  }
  return {};
}

}  // namespace lantern
