// What a thread block is to the plan's kernels. Kernels are written in these operations alone and never name a thread,
// so that the same source runs on a GPU (cuda_block.cuh) and, one index after the other in any order, on the host
// (tests/plan/host_block.h). All that counts here is the number of times that a thread waits: for memory (150 ns) and
// for the others (20 to 40 ns).
//
// A Block has
//   index()                 which block of the launch this is
//   each(n, f)              f(i) for every i of [0, n), in no order. Nobody waits: what f(i) writes is there for a
//                           later f(i) of the same i, for others after the next barrier() or combine()
//   beside(n, f)            the same for short loops: those that follow each other run beside each other, in different
//                           warps. What they write is there for all others after the next barrier() or combine()
//   stream(n, load, f)      f(i, load(i)) for every i of [0, n), as by each(); several loads are under way at once
//   combine(totals)         what each() has added to a Totals: before it a thread's own share, after it everybody's
//   sum<T>(n, f)            f(0) + ... + f(n - 1). Nobody waits
//   scan(values, n, f)      values[i] becomes f(0) + ... + f(i), written as by each(); returns the whole.
//                           n <= kBlockItems
//   walk(lattice, n, cost, boundaries, starts)
//                           lattice.pass(cost(i)) for i = 0 .. n - 1 (plan_schedule_math.h), the boundary and the start
//                           that each leads to written where i says; they are there after the next barrier(). Both
//                           arrays lie at 16-byte boundaries and have room for a multiple of 128. Nobody but the next
//                           walk() may look at the lattice
//   load4(from), store4(to, four)  four ints at a 16-byte boundary
//   barrier()
//   any(n, f)               a barrier that tells whether f(i) was true for some i of [0, n)
//   wait_for_rows()         in the second kernel: until the first has ended
// What stands between these operations is executed by every thread alike and must not read memory that is written
// before all have waited again, for threads run ahead of each other: what all need is the result of a collective.
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

// Sums start at 0; a maximum starts where it is without contributions. The least index for which something holds is the
// maximum of the negative ones.
template <int kSums, int kMaxima>
struct Totals {
  int32_t sums[kSums > 0 ? kSums : 1];
  int32_t maxima[kMaxima > 0 ? kMaxima : 1];

  LANTERN_BLOCK_CODE explicit Totals(int32_t nothing = 0) {
    for (int32_t& sum : sums) sum = 0;
    for (int32_t& most : maxima) most = nothing;
  }
  LANTERN_BLOCK_CODE void raise(int which, int32_t value) {
    if (value > maxima[which]) maxima[which] = value;
  }
};
constexpr int kMostTotals = 8;  // values of one Totals

struct Int4 {
  int32_t at[4];
};

LANTERN_BLOCK_CODE inline bool is_aligned_to_int4(const void* address) {
  return (reinterpret_cast<uintptr_t>(address) & 15u) == 0;
}

}  // namespace lantern::plan
