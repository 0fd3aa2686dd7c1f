// Products of float matrices on the matrix units: each float is the sum of two bf16 pieces (high: the nearest bf16,
// low: the nearest bf16 of the rest), and a product is high * high + high * low + low * high, accumulated in float.
// The pieces keep 16 to 17 bits of a value, so that a product is right to about 2^-16; for values that are bf16
// already the low pieces are zero. Every sum has one order that depends on its own row and column alone.
//
// To be called only where missing_host_amx() is null.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lantern::split_amx {

// Rows are processed by kRowBlock: matrices of pieces and results must have room for rows rounded up to it.
inline constexpr int64_t kRowBlock = 32;
constexpr int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

// A matrix's pieces, as bf16 bits.
struct Pieces {
  uint16_t* high = nullptr;
  uint16_t* low = nullptr;
};

// The pieces of src[0..count) to out[at..at + count), and nothing else.
void split_values(const float* src, int64_t count, int64_t at, Pieces out);
// Zeros to out[at..at + count).
void clear_pieces(int64_t count, int64_t at, Pieces out);

// Right operand from rows that are its columns: pieces [keys][stride] -> pairs [stride / 2][keys][2].
// `keys` is a multiple of 32.
void pack_columns(Pieces rows, int64_t keys, int64_t stride, Pieces out);

// Right operand from its rows: values[k][n] (row distance ld), k < count, zeros for count <= k < depth ->
// pairs [depth / 2][stride][2], with zeros behind column n. depth and stride are multiples of 32.
void pack_rows(const float* values, int64_t ld, int64_t count, int64_t depth, int64_t n, int64_t stride, Pieces out);

// c[m, n] (+)= a[m, depth] * b[depth, n]; a row-major with row distance depth, b packed, n and depth multiples of 32,
// c with row distance ldc. m is rounded up to kRowBlock.
void multiply(int64_t m, int64_t n, int64_t depth, Pieces a, Pieces b, float* c, int64_t ldc, bool accumulate);

// Holds the tile registers of this thread ready for multiply().
class TileScope {
 public:
  TileScope();
  ~TileScope();
  TileScope(const TileScope&) = delete;
  TileScope& operator=(const TileScope&) = delete;
};

}  // namespace lantern::split_amx
