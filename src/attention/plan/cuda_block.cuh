// plan_block.h on a GPU: a block of kBlockThreads threads, all of which call each collective.
#pragma once

#include <cstdint>

#include "attention/plan/plan_block.h"

namespace lantern::plan {

class CudaBlock {
 public:
  static constexpr int32_t kWarps = kBlockThreads / 32;
  static constexpr unsigned kAllLanes = 0xffffffffu;

  // One result of each warp. Two sets in turn: a warp that writes to a set has passed the barrier of the collective in
  // between, and so have all that still read the set before.
  struct Shared {
    int64_t of_warp[2][kWarps];
  };

  __device__ explicit CudaBlock(Shared& shared) : shared_(shared) {}

  __device__ int32_t index() const { return static_cast<int32_t>(blockIdx.x); }

  template <class F>
  __device__ void each(int32_t n, const F& f) {
    for (int32_t i = thread(); i < n; i += kBlockThreads) f(i);
    __syncthreads();
  }
  template <class F>
  __device__ bool any(int32_t n, const F& f) {
    int found = 0;
    for (int32_t i = thread(); i < n; i += kBlockThreads) found |= f(i) ? 1 : 0;
    return __syncthreads_or(found) != 0;
  }
  template <class F>
  __device__ int32_t min_of(int32_t n, int32_t none, const F& f) {
#pragma unroll 4
    for (int32_t i = thread(); i < n; i += kBlockThreads) none = min(none, f(i));
    return reduce(none, none, [](int32_t value) { return __reduce_min_sync(kAllLanes, value); });
  }
  template <class F>
  __device__ int32_t max_of(int32_t n, int32_t none, const F& f) {
    for (int32_t i = thread(); i < n; i += kBlockThreads) none = max(none, f(i));
    return reduce(none, none, [](int32_t value) { return __reduce_max_sync(kAllLanes, value); });
  }
  template <class F>
  __device__ int32_t sum_of(int32_t n, const F& f) {
    int32_t sum = 0;
    for (int32_t i = thread(); i < n; i += kBlockThreads) sum += f(i);
    return reduce(sum, 0, [](int32_t value) { return __reduce_add_sync(kAllLanes, value); });
  }

  // kBlockThreads values at a time: within each warp by shuffles, then the warps' sums before one's own.
  __device__ int64_t scan(int64_t* values, int32_t n) {
    int64_t before = 0;
    for (int32_t first = 0; first < n; first += kBlockThreads) {
      const int32_t i = first + thread();
      int64_t sum = i < n ? values[i] : 0;
      for (int32_t distance = 1; distance < 32; distance *= 2) {
        const int64_t lower = __shfl_up_sync(kAllLanes, sum, static_cast<unsigned>(distance));
        if (lane() >= distance) sum += lower;
      }
      int64_t* of_warp = next_set();
      if (lane() == 31) of_warp[warp()] = sum;
      __syncthreads();
      int64_t all = before;
      for (int32_t w = 0; w < kWarps; ++w) {
        if (w < warp()) sum += of_warp[w];
        all += of_warp[w];
      }
      if (i < n) values[i] = before + sum;
      before = all;
    }
    __syncthreads();
    return before;
  }

  template <class F>
  __device__ int32_t first_of_warp(int32_t n, const F& f) const {
    const unsigned votes = __ballot_sync(kAllLanes, lane() < n && f(lane()));
    return votes == 0 ? n : __ffs(static_cast<int>(votes)) - 1;
  }

  template <class T>
  __device__ void store(T* to, T value) const {
    if (thread() == 0) *to = value;
  }
  __device__ Int4 load4(const int32_t* from) const {
    const int4 four = *reinterpret_cast<const int4*>(from);
    return {{four.x, four.y, four.z, four.w}};
  }
  __device__ void store4(int32_t* to, const Int4& four) const {
    *reinterpret_cast<int4*>(to) = make_int4(four.at[0], four.at[1], four.at[2], four.at[3]);
  }
  __device__ void barrier() const { __syncthreads(); }

 private:
  static __device__ int32_t thread() { return static_cast<int32_t>(threadIdx.x); }
  static __device__ int32_t lane() { return thread() % 32; }
  static __device__ int32_t warp() { return thread() / 32; }

  __device__ int64_t* next_set() {
    set_ ^= 1;
    return shared_.of_warp[set_];
  }

  // `none` is what a warp that does not exist would say. Every warp reduces the warps' results for itself.
  template <class OfWarp>
  __device__ int32_t reduce(int32_t value, int32_t none, const OfWarp& of_lanes) {
    int64_t* of_warp = next_set();
    value = of_lanes(value);
    if (lane() == 0) of_warp[warp()] = value;
    __syncthreads();
    return of_lanes(lane() < kWarps ? static_cast<int32_t>(of_warp[lane()]) : none);
  }

  Shared& shared_;
  int32_t set_ = 0;
};

}  // namespace lantern::plan
