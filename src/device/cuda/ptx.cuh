// Instructions that CUDA C++ has no words for.
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
// The beginning of a kernel that launch_overlapped() starts. The later kernel is let go behind the wait: when it runs,
// all that came before this kernel is done, so that only this one's results are still to come.
__device__ inline void begin_overlapped() {
  wait_for_earlier_kernels();
  let_later_kernels_start();
}
// Brings the line at `address` to the L2 cache, and its page to the address caches on the way.
__device__ inline void prefetch_l2(const void* address) { asm volatile("prefetch.global.L2 [%0];" ::"l"(address)); }
// NaN where one of the two is; fmaxf() gives the other.
__device__ inline float max_or_nan(float a, float b) {
  float larger;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(a), "f"(b));
  return larger;
}
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

__device__ inline uint4 load_shared_16(uint32_t shared_address) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(shared_address)
               : "memory");
  return v;
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

__device__ inline void store_shared(uint32_t shared_address, uint32_t value) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(shared_address), "r"(value) : "memory");
}
__device__ inline void store_shared(uint32_t shared_address, const uint4& value) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(shared_address), "r"(value.x), "r"(value.y),
               "r"(value.z), "r"(value.w)
               : "memory");
}

// a b of two bf16 values each, to nearest even; subnormal values count.
__device__ inline uint32_t multiply_bf16(uint32_t a, uint32_t b) {
  uint32_t product;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(product) : "r"(a), "r"(b), "r"(0x80008000u));
  return product;
}

// 2^x to 2 ulp; subnormal results are 0.
__device__ inline float exp2_flushed(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Two values as bf16, to nearest even; `low` in the lower half.
__device__ inline uint32_t pack_bf16(float low, float high) {
  uint32_t packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL  // what only sm_90a has

// Barriers in shared memory, of phases 0, 1, 0, ...: a phase ends when `count` arrivals came.
__device__ inline void init_barrier(uint32_t barrier, uint32_t count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}
__device__ inline void arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// An arrival that makes the phase wait for so many bytes of store_in_cluster() or copy_bulk() too.
__device__ inline void arrive_and_expect(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
// Until the phase of this parity has ended.
__device__ inline void wait_barrier(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

// Blocks of a cluster: the number of this one in it, and where `shared_address` lies in block `rank`'s shared memory,
// as an address that all of them can use.
__device__ inline uint32_t cluster_rank() {
  uint32_t rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
__device__ inline uint32_t cluster_address(uint32_t shared_address, uint32_t rank) {
  uint32_t address;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared_address), "r"(rank));
  return address;
}
// Stores on its own time; its 16 bytes count at `barrier`, of the same block's shared memory.
__device__ inline void store_in_cluster(uint32_t cluster_address, const uint4& value, uint32_t barrier) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(
                   cluster_address),
               "r"(value.x), "r"(value.y), "r"(value.z), "r"(value.w), "r"(barrier)
               : "memory");
}
// Says that this thread has read what it wanted; nothing that it wrote is passed on.
__device__ inline void arrive_in_cluster(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ inline float4 load_in_cluster(uint32_t cluster_address) {
  float4 v;
  asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "r"(cluster_address)
               : "memory");
  return v;
}
// All threads of all blocks of the cluster.
__device__ inline void sync_cluster() {
  asm volatile("barrier.cluster.arrive.release;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}
// The first `threads` of the block that come here; 1 to 15, since 0 is __syncthreads()'s.
template <int kBarrier>
__device__ inline void sync_some(unsigned threads) {
  asm volatile("bar.sync %0, %1;" ::"n"(kBarrier), "r"(threads) : "memory");
}

// A warpgroup's registers a thread from here on; the kernel's warpgroups together may not have more than its launch.
template <int kRegisters>
__device__ inline void more_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ inline void fewer_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// A multiple of 16 aligned bytes from global to shared memory, as products read it, by the thread that calls.
__device__ inline void copy_bulk(uint32_t shared_address, const void* global, uint32_t bytes, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared_address),
      "l"(global), "r"(bytes), "r"(barrier)
      : "memory");
}
// One of a barrier's arrivals when what this thread asked of copy_16() so far is there.
__device__ inline void arrive_with_copies(uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

// What this thread wrote to shared memory becomes visible to the warpgroup products behind the next barrier.
__device__ inline void fence_shared_for_products() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// An operand in shared memory in rows of 128 bytes whose pieces of 16 are permuted by the row's number modulo 8, eight
// rows after each other, from an address that is a multiple of 1024. `across`: bytes to the next 64 columns, for
// operands whose rows do not run along K; `down`: bytes to the next eight rows.
__device__ inline uint64_t matrix_descriptor(uint32_t shared_address, uint32_t across, uint32_t down = 1024) {
  return static_cast<uint64_t>((shared_address & 0x3ffffu) >> 4) | static_cast<uint64_t>(across >> 4) << 16 |
         static_cast<uint64_t>(down >> 4) << 32 | uint64_t{1} << 62;
}
// Before products that read or add to registers written before: these, whose writes stay in front of it.
__device__ inline void keep_before(float& value) { asm volatile("" : "+f"(value)::"memory"); }
__device__ inline void keep_before(uint32_t& value) { asm volatile("" : "+r"(value)::"memory"); }
template <class T, int kCount>
__device__ inline void keep_before(T (&values)[kCount]) {
#pragma unroll
  for (T& value : values) keep_before(value);
}
template <class... Registers>
__device__ inline void begin_products(Registers&... registers) {
  (keep_before(registers), ...);
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ inline void end_product_group() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Until all groups are done; `d`, their result, is read behind this only.
template <int kCount>
__device__ inline void wait_for_products(float (&d)[kCount]) {
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
  for (float& value : d) asm volatile("" : "+f"(value)::"memory");
}

// d (+)= A B of 64 x 16 by 16 x 32 values by a warpgroup, both in shared memory with K along their rows. Thread t has
// of D the rows 16 (t / 32) + t % 32 / 4 and + 8 as lanes have them of mma_bf16(), eight columns after eight.
__device__ inline void product_64x32(float (&d)[16], uint64_t a, uint64_t b, bool add) {
  asm volatile(
      "{\n"
      ".reg .pred add;\n"
      "setp.ne.b32 add, %18, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, "
      "%10, %11, %12, %13, %14, %15}, %16, %17, add, 1, 1, 0, 0;"
      "\n}"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]),
        "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
      : "l"(a), "l"(b), "r"(static_cast<int>(add)));
}
// d (+)= A B of 64 x 16 by 16 x n values: A as lanes have it of mma_bf16(), B in shared memory, whose rows there are
// B's columns (kAlongK) or its rows.
template <bool kAlongK>
__device__ inline void product_64xn(float (&d)[32], const uint32_t (&a)[4], uint64_t b, bool add = true) {
  asm volatile(
      "{\n"
      ".reg .pred add;\n"
      "setp.ne.b32 add, %37, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, "
      "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "{%32, %33, %34, %35}, %36, add, 1, 1, %38;"
      "\n}"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]),
        "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]),
        "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]),
        "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(add)), "n"(kAlongK ? 0 : 1));
}
template <bool kAlongK>
__device__ inline void product_64xn(float (&d)[64], const uint32_t (&a)[4], uint64_t b, bool add = true) {
  asm volatile(
      "{\n"
      ".reg .pred add;\n"
      "setp.ne.b32 add, %69, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, "
      "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, "
      "%40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, "
      "%59, %60, %61, %62, %63}, "
      "{%64, %65, %66, %67}, %68, add, 1, 1, %70;"
      "\n}"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]),
        "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]),
        "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]),
        "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]),
        "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]),
        "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]),
        "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), "+f"(d[56]),
        "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(add)), "n"(kAlongK ? 0 : 1));
}

#endif

}  // namespace lantern::ptx
