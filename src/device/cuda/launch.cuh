// How kernels are launched. Compiled by nvcc only.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "base/check.h"
#include "device/cuda/cuda_device.h"
#include "device/cuda/ptx.cuh"
#include "device/dispatch.h"
#include "device/kernel_table.h"
#include "device/launch_failures.h"

namespace lantern {

// Blocks that cover `count` items, `per_block` each.
inline unsigned blocks_for(int64_t count, int64_t per_block) {
  return static_cast<unsigned>(std::max<int64_t>(0, (count + per_block - 1) / per_block));
}

// Of the current device; `what` is asked for.
inline int device_attribute(cudaDeviceAttr attribute, const char* what) {
  int device = 0, value = 0;
  LANTERN_CUDA_CHECK(cudaGetDevice(&device), "ask for the current device");
  LANTERN_CUDA_CHECK(cudaDeviceGetAttribute(&value, attribute, device), "ask for {}", what);
  return value;
}

// Of the current device.
inline const DeviceTraits& device_traits() {
  static const DeviceTraits traits{
      .compute_capability = 10 * device_attribute(cudaDevAttrComputeCapabilityMajor, "its compute capability") +
                            device_attribute(cudaDevAttrComputeCapabilityMinor, "its compute capability"),
      .most_shared_bytes = device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, "a block's shared memory")};
  return traits;
}

// Of the current device.
inline int multiprocessors() {
  static const int count = device_attribute(cudaDevAttrMultiProcessorCount, "its multiprocessors");
  return count;
}

// Whether a call that belongs to a launch worked. Where it did not, this thread's LaunchFailures hear of it, or the
// process ends. `what` is a verb, as for LANTERN_CUDA_CHECK.
template <class... Args>
bool launch_call(cudaError_t error, fmt::format_string<Args...> what, Args&&... args) {
  if (error == cudaSuccess) [[likely]]
    return true;
  const std::string failure =
      fmt::format("CUDA could not {}: {} ({}); an error of an earlier launch may only show up here",
                  fmt::format(what, std::forward<Args>(args)...), cudaGetErrorString(error), cudaGetErrorName(error));
  LaunchFailures* const failures = LaunchFailures::heard_by();
  CHECK(failures != nullptr, "{}", failure);
  cudaGetLastError();  // it has been heard
  failures->note(failure);
  return false;
}

// Whether something is to be launched: not an empty grid, nor what comes after a refusal.
inline bool is_launch(dim3 grid) {
  const LaunchFailures* const failures = LaunchFailures::heard_by();
  return grid.x != 0 && grid.y != 0 && grid.z != 0 && (failures == nullptr || failures->status().ok());
}

// What CUDA says of a kernel; it is asked once.
struct KernelFacts {
  int ptx_version = 0;
  size_t shared_bytes = 0;  // that the kernel declares itself
};
inline const KernelFacts* kernel_facts(const char* name, const void* kernel) {
  static KernelTable<KernelFacts> table;
  int device = 0;
  if (!launch_call(cudaGetDevice(&device), "ask for the current device")) return nullptr;
  return table.find(kernel, device, [&]() -> std::optional<KernelFacts> {
    cudaFuncAttributes attributes{};
    const cudaError_t error = cudaFuncGetAttributes(&attributes, kernel);
    if (!launch_call(error, "ask for the attributes of '{}'", name)) return std::nullopt;
    return KernelFacts{attributes.ptxVersion, attributes.sharedSizeBytes};
  });
}

// False: CUDA refuses. All that can be had is asked for, once, so that no smaller launch takes it away from one on
// another thread.
inline bool ask_for_shared_memory(const char* name, const void* kernel, size_t bytes) {
  if (bytes == 0) return true;
  const KernelFacts* const facts = kernel_facts(name, kernel);
  if (facts == nullptr) return false;
  // What every kernel may have includes what it declares itself.
  if (facts->shared_bytes + bytes <= size_t{48} << 10) return true;
  static KernelTable<bool> table;
  int device = 0;
  if (!launch_call(cudaGetDevice(&device), "ask for the current device")) return false;
  return table.find(kernel, device, [&]() -> std::optional<bool> {
    const int most = device_traits().most_shared_bytes - static_cast<int>(facts->shared_bytes);
    const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most);
    if (!launch_call(error, "ask for {} bytes of shared memory for '{}'", bytes, name)) return std::nullopt;
    return true;
  }) != nullptr;
}

template <class... Params>
const void* address_of(void (*kernel)(Params...)) {
  return reinterpret_cast<const void*>(kernel);
}

inline void check_launch(cudaError_t error, const char* name, dim3 grid, unsigned threads) {
  launch_call(error, "launch '{}' ({} x {} x {} blocks of {} threads)", name, grid.x, grid.y, grid.z, threads);
}

// Launches `kernel(args...)`; an empty grid is nothing to do.
template <class... Params, class... Args>
void launch_kernel(void* cuda_stream, const char* name, void (*kernel)(Params...), dim3 grid, unsigned threads,
                   size_t shared_bytes, const Args&... args) {
  if (!is_launch(grid) || !ask_for_shared_memory(name, address_of(kernel), shared_bytes)) return;
  kernel<<<grid, threads, shared_bytes, static_cast<cudaStream_t>(cuda_stream)>>>(args...);
  check_launch(cudaGetLastError(), name, grid, threads);
}

// The same for a kernel that calls ptx::begin_overlapped() before it reads or writes what other kernels may touch, and
// before any thread leaves: it may start while the kernel in front of it ends, which hides what a start costs. Where
// the code that runs was compiled without the instructions, it is launched like any other. `cluster` neighbouring
// blocks in x, of which the grid has a multiple, form a cluster: of capability 9.0 and more.
template <class... Params, class... Args>
void launch_overlapped_clusters(void* cuda_stream, const char* name, void (*kernel)(Params...), dim3 grid,
                                unsigned threads, size_t shared_bytes, unsigned cluster, const Args&... args) {
  if (!is_launch(grid) || !ask_for_shared_memory(name, address_of(kernel), shared_bytes)) return;
  cudaLaunchAttribute attributes[2]{};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim = {cluster, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared_bytes;
  config.stream = static_cast<cudaStream_t>(cuda_stream);
  config.attrs = attributes;
  config.numAttrs = cluster > 1 ? 2 : 1;
  check_launch(cudaLaunchKernelEx(&config, kernel, static_cast<Params>(args)...), name, grid, threads);
}
template <class... Params, class... Args>
void launch_overlapped(void* cuda_stream, const char* name, void (*kernel)(Params...), dim3 grid, unsigned threads,
                       size_t shared_bytes, const Args&... args) {
  if (!is_launch(grid)) return;
  const KernelFacts* const facts = kernel_facts(name, address_of(kernel));
  if (facts == nullptr) return;
  facts->ptx_version < ptx::kOverlapPtxVersion
      ? launch_kernel(cuda_stream, name, kernel, grid, threads, shared_bytes, args...)
      : launch_overlapped_clusters(cuda_stream, name, kernel, grid, threads, shared_bytes, 1, args...);
}

}  // namespace lantern
