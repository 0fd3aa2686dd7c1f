// LANTERN_HOST_DEVICE marks small functions that host kernels and CUDA kernels share. LANTERN_NO_UNROLL stands before a
// loop in them that runs once or twice: a GPU pays for every instruction that it has to fetch.
#pragma once

#ifdef __CUDACC__
#define LANTERN_HOST_DEVICE __host__ __device__
#else
#define LANTERN_HOST_DEVICE
#endif

#ifdef __CUDA_ARCH__
#define LANTERN_NO_UNROLL _Pragma("unroll 1")
#else
#define LANTERN_NO_UNROLL
#endif
