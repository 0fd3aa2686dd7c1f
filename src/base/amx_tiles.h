// The eight tile registers of AMX. Included by files built for AMX only, to be run only where missing_amx() is null.
// The compiler's own intrinsics do not say that loads read memory, so that stores before them may come too late.
#pragma once

#include <cstdint>

namespace lantern::amx {

template <int kTile>
inline void tile_load(const void* from, int64_t stride) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride), "i"(kTile) : "memory");
}
template <int kTile>
inline void tile_store(void* to, int64_t stride) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(stride), "i"(kTile) : "memory");
}
template <int kTile>
inline void tile_zero() {
  asm volatile("tilezero %%tmm%c0" ::"i"(kTile));
}
// C += A * B, pairs of bf16.
template <int kC, int kA, int kB>
inline void tile_multiply() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kC), "i"(kA), "i"(kB));
}

// Shapes of the tile registers: the operand of LDTILECFG (Intel SDM volume 1, 18.3).
struct alignas(64) TileShapes {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};  // at most 64
  uint8_t rows[16] = {};        // at most 16

  void set(int tile, int64_t row_count, int64_t bytes) {
    rows[tile] = static_cast<uint8_t>(row_count);
    row_bytes[tile] = static_cast<uint16_t>(bytes);
  }
};
static_assert(sizeof(TileShapes) == 64);

// Of the calling thread; clears the registers.
inline void load_tile_shapes(const TileShapes& shapes) { asm volatile("ldtilecfg (%0)" ::"r"(&shapes) : "memory"); }
inline void release_tiles() { asm volatile("tilerelease"); }

}  // namespace lantern::amx
