#include "attention/prefill_tile.h"

#include <algorithm>
#include <cstring>

#include "attention/host_math.h"
#include "attention/scratch_layout.h"
#include "attention/split_product_amx.h"

namespace lantern {

using host_math::kTile;

int64_t PrefillWorker::lay_out(std::byte* scratch) {
  ScratchLayout layout(scratch);
  const int64_t width = shape_.nope_dim + shape_.rope_dim;
  // The matrix units take rows in blocks; what they compute for rows beyond the last is never looked at.
  const int64_t rows = split_ ? kQueryBlock + split_amx::kRowBlock : kQueryBlock;
  width_ = split_ ? split_amx::round_up(width, 32) : width;
  out_stride_ = split_ ? split_amx::round_up(shape_.v_dim, 32) : shape_.v_dim;
  out_ = layout.take<float>(rows * out_stride_);
  scores_ = layout.take<float>(rows * kTile);
  if (!split_) {
    query_ = layout.take<float>(rows * width_);
    keys_ = layout.take<float>(width_ * kTile);
    values_ = layout.take<float>(kTile * out_stride_);
    return layout.used();
  }
  const auto take = [&layout](int64_t count) {
    split_amx::Pieces pieces;
    pieces.high = layout.take<uint16_t>(count);
    pieces.low = layout.take<uint16_t>(count);
    return pieces;
  };
  query_pieces_ = take(rows * width_);
  key_rows_ = take(kTile * width_);
  key_pairs_ = take(kTile * width_);
  value_pairs_ = take(kTile * out_stride_);
  probabilities_ = take(rows * kTile);
  return layout.used();
}

int64_t PrefillWorker::scratch_bytes(const PrefillShape& shape) {
  return std::max(PrefillWorker(nullptr, shape, false).lay_out(nullptr),
                  PrefillWorker(nullptr, shape, true).lay_out(nullptr));
}

void PrefillWorker::set_query(int64_t row, const float* query) {
  const int64_t width = shape_.nope_dim + shape_.rope_dim;
  if (split_) {
    split_amx::split_values(query, width, row * width_, query_pieces_);
    split_amx::clear_pieces(width_ - width, row * width_ + width, query_pieces_);
  } else {
    std::memcpy(query_ + row * width_, query, static_cast<size_t>(width) * sizeof(float));
  }
}

void PrefillWorker::attend(int64_t first, int64_t rows, const PrefillKeys& keys, const uint64_t* visible, float scale,
                           float* max, float* sum) const {
  if (split_) {
    attend_split(first, rows, keys, visible, scale, max, sum);
  } else {
    attend_float(first, rows, keys, visible, scale, max, sum);
  }
}

void PrefillWorker::attend_float(int64_t first, int64_t rows, const PrefillKeys& keys, const uint64_t* visible,
                                 float scale, float* max, float* sum) const {
  if (keys.count < kTile) std::fill_n(keys_, width_ * kTile, 0.0f);
  host_math::transpose(keys.count, shape_.nope_dim, keys.expanded, keys.stride, keys_, kTile);
  host_math::transpose(keys.count, shape_.rope_dim, keys.rope, shape_.rope_dim,
                       keys_ + int64_t{shape_.nope_dim} * kTile, kTile);
  for (int64_t j = 0; j < keys.count; ++j) {
    std::memcpy(values_ + j * out_stride_, keys.expanded + j * keys.stride + shape_.nope_dim,
                static_cast<size_t>(shape_.v_dim) * sizeof(float));
  }
  float factor[kQueryBlock];
  host_math::multiply_nn(rows, kTile, width_, query_ + first * width_, width_, keys_, kTile, scores_, kTile, false);
  host_math::softmax_tile(rows, scores_, visible, scale, max, sum, factor);
  host_math::multiply_nn(rows, shape_.v_dim, keys.count, scores_, kTile, values_, out_stride_, out(first), out_stride_,
                         true, factor);
}

void PrefillWorker::attend_split(int64_t first, int64_t rows, const PrefillKeys& keys, const uint64_t* visible,
                                 float scale, float* max, float* sum) const {
  const int64_t nope = shape_.nope_dim;
  const int64_t width = nope + shape_.rope_dim;
  for (int64_t j = 0; j < keys.count; ++j) {
    split_amx::split_values(keys.expanded + j * keys.stride, nope, j * width_, key_rows_);
    split_amx::split_values(keys.rope + j * shape_.rope_dim, shape_.rope_dim, j * width_ + nope, key_rows_);
    split_amx::clear_pieces(width_ - width, j * width_ + width, key_rows_);
  }
  split_amx::clear_pieces((kTile - keys.count) * width_, keys.count * width_, key_rows_);
  split_amx::pack_columns(key_rows_, kTile, width_, key_pairs_);
  split_amx::pack_rows(keys.expanded + nope, keys.stride, keys.count, kTile, shape_.v_dim, out_stride_, value_pairs_);

  const split_amx::TileScope tiles;
  const split_amx::Pieces query{query_pieces_.high + first * width_, query_pieces_.low + first * width_};
  split_amx::multiply(rows, kTile, width_, query, key_pairs_, scores_, kTile, false);
  float factor[kQueryBlock];
  host_math::softmax_tile(rows, scores_, visible, scale, max, sum, factor);
  for (int64_t r = 0; r < rows; ++r) {
    split_amx::split_values(scores_ + r * kTile, kTile, r * kTile, probabilities_);
    if (factor[r] != 1.0f) host_math::scale(shape_.v_dim, out(first + r), factor[r]);
  }
  split_amx::multiply(rows, out_stride_, kTile, probabilities_, value_pairs_, out(first), out_stride_, true);
}

}  // namespace lantern
