// The plan in two launches. Their grids and blocks follow from the bucket and the configuration; lengths are read on
// the device.
//
//   plan_rows        a block for each request, a block for each 32 tokens: everything that depends on one request
//   plan_schedules   a block for each list that depends on all requests: counts and errors, two paged MQA schedules,
//                    MLA tiles, prefill chunks
//
// Each is launched so that its blocks are there when the last block of the kernel before ends, and waits for that
// before it touches anything (plan_schedules: but the inputs, which plan_rows has waited for). There is no state
// between steps and no counter to reset, so that a step that was abandoned cannot harm the next.
#include <atomic>

#include "attention/plan/cuda_block.cuh"
#include "attention/plan/plan_cuda.h"
#include "attention/plan/plan_rows_kernel.h"
#include "attention/plan/plan_schedules_kernel.h"
#include "device/cuda/ptx.cuh"

namespace lantern::plan {
namespace {

__global__ void __launch_bounds__(kBlockThreads, 4)
    plan_rows(const __grid_constant__ StepPlanParams p, const __grid_constant__ PlanLaunch launch) {
  __shared__ CudaBlock::Shared block_shared;
  // The first access to a page costs twice as much as others. Nothing is read yet.
  ptx::prefetch_l2(p.num_requests.get());
  ptx::prefetch_l2(
      block_table_row(p.groups[0], max_of(0, min_of(static_cast<int32_t>(blockIdx.x), p.bucket.requests - 1))));
  ptx::prefetch_l2(p.query_len.get());
  ptx::wait_for_earlier_kernels();
  ptx::let_later_kernels_start();
  CudaBlock block(block_shared);
  RowsKernel<CudaBlock>(block, p, launch).run();
}

template <class Int>
__global__ void __launch_bounds__(kBlockThreads, 1)
    plan_schedules(const __grid_constant__ StepPlanParams p, const __grid_constant__ PlanLaunch launch) {
  __shared__ CudaBlock::Shared block_shared;
  __shared__ SchedulesShared<Int> shared;
  CudaBlock block(block_shared);
  ptx::let_later_kernels_start();
  SchedulesKernel<CudaBlock, Int>(block, shared, p, launch).run();
}

// Loads the code of all kernels on the current device and gives them one division of the L1 cache, so that no
// multiprocessor has to change it between them. *may_start_early: whether that code waits by itself for the kernel
// before it.
cudaError_t prepare_kernels(bool* may_start_early) {
  constexpr int kSharedPercent = 25;
  const void* kernels[] = {reinterpret_cast<const void*>(&plan_rows),
                           reinterpret_cast<const void*>(&plan_schedules<int32_t>),
                           reinterpret_cast<const void*>(&plan_schedules<int64_t>)};
  *may_start_early = true;
  for (const void* kernel : kernels) {
    cudaFuncAttributes attributes{};
    if (const cudaError_t error = cudaFuncGetAttributes(&attributes, kernel); error != cudaSuccess) return error;
    if (attributes.ptxVersion < ptx::kOverlapPtxVersion) *may_start_early = false;
    const cudaError_t error =
        cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, kSharedPercent);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

// Whether the current device's kernels may start early. They are prepared by the first launch on each device.
bool kernels_may_start_early() {
  enum State : int8_t { kUnknown, kNo, kYes };
  constexpr int kMostDevices = 64;
  static std::atomic<State> known[kMostDevices];
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess || device >= kMostDevices) return false;
  State state = known[device].load(std::memory_order_relaxed);
  if (state == kUnknown) {
    bool early = false;
    if (prepare_kernels(&early) != cudaSuccess) return false;
    state = early ? kYes : kNo;
    known[device].store(state, std::memory_order_relaxed);
  }
  return state == kYes;
}

cudaError_t launch(cudaStream_t stream, const StepPlanParams& params) {
  const PlanLaunch plan(params);
  cudaLaunchAttribute overlap{};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(plan.rows.row_blocks + plan.rows.tile_blocks));
  config.blockDim = dim3(kBlockThreads);
  config.stream = stream;
  config.attrs = &overlap;
  config.numAttrs = kernels_may_start_early() ? 1 : 0;
  if (const cudaError_t error = cudaLaunchKernelEx(&config, plan_rows, params, plan); error != cudaSuccess)
    return error;
  config.gridDim = dim3(static_cast<unsigned>(plan.num_lists));
  return plan.int32_schedules ? cudaLaunchKernelEx(&config, plan_schedules<int32_t>, params, plan)
                              : cudaLaunchKernelEx(&config, plan_schedules<int64_t>, params, plan);
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
  bool may_start_early = false;
  return status_of(prepare_kernels(&may_start_early), "load the step plan's code");
}

Status launch_plan_kernels(void* cuda_stream, const StepPlanParams& params) {
  return status_of(launch(static_cast<cudaStream_t>(cuda_stream), params), "launch the step plan");
}

}  // namespace lantern::plan
