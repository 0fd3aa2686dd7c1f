// Multi-query attention in the latent space, for latents of 512 values with 64 rotated ones. A block takes kHeads heads
// of one token and a run of key tiles; a second kernel joins the runs where there are several (mla_splits.h).
//
// For each tile of 64 keys: S = Q K^T, the softmax's weights P as bf16 into shared memory, O += P V. The rows of a tile
// are keys and values at once. All eight warps share both products: S by heads and keys, O by heads and columns. In
// shared memory a row's pieces of 16 bytes are permuted by its number (swizzled()), so that reading eight rows at one
// column meets no bank twice. No result depends on kHeads: sums over keys are kept for each eight keys apart until the
// end, and joined in their order. Hopper has a kernel of its own for many heads, of the same sums.
#include "attention/cuda_launches.h"
#include "attention/fp8_rows.cuh"
#include "attention/mla_decode_tile.cuh"
#include "attention/mla_tile.cuh"
#include "device/cuda/launch.cuh"

namespace lantern::cuda {
namespace {

constexpr int kWarps = 8;
constexpr unsigned kThreads = kWarps * kWarp;
constexpr int kKeys = kMlaKeyTile;
constexpr int kRank = kMlaRank;
constexpr int kRowPieces = kMlaPieces;
constexpr int kRowBytes = kMlaRowBytes;
constexpr int kWeightBytes = kMlaWeightBytes;
constexpr int kFp8RowBytes = kMlaFp8RowBytes;

// Where piece `piece` of row `row` lies in a tile of rows of `row_bytes`.
__device__ uint32_t swizzled(int row, int piece, int row_bytes) {
  return static_cast<uint32_t>(row * row_bytes + ((piece ^ (row & 7)) << 4));
}

template <int kHeads, bool kFp8>
using Layout = MlaTileLayout<kHeads, kFp8>;

// How the warps share out heads, keys and columns.
template <int kHeads>
struct Shares {
  static constexpr int kRowTiles = kHeads >= 32 ? 2 : 1;         // of 16 heads, for each warp
  static constexpr int kHeadGroups = kHeads / (16 * kRowTiles);  // 1 or 2
  static constexpr int kOthers = kWarps / kHeadGroups;           // warps that share the same heads
  static constexpr int kKeyTiles = kKeys / (8 * kOthers);        // of 8 keys
  static constexpr int kColumnTiles = kRank / (8 * kOthers);     // of 8 columns
};

// Brings rows on their way, four threads for each: the thread's is of key `key`, found at `entry`; keys behind the last
// are zeros.
template <bool kFp8>
__device__ void copy_rows(const MlaDecodeParams& p, int32_t keys, int32_t key, int32_t entry, uint32_t to) {
  const auto row = static_cast<int>(threadIdx.x / 4), part = static_cast<int>(threadIdx.x % 4);
  const bool real = key < keys;
  const std::byte* from = real ? mla_key_row(p, key, entry) : p.cache.data.get();
  constexpr int kPieces = kFp8 ? kFp8RowBytes / 16 : kRowPieces;
#pragma unroll
  for (int piece = part; piece < kPieces; piece += 4) {
    const uint32_t at = kFp8 ? static_cast<uint32_t>(row * kFp8RowBytes + piece * 16) : swizzled(row, piece, kRowBytes);
    ptx::copy_16(to + at, real ? from + piece * 16 : from, real);
  }
}

// FP8 rows to rows of bf16. Four threads for each row, a group of one scale each.
__device__ void widen_rows(const std::byte* raw, std::byte* tile) {
  const auto row = static_cast<int>(threadIdx.x / 4), group = static_cast<int>(threadIdx.x % 4);
  const std::byte* from = raw + row * kFp8RowBytes;
  const float scale = *reinterpret_cast<const float*>(from + kRank + 4 * group);
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int piece = (i + group) & 7;  // neighbours write to different banks
    const uint4 codes = *reinterpret_cast<const uint4*>(from + group * kFp8ScaleGroup + piece * 16);
    uint4 pieces[2];
    widen_piece(codes, scale, pieces);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      *reinterpret_cast<uint4*>(tile + swizzled(row, group * 16 + 2 * piece + half, kRowBytes)) = pieces[half];
    }
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int piece = 2 * group + i;
    *reinterpret_cast<uint4*>(tile + swizzled(row, kRank / 8 + piece, kRowBytes)) =
        *reinterpret_cast<const uint4*>(from + kRank + 16 + piece * 16);
  }
}

// 16 rows from `row` on and the pieces `piece`, `piece` + 1, as the first operand of a product.
__device__ void load_operand(uint32_t (&a)[4], uint32_t base, int row, int piece, int row_bytes) {
  const auto lane = static_cast<int>(threadIdx.x % kWarp);
  ptx::load_matrices(a, base + swizzled(row + lane % 16, piece + lane / 16, row_bytes));
}

template <int kHeads, bool kFp8>
__global__ void __launch_bounds__(kThreads, 1)
    mla_decode_tile_kernel(MlaDecodeParams p, MlaParts s, int32_t first_token) {
  ptx::begin_overlapped();
  using L = Layout<kHeads, kFp8>;
  using Share = Shares<kHeads>;
  constexpr int kRowTiles = Share::kRowTiles, kKeyTiles = Share::kKeyTiles, kColumnTiles = Share::kColumnTiles;
  extern __shared__ __align__(128) std::byte memory[];
  const int32_t first_head = static_cast<int32_t>(blockIdx.x) * kHeads, split = static_cast<int32_t>(blockIdx.z);
  const int64_t t = first_token + static_cast<int32_t>(blockIdx.y);
  const int32_t keys = mla_key_count(p, t);
  const MlaSplits splits = mla_splits(keys);
  if (split >= splits.count) return;
  const int32_t all_tiles = (keys + kKeys - 1) / kKeys;
  const int32_t begin = split * splits.tiles, end = min(all_tiles, begin + splits.tiles);

  const uint32_t base = ptx::shared_address(memory);
  const MlaKeyEntries entries(p, t);
  // The thread's key of the tile that is copied next, and where it is found.
  int32_t key = begin * kKeys + static_cast<int32_t>(threadIdx.x / 4);
  const int32_t last_key = min(keys, end * kKeys);
  int32_t entry = key < last_key ? entries.at(key) : 0;
  const auto copy_next = [&](uint32_t to) {
    if (key / kKeys < end) copy_rows<kFp8>(p, keys, key, entry, to);
    ptx::end_copy_group();
    key += kKeys;
    entry = key < last_key ? entries.at(key) : 0;
  };
#pragma unroll
  for (int i = 0; i < L::kAhead; ++i) copy_next(base + (kFp8 ? L::kOther + i * L::kOtherBytes : L::kTile));
  load_queries<kHeads, static_cast<int>(kThreads)>(
      p, t, first_head, [&](int row, int piece) { return memory + L::kQuery + swizzled(row, piece, kRowBytes); });

  const auto lane = static_cast<int>(threadIdx.x % kWarp), warp = static_cast<int>(threadIdx.x / kWarp);
  const int g = lane / 4, c = lane % 4;
  const int first_row = warp / Share::kOthers * 16 * kRowTiles, share = warp % Share::kOthers;
  float* const maxima = reinterpret_cast<float*>(memory + L::kMaxima);
  const float to_log2 = p.scale * 1.4426950408889634f;

  float out[kRowTiles][kColumnTiles][4] = {};
  float largest[kRowTiles][2], sums[kRowTiles][2][kKeyTiles] = {};
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) largest[m][0] = largest[m][1] = -INFINITY;

  // 16 heads' queries stay in registers, as the first operands of all steps.
  constexpr bool kKeepQueries = kRowTiles == 1;
  constexpr int kSteps = kRowPieces / 2;
  uint32_t queries[kKeepQueries ? kSteps : 1][4];
  if constexpr (kKeepQueries) {
    __syncthreads();
#pragma unroll
    for (int step = 0; step < kSteps; ++step) load_operand(queries[step], base + L::kQuery, 0, 2 * step, kRowBytes);
  }

  for (int32_t tile = begin; tile < end; ++tile) {
    uint32_t rows = base + L::kTile;
    ptx::wait_for_copies<L::kAhead - 1>();
    __syncthreads();  // the rows are there, and nobody reads the last tile's any more
    if constexpr (kFp8) {
      const int other = L::kOther + (tile - begin) % L::kAhead * L::kOtherBytes;
      widen_rows(memory + other, memory + L::kTile);
      __syncthreads();
      copy_next(base + static_cast<uint32_t>(other));
    } else {
      const bool odd = (tile - begin) % 2 != 0;
      rows = base + (odd ? L::kOther : L::kTile);
      copy_next(base + (odd ? L::kTile : L::kOther));
    }

    // Scores of the warp's heads and keys.
    float scores[kRowTiles][kKeyTiles][4] = {};
    const int first_key = share * 8 * kKeyTiles;
#pragma unroll(kKeepQueries ? kSteps / 2 : 4)
    for (int step = 0; step < kSteps; step += 2) {
      // Of two steps of 16 columns: b[i][..] is step i's.
      uint32_t b[2][kKeyTiles][2];
      if constexpr (kKeyTiles == 2) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          uint32_t r[4];
          ptx::load_matrices(
              r, rows + swizzled(first_key + lane % 8 + lane / 16 * 8, 2 * (step + i) + lane / 8 % 2, kRowBytes));
          b[i][0][0] = r[0];
          b[i][0][1] = r[1];
          b[i][1][0] = r[2];
          b[i][1][1] = r[3];
        }
      } else {
        uint32_t r[4];
        ptx::load_matrices(r, rows + swizzled(first_key + lane % 8, 2 * step + lane / 8, kRowBytes));
        b[0][0][0] = r[0];
        b[0][0][1] = r[1];
        b[1][0][0] = r[2];
        b[1][0][1] = r[3];
      }
#pragma unroll
      for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int m = 0; m < kRowTiles; ++m) {
          if constexpr (kKeepQueries) {
#pragma unroll
            for (int n = 0; n < kKeyTiles; ++n) ptx::mma_bf16(scores[m][n], queries[step + i], b[i][n]);
          } else {
            uint32_t a[4];
            load_operand(a, base + L::kQuery, first_row + 16 * m, 2 * (step + i), kRowBytes);
#pragma unroll
            for (int n = 0; n < kKeyTiles; ++n) ptx::mma_bf16(scores[m][n], a, b[i][n]);
          }
        }
      }
    }

    // Their maxima over the tile: the warp's own, then all of those that share the heads.
    if (tile == all_tiles - 1) {
#pragma unroll
      for (int n = 0; n < kKeyTiles; ++n) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          if (tile * kKeys + first_key + 8 * n + 2 * c + j % 2 < keys) continue;
#pragma unroll
          for (int m = 0; m < kRowTiles; ++m) scores[m][n][j] = -INFINITY;
        }
      }
    }
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float most = -INFINITY;
#pragma unroll
        for (int n = 0; n < kKeyTiles; ++n) {
          most = fmaxf(most, fmaxf(scores[m][n][2 * half], scores[m][n][2 * half + 1]));
        }
        most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
        most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
        if (c == 0) maxima[share * kHeads + first_row + 16 * m + 8 * half + g] = most;
      }
    }
    __syncthreads();

#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = first_row + 16 * m + 8 * half + g;
        float most = largest[m][half];
#pragma unroll
        for (int w = 0; w < Share::kOthers; ++w) most = fmaxf(most, maxima[w * kHeads + row]);
        const auto [origin, factor] = softmax_step(largest[m][half], most, to_log2);
        largest[m][half] = most;
#pragma unroll
        for (int n = 0; n < kKeyTiles; ++n) {
          const float low = ptx::exp2_flushed(__fmaf_rn(scores[m][n][2 * half], to_log2, -origin));
          const float high = ptx::exp2_flushed(__fmaf_rn(scores[m][n][2 * half + 1], to_log2, -origin));
          sums[m][half][n] = __fmaf_rn(sums[m][half][n], factor, low + high);
          *reinterpret_cast<uint32_t*>(memory + L::kWeights + swizzled(row, share * kKeyTiles + n, kWeightBytes) +
                                       4 * c) = ptx::pack_bf16(low, high);
        }
        if (factor != 1.0f) {
#pragma unroll
          for (int n = 0; n < kColumnTiles; ++n) {
            out[m][n][2 * half] *= factor;
            out[m][n][2 * half + 1] *= factor;
          }
        }
      }
    }
    __syncthreads();

    // The warp's columns of the result.
#pragma unroll
    for (int step = 0; step < kKeys / 16; ++step) {
      uint32_t a[kRowTiles][4];
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
        load_operand(a[m], base + L::kWeights, first_row + 16 * m, 2 * step, kWeightBytes);
      }
#pragma unroll
      for (int n = 0; n < kColumnTiles; n += 2) {
        uint32_t r[4];
        ptx::load_matrices_transposed(
            r, rows + swizzled(16 * step + lane % 16, share * kColumnTiles + n + lane / 16, kRowBytes));
#pragma unroll
        for (int m = 0; m < kRowTiles; ++m) {
          ptx::mma_bf16(out[m][n], a[m], {r[0], r[1]});
          ptx::mma_bf16(out[m][n + 1], a[m], {r[2], r[3]});
        }
      }
    }
  }

  // The sums of the weights: lanes in a butterfly, then the eights of keys in their order.
  __syncthreads();
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int n = 0; n < kKeyTiles; ++n) {
        float sum = sums[m][half][n];
        sum += __shfl_xor_sync(~0u, sum, 1);
        sum += __shfl_xor_sync(~0u, sum, 2);
        if (c == 0) maxima[(share * kKeyTiles + n) * kHeads + first_row + 16 * m + 8 * half + g] = sum;
      }
    }
  }
  __syncthreads();
  const bool whole = splits.count == 1;
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = first_row + 16 * m + 8 * half + g;
      const int32_t h = first_head + row;
      float sum = 0;
#pragma unroll
      for (int w = 0; w < kKeys / 8; ++w) sum += maxima[w * kHeads + row];
      if (h >= p.heads) continue;
      const float inverse = keys > 0 ? 1.0f / sum : 0.0f;
      const int64_t place = (int64_t{blockIdx.y} * s.splits + split) * p.heads + h;
      float* to = whole ? p.out.get() + (t * p.heads + h) * kRank : s.out + place * kRank;
#pragma unroll
      for (int n = 0; n < kColumnTiles; ++n) {
        *reinterpret_cast<float2*>(to + (share * kColumnTiles + n) * 8 + 2 * c) =
            make_float2(out[m][n][2 * half] * inverse, out[m][n][2 * half + 1] * inverse);
      }
      if (share != 0 || c != 0) continue;
      const float lse = keys > 0 ? __fmaf_rn(largest[m][half], p.scale, logf(sum)) : -INFINITY;
      if (!whole) s.lse[place] = lse;
      if (whole && p.lse) p.lse[t * p.heads + h] = lse;
    }
  }
}

// Joins the splits of a token's head, in order; a block for each.
__global__ void join_splits_kernel(MlaDecodeParams p, MlaParts s, int32_t first_token) {
  ptx::begin_overlapped();
  const int64_t h = blockIdx.x, t = first_token + static_cast<int32_t>(blockIdx.y);
  const int32_t count = mla_splits(mla_key_count(p, t)).count;
  if (count == 1) return;
  const int64_t first = int64_t{blockIdx.y} * s.splits * p.heads + h;
  float lses[kMlaMaxSplits], largest = -INFINITY, sum = 0;
#pragma unroll
  for (int i = 0; i < kMlaMaxSplits; ++i) {
    lses[i] = i < count ? s.lse[first + int64_t{i} * p.heads] : -INFINITY;
    largest = fmaxf(largest, lses[i]);
  }
#pragma unroll
  for (int i = 0; i < kMlaMaxSplits; ++i) sum += i < count ? expf(lses[i] - largest) : 0.0f;
  float4 out{};
#pragma unroll
  for (int i = 0; i < kMlaMaxSplits; ++i) {
    if (i >= count) break;
    const float weight = expf(lses[i] - largest) / sum;
    const float4 part =
        *reinterpret_cast<const float4*>(s.out + (first + int64_t{i} * p.heads) * kRank + 4 * threadIdx.x);
    out.x = __fmaf_rn(weight, part.x, out.x);
    out.y = __fmaf_rn(weight, part.y, out.y);
    out.z = __fmaf_rn(weight, part.z, out.z);
    out.w = __fmaf_rn(weight, part.w, out.w);
  }
  *reinterpret_cast<float4*>(p.out.get() + (t * p.heads + h) * kRank + 4 * threadIdx.x) = out;
  if (p.lse && threadIdx.x == 0) p.lse[t * p.heads + h] = largest + logf(sum);
}

template <int kHeads, bool kFp8>
void launch_tiles(void* stream, const MlaDecodeParams& p, const MlaParts& s, int32_t first, int32_t tokens) {
  launch_overlapped(stream, "mla_decode tiles", &mla_decode_tile_kernel<kHeads, kFp8>,
                    dim3(blocks_for(p.heads, kHeads), static_cast<unsigned>(tokens), static_cast<unsigned>(s.splits)),
                    kThreads, Layout<kHeads, kFp8>::kBytes, p, s, first);
}
// Few tokens are spread over more blocks.
template <bool kFp8>
void launch_tiles(void* stream, const MlaDecodeParams& p, const MlaParts& s, int32_t first, int32_t tokens) {
  if (p.heads <= 16 || p.step.tokens <= 2) {
    launch_tiles<16, kFp8>(stream, p, s, first, tokens);
  } else if (p.heads <= kMlaHeadsOfHalfTile || p.step.tokens <= kMlaSpreadTokens) {
    launch_tiles<32, kFp8>(stream, p, s, first, tokens);
  } else {
    launch_tiles<64, kFp8>(stream, p, s, first, tokens);
  }
}

}  // namespace

void mla_decode_tiles(void* stream, const MlaDecodeParams& p, bool warpgroups) {
  const int32_t most_keys = p.selection.counts ? p.selection.top_k : p.step.block_table_stride * p.step.block_size;
  MlaParts s{};
  // The most that any number of keys up to this has: mla_splits() does not grow steadily.
  s.splits = std::min(kMlaMaxSplits, (most_keys + kKeys * kMlaTilesPerSplit - 1) / (kKeys * kMlaTilesPerSplit));
  s.splits = std::max(1, s.splits);
  const int64_t room = p.scratch_bytes / 4 / mla_split_floats(s.splits, p.heads, kRank);
  CHECK(s.splits == 1 || room > 0, "mla_decode of {} heads has {} bytes of scratch and needs {}", p.heads,
        p.scratch_bytes, cuda_mla_decode_scratch_bytes(p.step.tokens, p.heads, kRank));
  constexpr int64_t kMostTokens = 65535;  // of a grid
  const auto pass =
      static_cast<int32_t>(std::min<int64_t>({s.splits == 1 ? kMostTokens : room, kMostTokens, p.step.tokens}));
  s.out = reinterpret_cast<float*>(p.scratch.get());
  s.lse = s.out + int64_t{pass} * s.splits * p.heads * kRank;
  for (int32_t first = 0; first < p.step.tokens; first += pass) {
    const int32_t tokens = std::min(pass, p.step.tokens - first);
    if (warpgroups) {
      mla_decode_sm90(stream, p, s, first, tokens);
    } else {
      p.cache.layout == LatentLayout::kFp8 ? launch_tiles<true>(stream, p, s, first, tokens)
                                           : launch_tiles<false>(stream, p, s, first, tokens);
    }
    if (s.splits == 1) continue;
    launch_overlapped(stream, "mla_decode join", &join_splits_kernel,
                      dim3(static_cast<unsigned>(p.heads), static_cast<unsigned>(tokens)), kRank / 4, 0, p, s, first);
  }
}

}  // namespace lantern::cuda
