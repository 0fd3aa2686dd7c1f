// A thread block on the host: the collectives of attention/plan/plan_block.h, one index after the other, forwards,
// backwards or in strides. A kernel whose result depends on the order has a race.
#pragma once

#include <cstdint>
#include <numeric>

#include "attention/plan/plan_block.h"
#include "base/check.h"

namespace lantern::test {

enum class BlockOrder : uint8_t { kForwards, kBackwards, kStrides };

class HostBlock {
 public:
  HostBlock(int32_t index, BlockOrder order) : index_(index), order_(order) {}

  int32_t index() const { return index_; }

  template <class F>
  void each(int32_t n, const F& f) const {
    walk(n, [&](int32_t i) { f(i); });
  }
  template <class F>
  bool any(int32_t n, const F& f) const {
    bool found = false;
    walk(n, [&](int32_t i) { found = f(i) || found; });
    return found;
  }
  template <class F>
  int32_t min_of(int32_t n, int32_t none, const F& f) const {
    walk(n, [&](int32_t i) { none = std::min(none, f(i)); });
    return none;
  }
  template <class F>
  int32_t max_of(int32_t n, int32_t none, const F& f) const {
    walk(n, [&](int32_t i) { none = std::max(none, f(i)); });
    return none;
  }
  template <class F>
  int32_t sum_of(int32_t n, const F& f) const {
    int32_t sum = 0;
    walk(n, [&](int32_t i) { sum += f(i); });
    return sum;
  }
  int64_t scan(int64_t* values, int32_t n) const {
    CHECK(n <= plan::kBlockItems, "a scan of {} values", n);
    std::partial_sum(values, values + n, values);
    return n > 0 ? values[n - 1] : 0;
  }
  template <class F>
  int32_t first_of_warp(int32_t n, const F& f) const {
    CHECK(n <= 32, "a vote of {} threads", n);
    int32_t first = n;
    walk(n, [&](int32_t i) {
      if (f(i)) first = std::min(first, i);
    });
    return first;
  }
  template <class T>
  void store(T* to, T value) const {
    *to = value;
  }
  plan::Int4 load4(const int32_t* from) const {
    check_aligned(from);
    return {{from[0], from[1], from[2], from[3]}};
  }
  void store4(int32_t* to, const plan::Int4& four) const {
    check_aligned(to);
    std::copy_n(four.at, 4, to);
  }
  void barrier() const {}

 private:
  static void check_aligned(const int32_t* address) {
    CHECK(plan::is_aligned_to_int4(address), "an access of 16 bytes at {}", static_cast<const void*>(address));
  }

  template <class F>
  void walk(int32_t n, const F& f) const {
    constexpr int32_t kStride = 37;  // prime, so that it meets every index unless it divides n
    if (order_ == BlockOrder::kStrides && n > 0 && n % kStride != 0) {
      for (int32_t i = 0, at = n / 2; i < n; ++i, at = (at + kStride) % n) f(at);
    } else if (order_ == BlockOrder::kBackwards) {
      for (int32_t i = n; --i >= 0;) f(i);
    } else {
      for (int32_t i = 0; i < n; ++i) f(i);
    }
  }

  int32_t index_;
  BlockOrder order_;
};

}  // namespace lantern::test
