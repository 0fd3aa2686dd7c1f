// Non-owning views of typed memory. Dense is contiguous by type; Strided is not, and only a checked conversion leads
// from Strided to Dense. Shapes and strides are in elements, outermost dimension first.
// A Strided cannot be a part of a launch's parameters, which are bytes and read fixed, contiguous memory
// (device/fixed.h): it is not trivially copyable, on purpose.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>

#include "base/check.h"

namespace lantern {

template <int Rank>
using Extents = std::array<int64_t, static_cast<size_t>(Rank)>;

template <int Rank>
constexpr int64_t element_count(const Extents<Rank>& shape) {
  int64_t count = 1;
  for (int64_t extent : shape) count *= extent;
  return count;
}

template <class T, int Rank>
struct Dense {
  T* data = nullptr;
  Extents<Rank> shape{};

  int64_t size() const { return element_count<Rank>(shape); }
  template <class... Index>
    requires(sizeof...(Index) == static_cast<size_t>(Rank))
  T& operator()(Index... index) const {
    const Extents<Rank> position{static_cast<int64_t>(index)...};
    int64_t offset = 0;
    for (size_t d = 0; d < static_cast<size_t>(Rank); ++d) offset = offset * shape[d] + position[d];
    return data[offset];
  }
};

template <class T, int Rank>
struct Strided {
  T* data = nullptr;
  Extents<Rank> shape{};
  Extents<Rank> stride{};

  Strided() = default;
  // Not by default, which would be trivial.
  Strided(const Strided& other) : data(other.data), shape(other.shape), stride(other.stride) {}
  Strided& operator=(const Strided&) = default;
  Strided(T* data_in, const Extents<Rank>& shape_in, const Extents<Rank>& stride_in)
      : data(data_in), shape(shape_in), stride(stride_in) {}
  Strided(const Dense<T, Rank>& dense) : data(dense.data), shape(dense.shape) {
    int64_t step = 1;
    for (int d = Rank - 1; d >= 0; --d) {
      stride[static_cast<size_t>(d)] = step;
      step *= shape[static_cast<size_t>(d)];
    }
  }

  template <class... Index>
    requires(sizeof...(Index) == static_cast<size_t>(Rank))
  T& operator()(Index... index) const {
    const Extents<Rank> position{static_cast<int64_t>(index)...};
    int64_t offset = 0;
    for (size_t d = 0; d < static_cast<size_t>(Rank); ++d) offset += position[d] * stride[d];
    return data[offset];
  }

  // The same memory as a Dense view, or nothing when it is not contiguous.
  std::optional<Dense<T, Rank>> as_dense() const {
    int64_t step = 1;
    for (int d = Rank - 1; d >= 0; --d) {
      const auto i = static_cast<size_t>(d);
      if (shape[i] != 1 && stride[i] != step) return std::nullopt;
      step *= shape[i];
    }
    return Dense<T, Rank>{data, shape};
  }
};

}  // namespace lantern
