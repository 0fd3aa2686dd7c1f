// What a thread block is to the plan's kernels: a set of collective operations, each of which ends when all threads of
// the block have done their part. Kernels are written in these alone and never name a thread, so that the same source
// runs on a GPU (cuda_block.cuh) and, one index after the other in any order, on the host (tests/plan/host_block.h).
//
// A Block has
//   index()                 which block of the launch this is
//   each(n, f)              f(i) for every i of [0, n), in no order
//   any(n, f)               whether some f(i) is true
//   min_of(n, none, f)      the least f(i), `none` for n = 0 and where all are larger;   max_of likewise
//   sum_of(n, f)            the sum of f(i), int32
//   scan(values, n)         values[i] becomes the sum of values[0 .. i]; returns the whole. int64, n <= kBlockItems
//   first_of_warp(n, f)     the least i of [0, n), n <= 32, for which f(i) is true, or n. Every warp answers it for
//                           itself: nobody waits, and f reads what an earlier collective has written
//   store(to, value)        one thread writes; others see it after barrier() or the next collective
//   load4(from), store4(to, four)  four ints at a 16-byte boundary
//   barrier()
// Functions given to one collective must not depend on each other's writes. What stands between collectives is executed
// by every thread alike and must not read shared memory that the next one writes, for threads run ahead of each other:
// what all need is the result of a collective.
#pragma once

#include <cstdint>

// Code that runs in a block: device code where nvcc compiles it, plain code elsewhere.
#ifdef __CUDACC__
#define LANTERN_BLOCK_CODE __device__
#else
#define LANTERN_BLOCK_CODE
#endif

namespace lantern::plan {

constexpr int32_t kBlockThreads = 256;
constexpr int32_t kBlockItems = 1024;  // of shared arrays; longer lists go through them in pieces

struct Int4 {
  int32_t at[4];
};

LANTERN_BLOCK_CODE inline bool is_aligned_to_int4(const void* address) {
  return (reinterpret_cast<uintptr_t>(address) & 15u) == 0;
}

}  // namespace lantern::plan
