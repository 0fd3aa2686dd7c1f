// Instructions that CUDA C++ has no words for. Those of sm_80 and later, so that they are there in every build.
#pragma once

#include <cstdint>

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

// d += a b of 16 x 16 by 16 x 8 values, by one warp, accumulated in float. Lane l has g = l / 4, c = l % 4 and
//   a[0] = A[g, 2c..], a[1] = A[g + 8, 2c..], a[2] = A[g, 2c + 8..], a[3] = A[g + 8, 2c + 8..]   (pairs along K)
//   b[0] = B[2c.., g], b[1] = B[2c + 8.., g]
//   d[0..1] = D[g, 2c..], d[2..3] = D[g + 8, 2c..]                                               (pairs along N)
__device__ inline void mma_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
__device__ inline void mma_f16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Four 8 x 8 matrices of 16-bit values from shared memory: lane l gives the address of row l % 8 of matrix l / 8, 16
// aligned bytes; of matrix i it gets row l / 4, columns 2 (l % 4).. in r[i]. `transposed`: of the transposed matrix.
__device__ inline void load_matrices(uint32_t (&r)[4], uint32_t shared_address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address)
               : "memory");
}
__device__ inline void load_matrices_transposed(uint32_t (&r)[4], uint32_t shared_address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address)
               : "memory");
}

// 16 aligned bytes to shared memory, past the registers; zeros instead where not `real`. Complete, for the thread that
// asked, after wait_for_copies<n>(): all but the n newest groups.
__device__ inline void copy_16(uint32_t shared_address, const void* global, bool real = true) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address), "l"(global), "r"(real ? 16 : 0)
               : "memory");
}
__device__ inline void end_copy_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kNewest>
__device__ inline void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kNewest) : "memory");
}

__device__ inline uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// a b of two bf16 values each, to nearest even; subnormal values count.
__device__ inline uint32_t multiply_bf16(uint32_t a, uint32_t b) {
  uint32_t product;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(product) : "r"(a), "r"(b), "r"(0x80008000u));
  return product;
}

// Two values as bf16, to nearest even; `low` in the lower half.
__device__ inline uint32_t pack_bf16(float low, float high) {
  uint32_t packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}

}  // namespace lantern::ptx
