// LANTERN_HOST_DEVICE marks small functions that host kernels and CUDA kernels share.
#pragma once

#ifdef __CUDACC__
#define LANTERN_HOST_DEVICE __host__ __device__
#else
#define LANTERN_HOST_DEVICE
#endif
