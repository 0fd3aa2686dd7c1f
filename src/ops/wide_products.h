// Matrix products of many rows on Hopper's warpgroup products, with the sums of WeightTile, bit by bit. For the .cu
// files of this room.
#pragma once

#include "ops/moe.h"

namespace lantern::cuda {

// Rows of a tile: the weight is read once for so many.
constexpr int kWideTileRows = 128, kSmallWideTileRows = 64;
constexpr int wide_tile_rows(int64_t rows) { return rows > kSmallWideTileRows ? kWideTileRows : kSmallWideTileRows; }

// Tiles of the rows of a launch: of all rows in order, or of the rows of experts, each of which begins with an eight of
// its own in arranged rows (arranged_rows.cuh).
struct WideTiles {
  int64_t rows = 0;
  RowCount real_rows{};
  int tile_rows = kWideTileRows;
  const ExpertWeights* experts = nullptr;  // null: all rows in order
  const int32_t* tile_expert = nullptr;    // [tiles]; -1: no such tile
  const int32_t* tile_row = nullptr;       // [tiles]: its first row
  const int32_t* tile_eight = nullptr;     // [tiles]: its first eight of arranged rows
  const int32_t* expert_begin = nullptr;   // [experts + 1]: first row of each
  unsigned tiles = 0;
};

// y[row] (+)= W x[row].
struct WideLinearParams {
  WideTiles tiles;
  QuantizedMatrix weight;  // of the first expert, where there are experts
  const std::byte* x;      // arranged
  float* y;
  int64_t y_stride;
  bool accumulate;
};
void wide_linear(void* stream, const WideLinearParams& p);

// activation[row] = silu(gate x[row]) * (up x[row]), arranged.
struct WideGateUpParams {
  WideTiles tiles;
  QuantizedMatrix gate, up;  // of the first expert, where there are experts
  const std::byte* x;        // arranged
  std::byte* activation;
};
void wide_gate_up(void* stream, const WideGateUpParams& p);

}  // namespace lantern::cuda
