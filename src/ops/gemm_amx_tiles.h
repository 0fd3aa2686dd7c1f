// Tile registers as the AMX kernel uses them: C 0-3 ([A][B]), A 4-5, B 6-7. Included by files built for AMX only.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/amx_tiles.h"

namespace lantern::amx {

constexpr int64_t kTileBytes = 1024;

// Shapes of the tile registers of this thread, for the life of the object.
class TileConfig {
 public:
  TileConfig() = default;
  ~TileConfig() { release_tiles(); }
  TileConfig(const TileConfig&) = delete;
  TileConfig& operator=(const TileConfig&) = delete;

  // rows0 and rows1 outputs in the two A tiles (rows1 may be 0), `width` rows of x in each B tile.
  void set(int64_t rows0, int64_t rows1, int64_t width) {
    if (rows0 == rows_[0] && rows1 == rows_[1]) return;
    rows_[0] = rows0;
    rows_[1] = rows1;
    TileShapes shapes;
    const auto shape = [&shapes](int tile, int64_t rows, int64_t width_bytes) {
      if (rows > 0) shapes.set(tile, rows, width_bytes);
    };
    for (int tile = 0; tile < 4; ++tile) shape(tile, tile < 2 ? rows0 : rows1, width * 4);
    shape(4, rows0, 64);
    shape(5, rows1, 64);
    shape(6, 16, width * 4);
    shape(7, 16, width * 4);
    load_tile_shapes(shapes);
  }

 private:
  int64_t rows_[2] = {-1, -1};
};

struct Operands {
  const std::byte* a0 = nullptr;
  const std::byte* a1 = nullptr;
  int64_t a_stride = 0;  // bytes between the rows of an A tile
  int64_t a_step = 0;    // bytes to the next A tile
  const std::byte* b0 = nullptr;
  const std::byte* b1 = nullptr;
  int64_t b_stride = 0;
  int64_t b_step = 0;
};

template <bool kTwoA, bool kTwoB>
inline void accumulate_tiles(const Operands& o, int64_t steps) {
  const std::byte *a0 = o.a0, *a1 = o.a1, *b0 = o.b0, *b1 = o.b1;
  for (int64_t i = 0; i < steps; ++i) {
    tile_load<6>(b0, o.b_stride);
    tile_load<4>(a0, o.a_stride);
    tile_multiply<0, 4, 6>();
    if constexpr (kTwoA) {
      tile_load<5>(a1, o.a_stride);
      tile_multiply<2, 5, 6>();
    }
    if constexpr (kTwoB) {
      tile_load<7>(b1, o.b_stride);
      tile_multiply<1, 4, 7>();
      if constexpr (kTwoA) tile_multiply<3, 5, 7>();
    }
    a0 += o.a_step;
    a1 += o.a_step;
    b0 += o.b_step;
    b1 += o.b_step;
  }
}

// C += A * B over `steps` tiles of 32 columns, with one or two A tiles and one or two B tiles.
inline void accumulate(const Operands& o, int64_t steps, bool two_a, bool two_b) {
  if (two_a) {
    two_b ? accumulate_tiles<true, true>(o, steps) : accumulate_tiles<true, false>(o, steps);
  } else {
    two_b ? accumulate_tiles<false, true>(o, steps) : accumulate_tiles<false, false>(o, steps);
  }
}

inline void zero(bool two_a, bool two_b) {
  tile_zero<0>();
  if (two_b) tile_zero<1>();
  if (two_a) tile_zero<2>();
  if (two_a && two_b) tile_zero<3>();
}

// C tiles from and to c[4][256].
inline void load(const float* c, int64_t stride, bool two_a, bool two_b) {
  tile_load<0>(c, stride);
  if (two_b) tile_load<1>(c + 256, stride);
  if (two_a) tile_load<2>(c + 512, stride);
  if (two_a && two_b) tile_load<3>(c + 768, stride);
}
inline void store(float* c, int64_t stride, bool two_a, bool two_b) {
  tile_store<0>(c, stride);
  if (two_b) tile_store<1>(c + 256, stride);
  if (two_a) tile_store<2>(c + 512, stride);
  if (two_a && two_b) tile_store<3>(c + 768, stride);
}

}  // namespace lantern::amx
