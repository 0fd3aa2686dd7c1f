// The innermost part of expanded attention on the host: one head, a block of queries, one tile of keys at a time.
// Two arithmetics: float on the vector units, and, where the processor has matrix units and the cache is not f32,
// products of bf16 pieces (split_product_amx.h), right to about 2^-16 of a product's size. Which of them runs is a
// matter of the machine and the cache layout alone, never of the batch.
#pragma once

#include <cstddef>
#include <cstdint>

#include "attention/split_product_amx.h"

namespace lantern {

struct PrefillShape {
  int32_t nope_dim = 0;
  int32_t rope_dim = 0;
  int32_t v_dim = 0;
};

// Keys of one tile for one head: row j at expanded + j * stride holds [k_nope: nope_dim | v: v_dim].
struct PrefillKeys {
  const float* expanded = nullptr;
  int64_t stride = 0;
  const float* rope = nullptr;  // [count, rope_dim]
  int32_t count = 0;            // <= 64
};

// One thread's working memory for a head and a block of queries. Queries and results are copied to where they lie
// together: rows far apart cost a cache and a page miss for each tile.
class PrefillWorker {
 public:
  static constexpr int32_t kQueryBlock = 256;
  static int64_t scratch_bytes(const PrefillShape& shape);

  PrefillWorker(std::byte* scratch, const PrefillShape& shape, bool split) : shape_(shape), split_(split) {
    lay_out(scratch);
  }

  void set_query(int64_t row, const float* query);                    // nope_dim + rope_dim values
  float* out(int64_t row) const { return out_ + row * out_stride_; }  // v_dim values

  // Takes a tile into the results of rows [first, first + rows), the last rows of the block. visible, max and sum are
  // those rows' own, as in host_math::softmax_tile.
  void attend(int64_t first, int64_t rows, const PrefillKeys& keys, const uint64_t* visible, float scale, float* max,
              float* sum) const;

 private:
  int64_t lay_out(std::byte* scratch);
  void attend_float(int64_t first, int64_t rows, const PrefillKeys& keys, const uint64_t* visible, float scale,
                    float* max, float* sum) const;
  void attend_split(int64_t first, int64_t rows, const PrefillKeys& keys, const uint64_t* visible, float scale,
                    float* max, float* sum) const;

  PrefillShape shape_;
  bool split_;
  int64_t width_ = 0;  // of a query row
  int64_t out_stride_ = 0;
  float* out_ = nullptr;     // [kQueryBlock, out_stride]
  float* scores_ = nullptr;  // [kQueryBlock, 64]
  // float: queries, transposed keys, values
  float* query_ = nullptr;   // [kQueryBlock, width]
  float* keys_ = nullptr;    // [width, 64]
  float* values_ = nullptr;  // [64, v_dim]
  // split: pieces of queries, of key rows, of keys and values as right operands, of probabilities
  split_amx::Pieces query_pieces_, key_rows_, key_pairs_, value_pairs_, probabilities_;
};

}  // namespace lantern
