// A stored tensor, or a rectangle of it, as the QuantizedMatrix that operators read in place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/dtype.h"
#include "base/result.h"
#include "device/fixed.h"
#include "ops/quantized_matrix.h"

namespace lantern {

// [begin, begin + count); count -1 means "to the end".
struct SliceRange {
  int64_t begin = 0;
  int64_t count = -1;
};

// What one rank reads of a 2-D tensor. The default is all of it.
struct TensorSlice {
  std::string name;
  SliceRange rows;
  SliceRange cols;
};

// A whole 2-D tensor in fixed memory, [rows, cols] row-major, with its block scales
// [ceil(rows / block_rows), ceil(cols / block_cols)] when it has any.
struct StoredMatrix {
  Fixed<const std::byte> data;
  DType dtype = DType::kF32;
  int64_t rows = 0;
  int64_t cols = 0;
  Fixed<const std::byte> scales;
  DType scale_dtype = DType::kF32;
  int32_t block_rows = 0;
  int32_t block_cols = 0;
};

// The rectangle as a view: nothing is copied. Invalid when it leaves the tensor. Unsupported when it begins inside a
// block, because the blocks of a matrix are counted from its first element; it may end anywhere.
Result<QuantizedMatrix> slice_matrix(const StoredMatrix& stored, const TensorSlice& slice);

}  // namespace lantern
