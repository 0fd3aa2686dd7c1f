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

// Launches `kernel(args...)`; an empty grid is nothing to do. Up to 48 KiB of dynamic shared memory.
template <class... Params, class... Args>
void launch_kernel(void* cuda_stream, const char* name, void (*kernel)(Params...), dim3 grid, unsigned threads,
                   size_t shared_bytes, const Args&... args) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  kernel<<<grid, threads, shared_bytes, static_cast<cudaStream_t>(cuda_stream)>>>(args...);
  LANTERN_CUDA_CHECK(cudaGetLastError(), "launch '{}' ({} x {} x {} blocks of {} threads)", name, grid.x, grid.y,
                     grid.z, threads);
}

}  // namespace lantern
