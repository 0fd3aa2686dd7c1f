// LANTERN_HOST_DEVICE marks small functions that host kernels and CUDA kernels share. Before a loop in them stands
// LANTERN_UNROLL where all its loads are to be under way at once, LANTERN_NO_UNROLL where it runs once or twice: a GPU
// pays for every instruction that it has to fetch.
#pragma once

#ifdef __CUDACC__
#define LANTERN_HOST_DEVICE __host__ __device__
#else
#define LANTERN_HOST_DEVICE
#endif

#ifdef __CUDA_ARCH__
#define LANTERN_UNROLL _Pragma("unroll")
#define LANTERN_NO_UNROLL _Pragma("unroll 1")
#else
#define LANTERN_UNROLL
#define LANTERN_NO_UNROLL
#endif
