// Scores of the indexer. FP8 keys go through the tensor cores as f16, in which e4m3 values and their products' sums in
// float are exact but for the order; other layouts and shapes go through a plain kernel in float.
#include "attention/cuda_choice.h"
#include "attention/cuda_launches.h"
#include "attention/fp8_rows.cuh"
#include "attention/indexer_cuda.cuh"
#include "device/cuda/launch.cuh"

namespace lantern::cuda {
namespace {

constexpr unsigned kThreads = 128;
constexpr unsigned kScoreBlocks = 64;  // for each token of a group
constexpr int kTileWarps = 8;
constexpr int kTileKeys = kIndexTileKeys;
constexpr int kTileDim = kIndexTileDim;
constexpr int kSteps = kTileDim / 16;
constexpr unsigned kTileBlocks = 264;  // for a group: two for each multiprocessor of the largest GPUs

// A block for each head of each token.
template <bool kHalf>
__global__ void prepare_query_kernel(IndexSelectParams p, IndexScratch s, int32_t first_token) {
  ptx::begin_overlapped();
  __shared__ float query[kMaxIndexDim];
  __shared__ float shared[kThreads / kWarp];
  const auto h = static_cast<int32_t>(blockIdx.x), g = static_cast<int32_t>(blockIdx.y);
  const int32_t t = first_token + g;
  if (!must_score(p, t)) return;
  const int64_t row = int64_t{t} * p.heads + h, place = (int64_t{g} * p.heads + h) * p.dim;
  const auto thread = static_cast<int32_t>(threadIdx.x);
  for (int32_t i = thread; i < p.dim; i += kThreads) query[i] = p.query[row * p.dim + i];
  __syncthreads();
  if (p.hadamard) hadamard(query, p.dim);
  const bool fp8 = p.layout == IndexKeyLayout::kFp8;
  const float scale = fp8 ? index_query_scale(largest_magnitude(query, p.dim, shared)) : 1.0f;
  for (int32_t i = thread; i < p.dim; i += kThreads) {
    const float value = fp8 ? widen(narrow_e4m3(query[i] / scale)) : query[i];
    if constexpr (kHalf) {
      reinterpret_cast<__half*>(s.query)[place + i] = __float2half_rn(value);
    } else {
      s.query[place + i] = value;
    }
  }
  if (thread == 0) s.weights[g * s.weight_stride + h] = fp8 ? p.weights[row] * scale : p.weights[row];
}

// A warp for each key, whose values its lanes share out.
template <int kPerLane>
__global__ void score_kernel(IndexSelectParams p, IndexScratch s, int32_t first_token) {
  ptx::begin_overlapped();
  const auto g = static_cast<int32_t>(blockIdx.y);
  const int32_t t = first_token + g;
  if (!must_score(p, t)) return;
  const auto keys = static_cast<int32_t>(min(int64_t{context_len(p, t)}, s.row_stride));
  const int32_t* blocks = table_of(p, t);
  const auto lane = static_cast<int32_t>(threadIdx.x % kWarp);
  const auto warps = static_cast<int32_t>(gridDim.x * kThreads / kWarp);
  const float* query = s.query + int64_t{g} * p.heads * p.dim;
  for (auto j = static_cast<int32_t>((blockIdx.x * kThreads + threadIdx.x) / kWarp); j < keys; j += warps) {
    const int32_t place = j + p.step.key_offset;
    const int64_t offset = place % p.step.block_size;
    const std::byte* block = p.cache.get() + blocks[place / p.step.block_size] * p.block_bytes;
    const DType dtype = p.layout == IndexKeyLayout::kFp8    ? DType::kF8E4M3
                        : p.layout == IndexKeyLayout::kBf16 ? DType::kBF16
                                                            : DType::kF32;
    float key[kPerLane];
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const int32_t at = lane + kWarp * i;
      key[i] = at < p.dim ? element(block, dtype, offset * p.dim + at) : 0.0f;
    }
    float score = 0;
    for (int32_t h = 0; h < p.heads; ++h) {
      float product = 0;
#pragma unroll
      for (int i = 0; i < kPerLane; ++i) {
        const int32_t at = lane + kWarp * i;
        if (at < p.dim) product = __fmaf_rn(query[int64_t{h} * p.dim + at], key[i], product);
      }
      product = warp_sum(product);
      score = __fmaf_rn(s.weights[g * s.weight_stride + h], ptx::max_or_nan(product, 0.0f), score);
    }
    if (p.layout == IndexKeyLayout::kFp8) {
      score *= reinterpret_cast<const float*>(block + int64_t{p.step.block_size} * p.dim)[offset];
    }
    if (lane == 0) s.scores[g * s.row_stride + j] = score;
  }
}

// The lane's part of 16 keys: 32 neighbouring values each of keys g and g + 8, and one key's scale.
struct KeyTile {
  uint4 codes[2][2];
  float scale;
};

// A warp takes 16 keys at a time against all heads, whose queries stay in its registers. Within a row of 128 values
// lane l % 4 has 32 neighbours, in keys and queries alike, so that it loads them whole.
template <int kHeadTiles>
__global__ void __launch_bounds__(kTileWarps* kWarp, 1)
    score_tile_kernel(IndexSelectParams p, IndexScratch s, int32_t first_token) {
  ptx::begin_overlapped();
  const auto row = static_cast<int32_t>(blockIdx.y);
  const int32_t t = first_token + row;
  if (!must_score(p, t)) return;
  // Tiles are of places, not of positions: 16 places lie in one block.
  const int32_t offset = p.step.key_offset;
  const auto keys = static_cast<int32_t>(min(int64_t{context_len(p, t)}, s.row_stride));
  const int32_t tiles = (keys + offset + kTileKeys - 1) / kTileKeys;
  const int32_t* blocks = table_of(p, t);
  const auto lane = static_cast<int>(threadIdx.x % kWarp);
  const int g = lane / 4, c = lane % 4;
  const auto stride = static_cast<int32_t>(gridDim.x * kTileWarps);
  auto tile = static_cast<int32_t>(blockIdx.x * kTileWarps + threadIdx.x / kWarp);
  if (tile >= tiles) return;

  const auto load = [&](int32_t which) {
    const int32_t place = which * kTileKeys;
    const int64_t in_block = place % p.step.block_size;
    const std::byte* block = p.cache.get() + blocks[place / p.step.block_size] * p.block_bytes;
    KeyTile key;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const auto* from = reinterpret_cast<const uint4*>(block + (in_block + g + 8 * half) * kTileDim + 32 * c);
      key.codes[half][0] = from[0];
      key.codes[half][1] = from[1];
    }
    key.scale =
        reinterpret_cast<const float*>(block + int64_t{p.step.block_size} * kTileDim)[in_block + g + 8 * (c & 1)];
    return key;
  };
  KeyTile next = load(tile);

  uint32_t query[kHeadTiles][kSteps][2];
  float weights[kHeadTiles][2];
#pragma unroll
  for (int n = 0; n < kHeadTiles; ++n) {
    const int32_t h = 8 * n + g;
    const auto* from = reinterpret_cast<const uint4*>(reinterpret_cast<const __half*>(s.query) +
                                                      (int64_t{row} * p.heads + h) * kTileDim + 32 * c);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint4 v = h < p.heads ? from[i] : uint4{};
      query[n][2 * i][0] = v.x;
      query[n][2 * i][1] = v.y;
      query[n][2 * i + 1][0] = v.z;
      query[n][2 * i + 1][1] = v.w;
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int32_t column = 8 * n + 2 * c + i;
      weights[n][i] = column < p.heads ? s.weights[row * s.weight_stride + column] : 0.0f;
    }
  }

  for (; tile < tiles; tile += stride) {
    const KeyTile key = next;
    next = load(min(tile + stride, tiles - 1));
    float products[kHeadTiles][4] = {};
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const uint32_t low = (&key.codes[0][step / 4].x)[step % 4], high = (&key.codes[1][step / 4].x)[step % 4];
      const uint32_t a[4] = {e4m3_to_f16(low & 0xffffu), e4m3_to_f16(high & 0xffffu), e4m3_to_f16(low >> 16),
                             e4m3_to_f16(high >> 16)};
#pragma unroll
      for (int n = 0; n < kHeadTiles; ++n) ptx::mma_f16(products[n], a, query[n][step]);
    }
    float scores[2] = {};
#pragma unroll
    for (int n = 0; n < kHeadTiles; ++n) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        scores[j / 2] = __fmaf_rn(weights[n][j % 2], ptx::max_or_nan(products[n][j], 0.0f), scores[j / 2]);
      }
    }
#pragma unroll
    for (float& score : scores) {
      score += __shfl_xor_sync(~0u, score, 1);
      score += __shfl_xor_sync(~0u, score, 2);
    }
    const int32_t j = tile * kTileKeys + g + 8 * (c & 1) - offset;
    if (c < 2 && j >= 0 && j < keys) s.scores[row * s.row_stride + j] = (c == 0 ? scores[0] : scores[1]) * key.scale;
  }
}

}  // namespace

void index_scores(void* stream, const IndexSelectParams& p, const IndexScratch& s, int32_t first, int32_t tokens) {
  const IndexScoreDesc desc{.layout = p.layout,
                            .heads = p.heads,
                            .dim = p.dim,
                            .block_size = p.step.block_size,
                            .block_bytes = p.block_bytes,
                            .cache_aligned = reinterpret_cast<uintptr_t>(p.cache.get()) % 16 == 0};
  const bool by_tiles = choose<IndexScoreKernel>(kIndexScoreKernels, desc, device_traits()) == IndexScoreKernel::kMma;
  const auto rows = static_cast<unsigned>(tokens);
  launch_overlapped(stream, "index query", by_tiles ? &prepare_query_kernel<true> : &prepare_query_kernel<false>,
                    dim3(static_cast<unsigned>(p.heads), rows), kThreads, 0, p, s, first);
  if (!by_tiles) {
    launch_overlapped(stream, "index scores",
                      p.dim <= 4 * kWarp ? &score_kernel<4> : &score_kernel<kMaxIndexDim / kWarp>,
                      dim3(kScoreBlocks, rows), kThreads, 0, p, s, first);
    return;
  }
  const unsigned most = blocks_for(s.row_stride, int64_t{2} * kTileKeys * kTileWarps);
  const dim3 grid(std::clamp(kTileBlocks / rows, 1u, std::max(1u, most)), rows);
  auto* kernel = p.heads <= 8    ? &score_tile_kernel<1>
                 : p.heads <= 16 ? &score_tile_kernel<2>
                 : p.heads <= 32 ? &score_tile_kernel<4>
                                 : &score_tile_kernel<8>;
  launch_overlapped(stream, "index score tiles", kernel, grid, kTileWarps * kWarp, 0, p, s, first);
}

}  // namespace lantern::cuda
