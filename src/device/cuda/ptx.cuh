// Instructions that CUDA C++ has no words for.
#pragma once

namespace lantern::ptx {

// Programmatic dependent launch: a kernel launched with cudaLaunchAttributeProgrammaticStreamSerialization may start
// before the one in front of it has ended, and waits here until it has, with its writes visible. Compiled for hardware
// without it, both are nothing; such code must not be launched with that attribute.
__device__ inline void wait_for_earlier_kernels() {
#if __CUDA_ARCH__ >= 900  // the instruction exists from sm_90 on
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
__device__ inline void let_later_kernels_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
// Brings the line at `address` to the L2 cache, and its page to the address caches on the way.
__device__ inline void prefetch_l2(const void* address) { asm volatile("prefetch.global.L2 [%0];" ::"l"(address)); }
constexpr int kOverlapPtxVersion = 90;  // of cudaFuncAttributes, from which on the two are more than nothing

}  // namespace lantern::ptx
