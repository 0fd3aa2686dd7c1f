// The absorbed attention of 64 heads of one token on Hopper's warpgroup products; the same sums as the tiles of
// mla_decode_tile_cuda.cu, bit by bit.
//
// Four warpgroups: two bring key tiles of 64 rows into shared memory as bf16, two buffers in turn; the other two each
// have half of the result's columns in registers, and both work out all scores, so that nothing passes between them:
// while one is at its softmax, the other has the tensor cores. A tile lies in chunks of 64 columns, as the products
// read them: as keys with K along their rows, as values with the rows along K.
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
// In shared memory: queries, two tiles, barriers, and what it takes to begin at a multiple of 1024.
constexpr int kTiles = kTileBytes;
constexpr int kBarriers = kTiles + 2 * kTileBytes;
constexpr int kBytes = kBarriers + 4 * 8 + 1024;
static_assert(kBytes <= 227 << 10);
#ifdef __CUDA_ARCH_FEAT_SM90_ALL

constexpr int kKeys = kMlaKeyTile;
constexpr int kRank = kMlaRank;
constexpr int kScoreTiles = kKeys / 8, kColumns = kRank / 2, kHalfTiles = kColumns / 2 / 8;
// Registers a thread; 128 are launched with, four times.
constexpr int kLoaderRegisters = 48, kWorkerRegisters = 208;

// Where piece `piece` of row `row` lies in a tile.
__device__ int place_of(int row, int piece) { return piece / 8 * kChunkBytes + row * 128 + ((piece ^ row) & 7) * 16; }

struct Barriers {
  uint32_t full[2], empty[2];
};

// Four threads for each row, which take its 32 pieces of 16 codes and 8 of the rotated part by turns, some
// of which are on their way ahead; more registers there are not.
__device__ void load_fp8_tiles(const MlaDecodeParams& p, int64_t t, int32_t keys, int32_t begin, int32_t end,
                               std::byte* tiles, const Barriers& barriers) {
  constexpr int kPieces = kRank / 16 / 4, kAhead = 4;
  const auto thread = static_cast<int>(threadIdx.x) - 2 * kGroup;
  const int row = thread / 4, part = thread % 4;
  const auto row_of = [&](int32_t tile) {
    const int32_t key = tile * kKeys + row;
    return tile < end && key < keys ? mla_key_row(p, t, key) : nullptr;
  };
  const auto load = [&](const std::byte* from, int piece) {
    return from == nullptr ? uint4{} : reinterpret_cast<const uint4*>(from)[piece];
  };
  const std::byte* from = row_of(begin);
  uint4 codes[kAhead];
#pragma unroll
  for (int i = 0; i < kAhead; ++i) codes[i] = load(from, 4 * i + part);
  for (int32_t tile = begin; tile < end; ++tile) {
    const int buffer = (tile - begin) % 2;
    const float4 scales = from == nullptr ? float4{} : *reinterpret_cast<const float4*>(from + kRank);
    std::byte* const to = tiles + buffer * kTileBytes;
    const int low = place_of(row, 2 * part), high = low ^ 16;
    ptx::wait_barrier(barriers.empty[buffer], ((tile - begin) / 2 + 1) % 2);
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      uint4 pieces[2];
      widen_piece(codes[i % kAhead], (&scales.x)[i / 2], pieces);
      *reinterpret_cast<uint4*>(to + i * kChunkBytes + low) = pieces[0];
      *reinterpret_cast<uint4*>(to + i * kChunkBytes + high) = pieces[1];
      const int ahead = i + kAhead;  // behind the codes come the scales, and two pieces that are bf16 already
      if (ahead < kPieces + 2) {
        codes[i % kAhead] = load(from, 4 * ahead + part + (ahead < kPieces ? 0 : 1));
      }
    }
#pragma unroll
    for (int i = kPieces; i < kPieces + 2; ++i) {
      *reinterpret_cast<uint4*>(to + kPieces * kChunkBytes + place_of(row, 4 * (i - kPieces) + part)) =
          codes[i % kAhead];
    }
    from = row_of(tile + 1);
#pragma unroll
    for (int i = 0; i < kAhead; ++i) codes[i] = load(from, 4 * i + part);
    ptx::fence_shared_for_products();
    ptx::arrive(barriers.full[buffer]);
  }
}

__device__ void load_bf16_tiles(const MlaDecodeParams& p, int64_t t, int32_t keys, int32_t begin, int32_t end,
                                uint32_t tiles, const Barriers& barriers) {
  const auto thread = static_cast<int>(threadIdx.x) - 2 * kGroup;
  const int row = thread / 4, part = thread % 4;
  for (int32_t tile = begin; tile < end; ++tile) {
    const int buffer = (tile - begin) % 2;
    const int32_t key = tile * kKeys + row;
    const bool real = key < keys;
    const std::byte* from = real ? mla_key_row(p, t, key) : p.cache.data.get();
    ptx::wait_barrier(barriers.empty[buffer], ((tile - begin) / 2 + 1) % 2);
    const uint32_t to = tiles + static_cast<uint32_t>(buffer * kTileBytes);
#pragma unroll 6
    for (int i = 0; i < kMlaPieces / 4; ++i) {
      const int piece = 4 * i + part;
      ptx::copy_16(to + static_cast<uint32_t>(place_of(row, piece)), real ? from + piece * 16 : from, real);
    }
    ptx::end_copy_group();
    ptx::wait_for_copies<0>();
    ptx::fence_shared_for_products();
    ptx::arrive(barriers.full[buffer]);
  }
}

// One of the two warpgroups that work: columns [256 half, 256 half + 256) of the result.
__device__ void attend(const MlaDecodeParams& p, const MlaParts& parts, int64_t t, int32_t keys, int32_t begin,
                       int32_t end, bool whole, uint32_t base, const Barriers& barriers) {
  const auto thread = static_cast<int>(threadIdx.x) % kGroup, half = static_cast<int>(threadIdx.x) / kGroup;
  const int g = thread % kWarp / 4, c = thread % 4, first_row = thread / kWarp * 16;
  const float to_log2 = p.scale * 1.4426950408889634f;
  const int32_t all_tiles = (keys + kKeys - 1) / kKeys;
  float out[2][kHalfTiles * 4] = {};  // of 128 columns each
  float largest[2] = {-INFINITY, -INFINITY}, sums[2][kScoreTiles] = {};
  for (int32_t tile = begin; tile < end; ++tile) {
    const int buffer = (tile - begin) % 2;
    const uint32_t rows = base + static_cast<uint32_t>(kTiles + buffer * kTileBytes);
    ptx::wait_barrier(barriers.full[buffer], (tile - begin) / 2 % 2);

    float scores[kScoreTiles * 4] = {};
    ptx::begin_products(scores);
    // Not unrolled whole: descriptors worked out ahead would take the registers.
#pragma unroll 1
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      const auto at = static_cast<uint32_t>(chunk * kChunkBytes);
#pragma unroll
      for (uint32_t step = 0; step < 4; ++step) {
        ptx::product_64x64(scores, ptx::matrix_descriptor(base + at + 32 * step, 0),
                           ptx::matrix_descriptor(rows + at + 32 * step, 0), chunk > 0 || step > 0);
      }
    }
    ptx::end_product_group();
    ptx::wait_for_products(scores);

    if (tile == all_tiles - 1) {
#pragma unroll
      for (int i = 0; i < kScoreTiles * 4; ++i) {
        if (tile * kKeys + i / 4 * 8 + 2 * c + i % 2 >= keys) scores[i] = -INFINITY;
      }
    }
    uint32_t weights[kKeys / 16][4];
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      float most = largest[side];
#pragma unroll
      for (int n = 0; n < kScoreTiles; ++n) {
        most = fmaxf(most, fmaxf(scores[4 * n + 2 * side], scores[4 * n + 2 * side + 1]));
      }
      most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
      most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
      const auto [origin, factor] = softmax_step(largest[side], most, to_log2);
      largest[side] = most;
#pragma unroll
      for (int n = 0; n < kScoreTiles; ++n) {
        const float low = exp2f(__fmaf_rn(scores[4 * n + 2 * side], to_log2, -origin));
        const float high = exp2f(__fmaf_rn(scores[4 * n + 2 * side + 1], to_log2, -origin));
        sums[side][n] = __fmaf_rn(sums[side][n], factor, low + high);
        weights[n / 2][n % 2 * 2 + side] = ptx::pack_bf16(low, high);
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

    ptx::begin_products(out[0], out[1], weights);
#pragma unroll
    for (int step = 0; step < kKeys / 16; ++step) {
      const uint32_t at = rows + static_cast<uint32_t>(half * (kColumns / 64) * kChunkBytes + step * 16 * 128);
#pragma unroll
      for (uint32_t i = 0; i < 2; ++i) {
        ptx::product_64x128(out[i], weights[step], ptx::matrix_descriptor(at + i * 2 * kChunkBytes, kChunkBytes));
      }
    }
    ptx::end_product_group();
    ptx::wait_for_products(out[0]);
    ptx::wait_for_products(out[1]);
    ptx::arrive(barriers.empty[buffer]);
  }

  const int32_t split = static_cast<int32_t>(blockIdx.z);
#pragma unroll
  for (int side = 0; side < 2; ++side) {
    float sum = 0;
#pragma unroll
    for (int n = 0; n < kScoreTiles; ++n) {
      float eight = sums[side][n];
      eight += __shfl_xor_sync(~0u, eight, 1);
      eight += __shfl_xor_sync(~0u, eight, 2);
      sum += eight;
    }
    const int32_t h = static_cast<int32_t>(blockIdx.x) * kHeads + first_row + 8 * side + g;
    if (h >= p.heads) continue;
    const float inverse = keys > 0 ? 1.0f / sum : 0.0f;
    const int64_t place = (int64_t{blockIdx.y} * parts.splits + split) * p.heads + h;
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

template <bool kFp8>
__global__ void __launch_bounds__(kThreads, 1)
    mla_decode_sm90_kernel(MlaDecodeParams p, MlaParts parts, int32_t first_token) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  ptx::begin_overlapped();
  extern __shared__ std::byte unaligned[];
  const int64_t t = first_token + static_cast<int32_t>(blockIdx.y);
  const int32_t keys = mla_key_count(p, t);
  const MlaSplits splits = mla_splits(keys);
  const auto split = static_cast<int32_t>(blockIdx.z);
  if (split >= splits.count) return;
  const int32_t begin = split * splits.tiles, end = min((keys + kKeys - 1) / kKeys, begin + splits.tiles);
  std::byte* const memory = unaligned + (1024 - ptx::shared_address(unaligned) % 1024) % 1024;
  const uint32_t base = ptx::shared_address(memory);
  const Barriers barriers{{base + kBarriers, base + kBarriers + 8}, {base + kBarriers + 16, base + kBarriers + 24}};
  if (threadIdx.x == 0) {
    for (int i = 0; i < 2; ++i) {
      ptx::init_barrier(barriers.full[i], 2 * kGroup);
      ptx::init_barrier(barriers.empty[i], 2 * kGroup);
    }
  }
  for (auto at = static_cast<int>(threadIdx.x); at < kHeads * kMlaPieces; at += static_cast<int>(kThreads)) {
    const int h = at / kMlaPieces, piece = at % kMlaPieces;
    *reinterpret_cast<uint4*>(memory + place_of(h, piece)) =
        mla_query_piece(p, t, static_cast<int32_t>(blockIdx.x) * kHeads + h, piece);
  }
  ptx::fence_shared_for_products();
  __syncthreads();
  if (threadIdx.x >= 2 * kGroup) {
    ptx::fewer_registers<kLoaderRegisters>();
    if constexpr (kFp8) {
      load_fp8_tiles(p, t, keys, begin, end, memory + kTiles, barriers);
    } else {
      load_bf16_tiles(p, t, keys, begin, end, base + kTiles, barriers);
    }
  } else {
    ptx::more_registers<kWorkerRegisters>();
    attend(p, parts, t, keys, begin, end, splits.count == 1, base, barriers);
  }
#else
  __trap();  // compiled for 9.0 without what only sm_90a has
#endif
}

}  // namespace

void mla_decode_sm90(void* stream, const MlaDecodeParams& p, const MlaParts& parts, int32_t first, int32_t tokens) {
  launch_overlapped(
      stream, "mla_decode sm90",
      p.cache.layout == LatentLayout::kFp8 ? &mla_decode_sm90_kernel<true> : &mla_decode_sm90_kernel<false>,
      dim3(blocks_for(p.heads, kHeads), static_cast<unsigned>(tokens), static_cast<unsigned>(parts.splits)), kThreads,
      kBytes, p, parts, first);
}

}  // namespace lantern::cuda
