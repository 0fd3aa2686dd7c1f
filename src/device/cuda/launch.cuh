// How kernels are launched. Compiled by nvcc only.
#pragma once

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "device/cuda/cuda_device.h"
#include "device/cuda/ptx.cuh"

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

// Of the current device: 90 is 9.0.
inline int compute_capability() {
  static const int capability = 10 * device_attribute(cudaDevAttrComputeCapabilityMajor, "its compute capability") +
                                device_attribute(cudaDevAttrComputeCapabilityMinor, "its compute capability");
  return capability;
}

// The most shared memory that a block may ask for on the current device.
inline int most_shared_bytes() {
  static const int bytes = device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, "a block's shared memory");
  return bytes;
}

// Of the current device.
inline int multiprocessors() {
  static const int count = device_attribute(cudaDevAttrMultiProcessorCount, "its multiprocessors");
  return count;
}

template <class... Params>
void ask_for_shared_memory(const char* name, void (*kernel)(Params...), size_t bytes) {
  if (bytes == 0) return;
  cudaFuncAttributes attributes{};
  LANTERN_CUDA_CHECK(cudaFuncGetAttributes(&attributes, kernel), "ask for the attributes of '{}'", name);
  // What every kernel may have includes what it declares itself. All that can be had is asked for, so that no smaller
  // launch takes it away from one on another thread.
  if (attributes.sharedSizeBytes + bytes <= size_t{48} << 10) return;
  LANTERN_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                          most_shared_bytes() - static_cast<int>(attributes.sharedSizeBytes)),
                     "ask for {} bytes of shared memory for '{}'", bytes, name);
}

// Launches `kernel(args...)`; an empty grid is nothing to do.
template <class... Params, class... Args>
void launch_kernel(void* cuda_stream, const char* name, void (*kernel)(Params...), dim3 grid, unsigned threads,
                   size_t shared_bytes, const Args&... args) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  ask_for_shared_memory(name, kernel, shared_bytes);
  kernel<<<grid, threads, shared_bytes, static_cast<cudaStream_t>(cuda_stream)>>>(args...);
  LANTERN_CUDA_CHECK(cudaGetLastError(), "launch '{}' ({} x {} x {} blocks of {} threads)", name, grid.x, grid.y,
                     grid.z, threads);
}

// The same for a kernel that calls ptx::begin_overlapped() before it reads or writes what other kernels may touch, and
// before any thread leaves: it may start while the kernel in front of it ends, which hides what a start costs. Where
// the code that runs was compiled without the instructions, it is launched like any other. `cluster` neighbouring
// blocks in x, of which the grid has a multiple, form a cluster: of capability 9.0 and more.
template <class... Params, class... Args>
void launch_overlapped_clusters(void* cuda_stream, const char* name, void (*kernel)(Params...), dim3 grid,
                                unsigned threads, size_t shared_bytes, unsigned cluster, const Args&... args) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  ask_for_shared_memory(name, kernel, shared_bytes);
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
  LANTERN_CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, static_cast<Params>(args)...),
                     "launch '{}' ({} x {} x {} blocks of {} threads)", name, grid.x, grid.y, grid.z, threads);
}
template <class... Params, class... Args>
void launch_overlapped(void* cuda_stream, const char* name, void (*kernel)(Params...), dim3 grid, unsigned threads,
                       size_t shared_bytes, const Args&... args) {
  cudaFuncAttributes attributes{};
  LANTERN_CUDA_CHECK(cudaFuncGetAttributes(&attributes, kernel), "ask for the attributes of '{}'", name);
  attributes.ptxVersion < ptx::kOverlapPtxVersion
      ? launch_kernel(cuda_stream, name, kernel, grid, threads, shared_bytes, args...)
      : launch_overlapped_clusters(cuda_stream, name, kernel, grid, threads, shared_bytes, 1, args...);
}

}  // namespace lantern
