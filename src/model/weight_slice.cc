#include "model/weight_slice.h"

#include <fmt/core.h>

#include "base/check.h"

namespace lantern {
namespace {

// Resolves `range` within `extent`, on `block` boundaries (0: no blocks).
Result<SliceRange> resolve(const TensorSlice& slice, const char* what, SliceRange range, int64_t extent,
                           int32_t block) {
  if (range.count < 0 && range.begin >= 0 && range.begin <= extent) range.count = extent - range.begin;
  if (range.begin < 0 || range.count <= 0 || range.begin > extent || range.count > extent - range.begin) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("a slice of {} {} from {} of '{}' was asked for, which has {}", range.count, what,
                             range.begin, slice.name, extent));
  }
  if (block > 0 && range.begin % block != 0) {
    return Error(ErrorCode::kUnsupported,
                 fmt::format("a slice of '{}' begins at {} {}, inside a quantisation block of {}; split at a multiple "
                             "of the block, or use an unquantised checkpoint",
                             slice.name, range.begin, what, block));
  }
  return range;
}

}  // namespace

Result<QuantizedMatrix> slice_matrix(const StoredMatrix& stored, const TensorSlice& slice) {
  ASSIGN_OR_RETURN(const SliceRange rows, resolve(slice, "rows", slice.rows, stored.rows, stored.block_rows));
  ASSIGN_OR_RETURN(const SliceRange cols, resolve(slice, "columns", slice.cols, stored.cols, stored.block_cols));
  const auto bytes_of = [](DType dtype, int64_t count) {
    return static_cast<int64_t>(dtype_bytes(dtype, static_cast<size_t>(count)));
  };
  CHECK(dtype_bits(stored.dtype) >= 8, "'{}' has elements of less than a byte", slice.name);

  QuantizedMatrix matrix;
  matrix.dtype = stored.dtype;
  matrix.rows = rows.count;
  matrix.cols = cols.count;
  matrix.row_bytes = bytes_of(stored.dtype, stored.cols);
  const int64_t begin = rows.begin * matrix.row_bytes + bytes_of(stored.dtype, cols.begin);
  // From the first element to the last, which is all that the view may touch.
  matrix.data = stored.data.sub(begin, (rows.count - 1) * matrix.row_bytes + bytes_of(stored.dtype, cols.count));
  if (stored.block_rows > 0) {
    const auto blocks = [](int64_t extent, int32_t block) { return (extent + block - 1) / block; };
    matrix.block_rows = stored.block_rows;
    matrix.block_cols = stored.block_cols;
    matrix.scale_dtype = stored.scale_dtype;
    matrix.scale_row_stride = blocks(stored.cols, stored.block_cols);
    const int64_t first = rows.begin / stored.block_rows * matrix.scale_row_stride + cols.begin / stored.block_cols;
    const int64_t count =
        (blocks(rows.count, stored.block_rows) - 1) * matrix.scale_row_stride + blocks(cols.count, stored.block_cols);
    matrix.scales = stored.scales.sub(bytes_of(stored.scale_dtype, first), bytes_of(stored.scale_dtype, count));
  }
  return matrix;
}

}  // namespace lantern
