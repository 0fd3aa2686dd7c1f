// How kernels are launched. Compiled by nvcc only.
#pragma once

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "device/cuda/cuda_device.h"

namespace lantern {

// Blocks that cover `count` items, `per_block` each.
inline unsigned blocks_for(int64_t count, int64_t per_block) {
  return static_cast<unsigned>(std::max<int64_t>(0, (count + per_block - 1) / per_block));
}

// Of the current device: 90 is 9.0.
inline int compute_capability() {
  static const int capability = [] {
    int device = 0, major = 0, minor = 0;
    LANTERN_CUDA_CHECK(cudaGetDevice(&device), "ask for the current device");
    LANTERN_CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device),
                       "ask for its compute capability");
    LANTERN_CUDA_CHECK(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device),
                       "ask for its compute capability");
    return 10 * major + minor;
  }();
  return capability;
}

// The most shared memory that a block may ask for on the current device.
inline int most_shared_bytes() {
  static const int bytes = [] {
    int device = 0, most = 0;
    LANTERN_CUDA_CHECK(cudaGetDevice(&device), "ask for the current device");
    LANTERN_CUDA_CHECK(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
                       "ask for a block's shared memory");
    return most;
  }();
  return bytes;
}

// Launches `kernel(args...)`; an empty grid is nothing to do.
template <class... Params, class... Args>
void launch_kernel(void* cuda_stream, const char* name, void (*kernel)(Params...), dim3 grid, unsigned threads,
                   size_t shared_bytes, const Args&... args) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  if (shared_bytes > size_t{48} << 10) {  // more must be asked for
    LANTERN_CUDA_CHECK(
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes)),
        "ask for {} bytes of shared memory for '{}'", shared_bytes, name);
  }
  kernel<<<grid, threads, shared_bytes, static_cast<cudaStream_t>(cuda_stream)>>>(args...);
  LANTERN_CUDA_CHECK(cudaGetLastError(), "launch '{}' ({} x {} x {} blocks of {} threads)", name, grid.x, grid.y,
                     grid.z, threads);
}

}  // namespace lantern
