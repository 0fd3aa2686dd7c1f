// The plan in two launches. Their grids and blocks follow from the bucket and the configuration; lengths are read on
// the device.
//
//   plan_rows        a block for each request, a block for each 32 tokens: everything that depends on one request
//   plan_schedules   a block for each list that depends on all requests: counts and errors, two paged MQA schedules,
//                    MLA tiles, prefill chunks
//
// The second is launched so that its blocks are there when the last block of the first ends; nothing is read before.
// There is no state between steps and no counter to reset, so that a step that was abandoned cannot harm the next.
#include <atomic>

#include "attention/plan/cuda_block.cuh"
#include "attention/plan/plan_cuda.h"
#include "attention/plan/plan_rows_kernel.h"
#include "attention/plan/plan_schedules_kernel.h"
#include "device/cuda/ptx.cuh"

namespace lantern::plan {
namespace {

__global__ void __launch_bounds__(kBlockThreads) plan_rows(const __grid_constant__ StepPlanParams p) {
  ptx::let_later_kernels_start();
  __shared__ CudaBlock::Shared block_shared;
  CudaBlock block(block_shared);
  RowsKernel<CudaBlock>(block, p).run();
}

__global__ void __launch_bounds__(kBlockThreads) plan_schedules(const __grid_constant__ StepPlanParams p) {
  ptx::wait_for_earlier_kernels();
  __shared__ CudaBlock::Shared block_shared;
  __shared__ SchedulesShared shared;
  CudaBlock block(block_shared);
  SchedulesKernel<CudaBlock>(block, shared, p).run();
}

// Whether the current device's code of plan_schedules waits by itself for plan_rows. Asked once for each device.
bool schedules_may_start_early() {
  enum State : int8_t { kUnknown, kNo, kYes };
  constexpr int kMostDevices = 64;
  static std::atomic<State> known[kMostDevices];
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess || device >= kMostDevices) return false;
  State state = known[device].load(std::memory_order_relaxed);
  if (state == kUnknown) {
    cudaFuncAttributes attributes{};
    if (cudaFuncGetAttributes(&attributes, plan_schedules) != cudaSuccess) return false;
    state = attributes.ptxVersion >= ptx::kOverlapPtxVersion ? kYes : kNo;
    known[device].store(state, std::memory_order_relaxed);
  }
  return state == kYes;
}

cudaError_t launch(cudaStream_t stream, const StepPlanParams& params) {
  const RowsGrid grid = rows_grid(params.bucket);
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(grid.row_blocks + grid.tile_blocks));
  config.blockDim = dim3(kBlockThreads);
  config.stream = stream;
  if (const cudaError_t error = cudaLaunchKernelEx(&config, plan_rows, params); error != cudaSuccess) return error;
  cudaLaunchAttribute overlap{};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  config.gridDim = dim3(static_cast<unsigned>(schedule_blocks(params)));
  config.attrs = &overlap;
  config.numAttrs = schedules_may_start_early() ? 1 : 0;
  return cudaLaunchKernelEx(&config, plan_schedules, params);
}

}  // namespace

namespace {

// Without fmt, so that liblantern_attention.so needs nothing but the CUDA runtime.
Status status_of(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return {};
  return Error(ErrorCode::kUnsupported, std::string("CUDA could not ") + what + ": " + cudaGetErrorString(error) +
                                            " (" + cudaGetErrorName(error) + ")");
}

}  // namespace

Status load_plan_kernels() {
  cudaFuncAttributes attributes{};
  RETURN_IF_ERROR(status_of(cudaFuncGetAttributes(&attributes, plan_rows), "load the step plan's code"));
  return status_of(cudaFuncGetAttributes(&attributes, plan_schedules), "load the step plan's code");
}

Status launch_plan_kernels(void* cuda_stream, const StepPlanParams& params) {
  return status_of(launch(static_cast<cudaStream_t>(cuda_stream), params), "launch the step plan");
}

}  // namespace lantern::plan
