// A thread block on the host: the collectives of attention/plan/plan_block.h, one index after the other, forwards,
// backwards or in strides. A kernel whose result depends on the order has a race.
#pragma once

#include <cstdint>
#include <functional>
#include <numeric>

#include "attention/plan/plan_block.h"
#include "attention/plan/plan_schedule_math.h"
#include "base/check.h"

namespace lantern::test {

enum class BlockOrder : uint8_t { kForwards, kBackwards, kStrides };

class HostBlock {
 public:
  // `rows`, if any, is run when the block waits for the first kernel.
  HostBlock(int32_t index, BlockOrder order, const std::function<void()>* rows = nullptr)
      : index_(index), order_(order), rows_(rows) {}

  int32_t index() const { return index_; }

  template <class F>
  void each(int32_t n, const F& f) const {
    walk(n, [&](int32_t i) { f(i); });
  }
  template <class F>
  void beside(int32_t n, const F& f) const {
    each(n, f);
  }
  template <class Load, class F>
  void stream(int32_t n, const Load& load, const F& f) const {
    walk(n, [&](int32_t i) { f(i, load(i)); });
  }
  template <int kSums, int kMaxima>
  void combine(plan::Totals<kSums, kMaxima>& /*totals*/) const {}
  template <class T, class F>
  T scan(T* values, int32_t n, const F& f) const {
    CHECK(n <= plan::kBlockItems, "a scan of {} values", n);
    walk(n, [&](int32_t i) { values[i] = f(i); });
    std::partial_sum(values, values + n, values);
    return n > 0 ? values[n - 1] : 0;
  }
  template <class T, class F>
  T sum(int32_t n, const F& f) const {
    T all = 0;
    walk(n, [&](int32_t i) { all += f(i); });
    return all;
  }
  template <class T, class Cost>
  void walk(plan::Lattice<T>& lattice, int32_t n, const Cost& cost, T* boundaries, T* starts) const {
    for (int32_t i = 0; i < n; ++i) {
      starts[i] = lattice.pass(cost(i));
      boundaries[i] = lattice.boundary;
    }
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
  template <class F>
  bool any(int32_t n, const F& f) const {
    bool found = false;
    walk(n, [&](int32_t i) { found = f(i) || found; });
    return found;
  }
  void wait_for_rows() const {
    if (rows_ != nullptr) (*rows_)();
  }

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
  const std::function<void()>* rows_;
};

}  // namespace lantern::test
