// The absorbed attention of 64 heads of one token on Hopper's warpgroup products; the same sums as the tiles of
// mla_decode_tile_cuda.cu, bit by bit.
//
// Four warpgroups: two bring key tiles of 64 rows into shared memory as bf16, two buffers in turn; the other two each
// work out the scores of half of a tile's keys, hand each other the softmax's weights, and have half of the result's
// columns in registers. A tile lies in chunks of 64 columns, as the products
// read them: as keys with K along their rows, as values with the rows along K. Two blocks that have heads of the same
// token form a cluster where rows are FP8: each widens half of them, once, and stores them into both.
#include "attention/mla_tile.cuh"
#include "device/cuda/block_reduce.cuh"
#include "device/cuda/launch.cuh"

namespace lantern::cuda {
namespace {

constexpr int kHeads = 64;
constexpr int kGroup = 128;  // threads of a warpgroup
constexpr unsigned kThreads = 4 * kGroup;
constexpr int kChunks = kMlaPieces / 8;  // of 64 columns
constexpr int kChunkBytes = 64 * 128;
constexpr int kTileBytes = kChunks * kChunkBytes;
// In shared memory: queries, two tiles, the softmax's weights, largest scores, barriers, and what it takes to begin at
// a multiple of 1024.
constexpr int kTiles = kTileBytes;
constexpr int kWeights = kTiles + 2 * kTileBytes;
constexpr int kMaxima = kWeights + kHeads * 128;
constexpr int kBarriers = kMaxima + 2 * kHeads * 4;
constexpr int kBytes = kBarriers + 4 * 8 + 1024;
static_assert(kBytes <= 227 << 10);
#ifdef __CUDA_ARCH_FEAT_SM90_ALL

constexpr int kKeys = kMlaKeyTile;
constexpr int kRank = kMlaRank;
constexpr int kScoreTiles = kKeys / 2 / 8, kColumns = kRank / 2, kHalfTiles = kColumns / 2 / 8;
constexpr uint32_t kWarpsOfTwo = 2 * kGroup / kWarp;  // warpgroups
// Registers a thread; 128 are launched with, four times.
constexpr int kLoaderRegisters = 72, kWorkerRegisters = 184;

// Where piece `piece` of row `row` lies in a tile.
__device__ int place_of(int row, int piece) { return piece / 8 * kChunkBytes + row * 128 + ((piece ^ row) & 7) * 16; }

struct Barriers {
  uint32_t full[2], empty[2];
};

// Where a thread stores into a tile: in this block and, of a pair, in the other one.
template <bool kPair>
struct TilePlace {
  uint32_t own, other, other_full;

  __device__ void store(uint32_t at, const uint4& value) const {
    ptx::store_shared(own + at, value);
    if constexpr (kPair) ptx::store_in_cluster(other + at, value, other_full);
  }
};

// A thread's share of an FP8 row: the threads of a warp take four rows, eight threads each. move() stores it at a row
// of a tile that begins at `to`, and puts the loads of the next on their way.
struct Fp8Share {
  // Eight stores at a time are two rows' every second piece: that meets no bank twice.
  static __device__ int row(int lane) { return (lane >> 4) * 2 + (lane >> 2) % 2; }
  static __device__ int part(int lane) { return (lane >> 3) % 2 * 4 + lane % 4; }

  uint4 codes[4], rotated;  // 16 codes of each scale
  float4 scales;

  __device__ void load(const uint4* from, int part) {
#pragma unroll
    for (int i = 0; i < 4; ++i) codes[i] = from[8 * i];
    load_rest(from, part);
  }
  __device__ void load_rest(const uint4* from, int part) {
    scales = *reinterpret_cast<const float4*>(from + kRank / 16 - part);
    rotated = from[kRank / 16 + 1];
  }
  template <bool kPair>
  __device__ void move(const uint4* next, int row, int part, TilePlace<kPair> to) {
    const auto low = static_cast<uint32_t>(place_of(row, 2 * part)), high = low ^ 16;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      uint4 pieces[2];
      widen_piece(codes[i], (&scales.x)[i], pieces);
      codes[i] = next[8 * i];
      to.store(low + static_cast<uint32_t>(2 * i * kChunkBytes), pieces[0]);
      to.store(high + static_cast<uint32_t>(2 * i * kChunkBytes), pieces[1]);
    }
    to.store(static_cast<uint32_t>(place_of(row, kRank / 8 + part)), rotated);
    load_rest(next, part);
  }
};

// By the two warpgroups that load. FP8 rows come in halves of a tile, which a pair of blocks shares and one alone has
// in turn. While a half is stored the next one is on its way, and where the one behind lies is asked for.
template <bool kPair>
__device__ void load_fp8_tiles(const MlaDecodeParams& p, int64_t t, int32_t keys, int32_t begin, int32_t end,
                               uint32_t tiles, const Barriers& barriers) {
  constexpr int kHalves = kPair ? 1 : 2, kHalfRows = kKeys / 2;
  const auto thread = static_cast<int>(threadIdx.x) - 2 * kGroup, lane = thread % static_cast<int>(kWarp);
  const int part = Fp8Share::part(lane), row = thread / static_cast<int>(kWarp) * 4 + Fp8Share::row(lane);
  const auto rank = static_cast<int>(kPair ? ptx::cluster_rank() : 0);
  const auto in_other = [&](uint32_t address) {
    return kPair ? ptx::cluster_address(address, static_cast<uint32_t>(rank ^ 1)) : 0;
  };
  const uint32_t other = in_other(tiles);
  const MlaKeyEntries entries(p, t);
  if (begin == end) return;
  // Behind the last key it comes again, with a weight of 0.
  const int32_t last = min(keys, end * kKeys) - 1;
  const auto row_of = [&](int32_t key, int32_t entry) {
    return reinterpret_cast<const uint4*>(mla_key_row(p, min(key, last), entry)) + part;
  };
  const auto entry_of = [&](int32_t key) { return entries.at(min(key, last)); };
  constexpr int32_t kStep = kKeys / kHalves;
  int32_t key = begin * kKeys + rank * kHalfRows + row;
  Fp8Share share;
  share.load(row_of(key, entry_of(key)), part);
  int32_t entry = entry_of(key + kStep);
  for (int32_t half = 0; half < (end - begin) * kHalves; ++half) {
    key += kStep;
    const uint4* const next = row_of(key, entry);
    entry = entry_of(key + kStep);
    const int buffer = half / kHalves % 2, in_tile = (kPair ? rank : half % 2) * kHalfRows + row;
    ptx::wait_barrier(barriers.empty[buffer], (half / kHalves / 2 + 1) % 2);
    const uint32_t full = barriers.full[buffer];
    if (kPair && thread == 0) ptx::arrive_and_expect(full, kHalfRows * kMlaPieces * 16);
    const auto place = static_cast<uint32_t>(buffer * kTileBytes);
    share.move<kPair>(next, in_tile, part, {tiles + place, other + place, in_other(full)});
    ptx::fence_shared_for_products();
    __syncwarp();
    if (lane == 0 && (kPair || half % 2 == 1)) ptx::arrive(full);
  }
}

// bf16 rows are copied as they are.
__device__ void load_bf16_tiles(const MlaDecodeParams& p, int64_t t, int32_t keys, int32_t begin, int32_t end,
                                uint32_t tiles, const Barriers& barriers) {
  const auto thread = static_cast<int>(threadIdx.x) - 2 * kGroup;
  const int row = thread / 4, part = thread % 4;
  const MlaKeyEntries entries(p, t);
  const auto entry_of = [&](int32_t key) { return key < keys ? entries.at(key) : 0; };
  int32_t key = begin * kKeys + row, entry = entry_of(key);
  for (int32_t tile = 0; tile < end - begin; ++tile, key += kKeys) {
    const int buffer = tile % 2;
    const bool real = key < keys;
    const std::byte* from = real ? mla_key_row(p, key, entry) + part * 16 : p.cache.data.get();
    entry = entry_of(key + kKeys);
    ptx::wait_barrier(barriers.empty[buffer], (tile / 2 + 1) % 2);
    const uint32_t to = tiles + static_cast<uint32_t>(buffer * kTileBytes);
#pragma unroll 6
    for (int i = 0; i < kMlaPieces / 4; ++i) {
      ptx::copy_16(to + static_cast<uint32_t>(place_of(row, 4 * i + part)), real ? from + i * 64 : from, real);
    }
    ptx::end_copy_group();
    ptx::wait_for_copies<0>();
    ptx::fence_shared_for_products();
    __syncwarp();
    if (thread % static_cast<int>(kWarp) == 0) ptx::arrive(barriers.full[buffer]);
  }
}

// One of the two warpgroups that work: the scores of keys [32 half, 32 half + 32) of each tile, and columns [256 half,
// 256 half + 256) of the result, for one split. `done` counts the block's tiles.
template <bool kPair>
__device__ void attend(const MlaDecodeParams& p, const MlaParts& parts, int64_t t, int32_t keys, int32_t split,
                       const MlaSplits& splits, int32_t& done, std::byte* memory, const Barriers& barriers) {
  const auto thread = static_cast<int>(threadIdx.x) % kGroup, half = static_cast<int>(threadIdx.x) / kGroup;
  const int lane = thread % static_cast<int>(kWarp), g = lane / 4, c = lane % 4;
  const int first_row = thread / static_cast<int>(kWarp) * 16;
  const float to_log2 = p.scale * 1.4426950408889634f;
  const int32_t all_tiles = (keys + kKeys - 1) / kKeys;
  const int32_t begin = split * splits.tiles, end = min(all_tiles, begin + splits.tiles);
  const uint32_t base = ptx::shared_address(memory);
  auto* const maxima = reinterpret_cast<float*>(memory + kMaxima);
  float out[2][kHalfTiles * 4] = {};  // of 128 columns each
  float largest[2] = {-INFINITY, -INFINITY}, sums[2][kScoreTiles] = {};
  for (int32_t tile = begin; tile < end; ++tile, ++done) {
    const int buffer = done % 2;
    const uint32_t rows = base + static_cast<uint32_t>(kTiles + buffer * kTileBytes);
    ptx::wait_barrier(barriers.full[buffer], done / 2 % 2);
    if constexpr (kPair) ptx::fence_shared_for_products();  // what the other block stored

    float scores[kScoreTiles * 4] = {};
    ptx::begin_products(scores);
    const uint32_t half_rows = rows + static_cast<uint32_t>(half * (kKeys / 2) * 128);
    // Not unrolled whole: descriptors worked out ahead would take the registers.
#pragma unroll 3
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      const auto at = static_cast<uint32_t>(chunk * kChunkBytes);
#pragma unroll
      for (uint32_t step = 0; step < 4; ++step) {
        ptx::product_64x32(scores, ptx::matrix_descriptor(base + at + 32 * step, 0),
                           ptx::matrix_descriptor(half_rows + at + 32 * step, 0), chunk > 0 || step > 0);
      }
    }
    ptx::end_product_group();
    ptx::wait_for_products(scores);

    if (tile == all_tiles - 1) {
#pragma unroll
      for (int i = 0; i < kScoreTiles * 4; ++i) {
        if (tile * kKeys + half * (kKeys / 2) + i / 4 * 8 + 2 * c + i % 2 >= keys) scores[i] = -INFINITY;
      }
    }
    float most[2];
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      most[side] = fmaxf(scores[2 * side], scores[2 * side + 1]);
#pragma unroll
      for (int n = 1; n < kScoreTiles; ++n) {
        most[side] = fmaxf(most[side], fmaxf(scores[4 * n + 2 * side], scores[4 * n + 2 * side + 1]));
      }
      most[side] = fmaxf(most[side], __shfl_xor_sync(~0u, most[side], 1));
      most[side] = fmaxf(most[side], __shfl_xor_sync(~0u, most[side], 2));
      if (c == 0) maxima[half * kHeads + first_row + 8 * side + g] = most[side];
    }
    ptx::sync_some<1>(2 * kGroup);
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      const int row = first_row + 8 * side + g;
      const float now = fmaxf(largest[side], fmaxf(most[side], maxima[(half ^ 1) * kHeads + row]));
      const auto [origin, factor] = softmax_step(largest[side], now, to_log2);
      largest[side] = now;
#pragma unroll
      for (int n = 0; n < kScoreTiles; ++n) {
        const float low = ptx::exp2_flushed(__fmaf_rn(scores[4 * n + 2 * side], to_log2, -origin));
        const float high = ptx::exp2_flushed(__fmaf_rn(scores[4 * n + 2 * side + 1], to_log2, -origin));
        sums[side][n] = __fmaf_rn(sums[side][n], factor, low + high);
        ptx::store_shared(base + static_cast<uint32_t>(kWeights + place_of(row, half * kScoreTiles + n) + 4 * c),
                          ptx::pack_bf16(low, high));
      }
      if (factor != 1.0f) {
#pragma unroll
        for (int n = 0; n < kHalfTiles; ++n) {
#pragma unroll
          for (auto& columns : out) {
            columns[4 * n + 2 * side] *= factor;
            columns[4 * n + 2 * side + 1] *= factor;
          }
        }
      }
    }
    ptx::sync_some<1>(2 * kGroup);
    uint32_t weights[kKeys / 16][4];
#pragma unroll
    for (int step = 0; step < kKeys / 16; ++step) {
      ptx::load_matrices(weights[step], base + static_cast<uint32_t>(
                                                   kWeights + place_of(first_row + lane % 16, 2 * step + lane / 16)));
    }

    ptx::begin_products(out[0], out[1], weights[0], weights[1], weights[2], weights[3]);
#pragma unroll
    for (int step = 0; step < kKeys / 16; ++step) {
      const uint32_t at = rows + static_cast<uint32_t>(half * (kColumns / 64) * kChunkBytes + step * 16 * 128);
#pragma unroll
      for (uint32_t i = 0; i < 2; ++i) {
        ptx::product_64xn<false>(out[i], weights[step], ptx::matrix_descriptor(at + i * 2 * kChunkBytes, kChunkBytes));
      }
    }
    ptx::end_product_group();
    ptx::wait_for_products(out[0]);
    ptx::wait_for_products(out[1]);
    if (lane != 0) continue;
    ptx::arrive(barriers.empty[buffer]);
    if constexpr (kPair) {
      ptx::arrive_in_cluster(ptx::cluster_address(barriers.empty[buffer], ptx::cluster_rank() ^ 1));
    }
  }

  // The sums of the weights: lanes in a butterfly, then the eights of keys in their order.
  auto* const eights = reinterpret_cast<float*>(memory + kWeights);
  ptx::sync_some<1>(2 * kGroup);
#pragma unroll
  for (int side = 0; side < 2; ++side) {
#pragma unroll
    for (int n = 0; n < kScoreTiles; ++n) {
      float eight = sums[side][n];
      eight += __shfl_xor_sync(~0u, eight, 1);
      eight += __shfl_xor_sync(~0u, eight, 2);
      if (c == 0) eights[(half * kScoreTiles + n) * kHeads + first_row + 8 * side + g] = eight;
    }
  }
  ptx::sync_some<1>(2 * kGroup);
  const bool whole = splits.count == 1;
#pragma unroll
  for (int side = 0; side < 2; ++side) {
    const int row = first_row + 8 * side + g;
    float sum = 0;
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n) sum += eights[n * kHeads + row];
    const int32_t h = static_cast<int32_t>(blockIdx.x) * kHeads + row;
    if (h >= p.heads) continue;
    const float inverse = keys > 0 ? 1.0f / sum : 0.0f;
    const int64_t place = (int64_t{blockIdx.z} * parts.splits + split) * p.heads + h;
    float* to = (whole ? p.out.get() + (t * p.heads + h) * kRank : parts.out + place * kRank) + half * kColumns + 2 * c;
#pragma unroll
    for (int n = 0; n < 2 * kHalfTiles; ++n) {
      const float(&columns)[kHalfTiles * 4] = out[n / kHalfTiles];
      const int at = 4 * (n % kHalfTiles) + 2 * side;
      *reinterpret_cast<float2*>(to + 8 * n) = make_float2(columns[at] * inverse, columns[at + 1] * inverse);
    }
    if (half != 0 || c != 0) continue;
    const float lse = keys > 0 ? __fmaf_rn(largest[side], p.scale, logf(sum)) : -INFINITY;
    if (!whole) parts.lse[place] = lse;
    if (whole && p.lse) p.lse[t * p.heads + h] = lse;
  }
}

#endif

template <bool kFp8, bool kPair>
__global__ void __launch_bounds__(kThreads, 1)
    mla_decode_sm90_kernel(MlaDecodeParams p, MlaParts parts, int32_t first_token, int32_t splits_per_block) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  ptx::begin_overlapped();
  extern __shared__ std::byte unaligned[];
  const int64_t t = first_token + static_cast<int32_t>(blockIdx.z);
  const int32_t keys = mla_key_count(p, t);
  const MlaSplits splits = mla_splits(keys);
  const int32_t first_split = static_cast<int32_t>(blockIdx.y) * splits_per_block;
  if (first_split >= splits.count) return;  // a pair's two alike
  const int32_t last_split = min(splits.count, first_split + splits_per_block);
  const int32_t begin = first_split * splits.tiles;
  const int32_t end = min((keys + kKeys - 1) / kKeys, last_split * splits.tiles);
  std::byte* const memory = unaligned + (1024 - ptx::shared_address(unaligned) % 1024) % 1024;
  const uint32_t base = ptx::shared_address(memory);
  const Barriers barriers{{base + kBarriers, base + kBarriers + 8}, {base + kBarriers + 16, base + kBarriers + 24}};
  if (threadIdx.x == 0) {
    for (int i = 0; i < 2; ++i) {
      ptx::init_barrier(barriers.full[i], kWarpsOfTwo + (kPair ? 1 : 0));
      ptx::init_barrier(barriers.empty[i], kWarpsOfTwo * (kPair ? 2 : 1));
    }
  }
  kPair ? ptx::sync_cluster() : __syncthreads();
  if (threadIdx.x >= 2 * kGroup) {
    ptx::fewer_registers<kLoaderRegisters>();
    if constexpr (kFp8) {
      load_fp8_tiles<kPair>(p, t, keys, begin, end, base + kTiles, barriers);
    } else {
      load_bf16_tiles(p, t, keys, begin, end, base + kTiles, barriers);
    }
  } else {
    ptx::more_registers<kWorkerRegisters>();
    load_queries<kHeads, 2 * kGroup>(p, t, static_cast<int32_t>(blockIdx.x) * kHeads,
                                     [&](int row, int piece) { return memory + place_of(row, piece); });
    ptx::fence_shared_for_products();
    ptx::sync_some<1>(2 * kGroup);
    int32_t done = 0;
    for (int32_t split = first_split; split < last_split; ++split) {
      attend<kPair>(p, parts, t, keys, split, splits, done, memory, barriers);
    }
  }
  if constexpr (kPair) ptx::sync_cluster();  // neither leaves while the other may store into it
#else
  __trap();  // compiled for 9.0 without what only sm_90a has
#endif
}

// How many splits a block takes after each other, which spares it their beginnings: as many as fill the multiprocessors
// best. No result depends on it.
int32_t splits_per_block(int64_t blocks_for_each_split, int32_t splits) {
  constexpr double kBeginning = 0.5;  // of a split's time
  int32_t best = 1;
  double least = 0;
  for (int32_t each = 1; each <= splits; each *= 2) {
    const int64_t blocks = blocks_for_each_split * ((splits + each - 1) / each);
    const double time = static_cast<double>((blocks + multiprocessors() - 1) / multiprocessors()) * (each + kBeginning);
    if (each == 1 || time < least) {
      best = each;
      least = time;
    }
  }
  return best;
}

template <bool kFp8, bool kPair>
void launch(void* stream, const MlaDecodeParams& p, const MlaParts& parts, int32_t first, int32_t tokens) {
  const unsigned groups = blocks_for(p.heads, kHeads);
  const int32_t each = splits_per_block(int64_t{groups} * tokens, parts.splits);
  launch_overlapped_clusters(stream, "mla_decode sm90", &mla_decode_sm90_kernel<kFp8, kPair>,
                             dim3(groups, blocks_for(parts.splits, each), static_cast<unsigned>(tokens)), kThreads,
                             kBytes, kPair ? 2 : 1, p, parts, first, each);
}

}  // namespace

void mla_decode_sm90(void* stream, const MlaDecodeParams& p, const MlaParts& parts, int32_t first, int32_t tokens) {
  if (p.cache.layout != LatentLayout::kFp8) return launch<false, false>(stream, p, parts, first, tokens);
  blocks_for(p.heads, kHeads) % 2 == 0 ? launch<true, true>(stream, p, parts, first, tokens)
                                       : launch<true, false>(stream, p, parts, first, tokens);
}

}  // namespace lantern::cuda
