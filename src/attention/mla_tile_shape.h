// The shape that the tensor cores' kernels of the absorbed attention have, and what a block of mla_decode_tile_cuda.cu
// keeps in shared memory: for the kernels, and for the choice whether a GPU runs them.
#pragma once

#include "attention/cache_layout.h"
#include "attention/mla_splits.h"

namespace lantern::cuda {

// Up to so many heads, or so many tokens, blocks of the full 64 heads are not taken.
constexpr int32_t kMlaHeadsOfHalfTile = 32;
constexpr int32_t kMlaSpreadTokens = 8;

constexpr int kMlaRank = 512;
constexpr int kMlaRope = 64;
constexpr int kMlaPieces = (kMlaRank + kMlaRope) * 2 / 16;  // pieces of 16 bytes of a row of bf16
constexpr int kMlaRowBytes = kMlaPieces * 16;
constexpr int kMlaFp8RowBytes = kMlaRank + 4 * (kMlaRank / kFp8ScaleGroup) + 2 * kMlaRope;
static_assert(kMlaFp8RowBytes % 16 == 0);
constexpr int kMlaWeightBytes = kMlaKeyTile * 2;  // a row of the softmax's weights

template <int kHeads, bool kFp8>
struct MlaTileLayout {
  static constexpr int kQuery = 0;
  static constexpr int kTile = kQuery + kHeads * kMlaRowBytes;
  static constexpr int kTileBytes = kMlaKeyTile * kMlaRowBytes;
  // bf16 rows are copied to the other tile while one is worked on; FP8 rows come as they are, so many tiles ahead as
  // there is room for, and are widened.
  static constexpr int kOther = kTile + kTileBytes;
  static constexpr int kOtherBytes = kFp8 ? kMlaKeyTile * kMlaFp8RowBytes : kTileBytes;
  static constexpr int kAhead = !kFp8 || kHeads > 32 ? 1 : kHeads > 16 ? 2 : 3;
  static constexpr int kWeights = kOther + kAhead * kOtherBytes;
  static constexpr int kMaxima = kWeights + kHeads * kMlaWeightBytes;  // [8][kHeads] floats
  static constexpr int kBytes = kMaxima + 8 * kHeads * 4;
};
static_assert(MlaTileLayout<64, false>::kBytes <= 227 << 10 && MlaTileLayout<16, true>::kBytes <= 227 << 10);

}  // namespace lantern::cuda
