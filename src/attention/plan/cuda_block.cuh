// plan_block.h on a GPU: a block of kBlockThreads threads, all of which call each collective.
#pragma once

#include <cstdint>

#include "attention/plan/plan_block.h"
#include "attention/plan/plan_schedule_math.h"
#include "device/cuda/ptx.cuh"

namespace lantern::plan {

class CudaBlock {
 public:
  static constexpr int32_t kWarps = kBlockThreads / 32;
  static constexpr unsigned kAllLanes = 0xffffffffu;

  // The warps' results. Two sets in turn: a warp that writes to a set has passed the barrier of the collective in
  // between, and so have all that still read the set before.
  struct Shared {
    int64_t of_warp[2][kWarps];  // sums of a scan
    int32_t totals_of_warp[2][kMostTotals][kWarps];
  };

  __device__ explicit CudaBlock(Shared& shared) : shared_(shared) {}

  __device__ int32_t index() const { return static_cast<int32_t>(blockIdx.x); }

  template <class F>
  __device__ void each(int32_t n, const F& f) const {
#pragma unroll 1
    for (int32_t i = thread(); i < n; i += kBlockThreads) f(i);
  }
  template <class F>
  __device__ void beside(int32_t n, const F& f) {
#pragma unroll 1
    for (int32_t i = next_threads(n); i < n; i += kBlockThreads) f(i);
  }
  template <class Load, class F>
  __device__ void stream(int32_t n, const Load& load, const F& f) const {
    constexpr int32_t kUnderWay = 4;
#pragma unroll 1
    for (int32_t first = thread(); first < n; first += kUnderWay * kBlockThreads) {
      decltype(load(0)) loaded[kUnderWay];
#pragma unroll
      for (int32_t u = 0; u < kUnderWay; ++u) {
        const int32_t i = first + u * kBlockThreads;
        if (i < n) loaded[u] = load(i);
      }
#pragma unroll
      for (int32_t u = 0; u < kUnderWay; ++u) {
        const int32_t i = first + u * kBlockThreads;
        if (i < n) f(i, loaded[u]);
      }
    }
  }

  template <int kSums, int kMaxima>
  __device__ void combine(Totals<kSums, kMaxima>& t) {
    static_assert(kSums + kMaxima <= kMostTotals);
    auto& of_warp = shared_.totals_of_warp[next_set()];
    for (int k = 0; k < kSums; ++k) {
      const int32_t value = __reduce_add_sync(kAllLanes, t.sums[k]);
      if (lane() == 0) of_warp[k][warp()] = value;
    }
    for (int k = 0; k < kMaxima; ++k) {
      const int32_t value = __reduce_max_sync(kAllLanes, t.maxima[k]);
      if (lane() == 0) of_warp[kSums + k][warp()] = value;
    }
    __syncthreads();
    // Every warp for itself; lanes beyond the warps repeat what stands there already.
    for (int k = 0; k < kSums; ++k) t.sums[k] = __reduce_add_sync(kAllLanes, lane() < kWarps ? of_warp[k][lane()] : 0);
    for (int k = 0; k < kMaxima; ++k) {
      t.maxima[k] = __reduce_max_sync(kAllLanes, of_warp[kSums + k][lane() % kWarps]);
    }
  }

  // kBlockThreads values at a time: within each warp by shuffles, then the warps' sums before one's own.
  template <class T, class F>
  __device__ T scan(T* values, int32_t n, const F& f) {
    T before = 0;
    for (int32_t first = 0; first < n; first += kBlockThreads) {
      const int32_t i = first + thread();
      T sum = i < n ? f(i) : 0;
#pragma unroll
      for (int32_t distance = 1; distance < 32; distance *= 2) {
        const T lower = __shfl_up_sync(kAllLanes, sum, static_cast<unsigned>(distance));
        if (lane() >= distance) sum += lower;
      }
      int64_t* of_warp = shared_.of_warp[next_set()];
      if (lane() == 31) of_warp[warp()] = sum;
      __syncthreads();
      // Lane w holds what warp w has.
      const T of_lane = lane() < kWarps ? static_cast<T>(of_warp[lane()]) : 0;
      sum += sum_of_lanes(lane() < warp() ? of_lane : 0);
      if (i < n) values[i] = before + sum;
      before += sum_of_lanes(of_lane);
    }
    return before;
  }

  // Every warp for itself, so that nobody waits.
  template <class T, class F>
  __device__ T sum(int32_t n, const F& f) const {
    T mine = 0;
#pragma unroll 4
    for (int32_t i = lane(); i < n; i += 32) mine += f(i);
    return sum_of_lanes(mine);
  }

  // 128 boundaries at a time, a row of 32 for each of four warps. Passing a boundary does not combine into anything
  // small, but one that is met forgets the phase that came. So for every boundary the phase at the end of its half row
  // of 16 is found for the case that it is met, by all threads at once; then one warp goes from half row to half row
  // and finds in each the first boundary that the incoming phase meets, by a vote; and a lane for each half row follows
  // the incoming phase through it. Items beyond the last repeat it, which changes nothing. No chain has a branch.
  template <class T, class Cost>
  __device__ void walk(Lattice<T>& lattice, int32_t n, const Cost& cost, T* boundaries, T* starts) {
    constexpr int32_t kRows = 4, kHalf = 16;
    const auto reach = lattice.reach();
    const int32_t row = warp(), place = lane() % kHalf;
    const bool has_row = row < kRows;
    T state = lattice.phase;  // the first warp's alone from then on
#pragma unroll 1
    for (int32_t first = 0; first < n; first += 32 * kRows) {
      const int32_t i = first + 32 * row + lane();
      T boundary = has_row && i < n ? cost(i) : 0;
#pragma unroll
      for (int32_t distance = 1; distance < 32; distance *= 2) {
        const T lower = __shfl_up_sync(kAllLanes, boundary, static_cast<unsigned>(distance));
        boundary += lane() >= distance ? lower : 0;
      }
      int64_t* of_row = shared_.of_warp[next_set()];
      if (has_row && lane() == 31) of_row[row] = boundary;
      __syncthreads();
      boundary += lattice.boundary;
#pragma unroll
      for (int32_t k = 0; k < kRows; ++k) {
        const T all = static_cast<T>(of_row[k]);
        boundary += k < row ? all : 0;
        lattice.boundary += all;
      }
      const T phase = lattice.phase_of(boundary);
      // Room for phases and ends until starts and boundaries are known.
      T *phases = starts + first, *ends = boundaries + first;
      if (has_row) {
        phases[32 * row + lane()] = phase;
        __syncwarp();
        const HalfRow<T> of = *reinterpret_cast<const HalfRow<T>*>(phases + 32 * row + (lane() - place));
        T end = phase;
#pragma unroll
        for (int32_t j = 1; j < kHalf; ++j) {
          end = lattice.meet(end, of.at[j], j > place ? reach : 0) ? of.at[j] : end;
        }
        ends[32 * row + lane()] = end;
      }
      __syncthreads();
      if (row == 0) {
        T key[kRows], end[kRows], come = 0;
#pragma unroll
        for (int32_t k = 0; k < kRows; ++k) {
          key[k] = phases[32 * k + lane()];
          end[k] = ends[32 * k + lane()];
        }
#pragma unroll
        for (int32_t k = 0; k < kRows; ++k) {
#pragma unroll
          for (int32_t half = 0; half < 2; ++half) {
            const bool mine = lane() / kHalf == half;
            come = lane() == 2 * k + half ? state : come;
            const unsigned met = __ballot_sync(kAllLanes, lattice.meet(state, key[k], mine ? reach : 0));
            const T gone = __shfl_sync(kAllLanes, end[k], __ffs(static_cast<int>(met)) - 1);
            state = met != 0 ? gone : state;
          }
        }
        // In the place of each phase the one that goes on behind its boundary.
        if (lane() < 2 * kRows) {
          auto* half_row = reinterpret_cast<HalfRow<T>*>(phases + kHalf * lane());
          HalfRow<T> of = *half_row;
#pragma unroll
          for (int32_t j = 0; j < kHalf; ++j) {
            come = lattice.meet(come, of.at[j], reach) ? of.at[j] : come;
            of.at[j] = come;
          }
          *half_row = of;
        }
      }
      __syncthreads();
      if (has_row) {
        starts[i] = lattice.first_from(boundary, starts[i], phase);
        boundaries[i] = boundary;
      }
    }
    lattice.phase = state;
  }
  __device__ Int4 load4(const int32_t* from) const {
    const int4 four = *reinterpret_cast<const int4*>(from);
    return {{four.x, four.y, four.z, four.w}};
  }
  __device__ void store4(int32_t* to, const Int4& four) const {
    *reinterpret_cast<int4*>(to) = make_int4(four.at[0], four.at[1], four.at[2], four.at[3]);
  }
  __device__ void barrier() const { __syncthreads(); }
  template <class F>
  __device__ bool any(int32_t n, const F& f) {
    int found = 0;
    each(n, [&](int32_t i) { found |= f(i) ? 1 : 0; });
    return __syncthreads_or(found) != 0;
  }
  __device__ void wait_for_rows() const { ptx::wait_for_earlier_kernels(); }

 private:
  template <class T>
  struct alignas(16) HalfRow {
    T at[16];
  };

  static __device__ int32_t thread() { return static_cast<int32_t>(threadIdx.x); }
  static __device__ int32_t lane() { return thread() % 32; }
  static __device__ int32_t warp() { return thread() / 32; }

  __device__ int32_t next_set() { return set_ ^= 1; }

  static __device__ int32_t sum_of_lanes(int32_t value) { return __reduce_add_sync(kAllLanes, value); }
  static __device__ int64_t sum_of_lanes(int64_t value) {
    for (int32_t distance = 16; distance > 0; distance /= 2) value += __shfl_xor_sync(kAllLanes, value, distance);
    return value;
  }

  // This thread's first index of a loop over n, the loop beginning at the warp after those of the loop before.
  __device__ int32_t next_threads(int32_t n) {
    const int32_t i = (thread() - first_thread_) & (kBlockThreads - 1);
    first_thread_ = (first_thread_ + n + 31) & (kBlockThreads - 32);
    return i;
  }

  Shared& shared_;
  int32_t set_ = 0;
  int32_t first_thread_ = 0;  // a multiple of 32
};

}  // namespace lantern::plan
