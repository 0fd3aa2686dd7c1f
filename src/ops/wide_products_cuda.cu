#include "ops/wide_products.h"

#include "device/cuda/launch.cuh"
#include "ops/silu.cuh"
#include "ops/wide_tile.cuh"

namespace lantern::cuda {
namespace {

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

struct Tile {
  int rows;  // 0: nothing to do
  int32_t first_row, first_eight;
  const ExpertWeights* weights;  // null: the launch's
  unsigned outputs;              // number of the tile of outputs
};

template <int kRows>
__device__ Tile tile_of(const WideTiles& t, int spread) {
  // Blocks that run at the same time share what they read: all rows their weights, an expert's tiles their few rows.
  if (t.experts == nullptr) {
    const auto first = static_cast<int32_t>(blockIdx.x) / spread * kRows;
    const int64_t rows = min(int64_t{kRows}, t.real_rows.of(t.rows) - first);
    return {static_cast<int>(max(int64_t{0}, rows)), first, first / 8, nullptr, blockIdx.y};
  }
  const int32_t expert = t.tile_expert[blockIdx.y];
  if (expert < 0) return {};
  const int32_t first = t.tile_row[blockIdx.y];
  return {min(kRows, t.expert_begin[expert + 1] - first), first, t.tile_eight[blockIdx.y], t.experts + expert,
          blockIdx.x};
}

// All of a block: `half(i)` are the rows that are the halves of its workers' outputs, and write(i, v) is called for
// what comes of them (WideTile::reduce()).
template <class T, int kRows, class Half, class Write>
__device__ void run_tile(const Tile& tile, int64_t cols, const std::byte* x, int spread, const Half& half,
                         const Write& write) {
  extern __shared__ std::byte unaligned[];
  const WideMemory<T, kRows> m(unaligned);
  const WideRuns runs{static_cast<int>(blockIdx.x) % spread, spread, tile_splits(cols)};
  m.init_barriers();
  if (threadIdx.x >= kWideWorkers) {
    ptx::fewer_registers<kWideLoaderRegisters>();
    const int64_t chunks = cols / kChunk;
    bring_units(half, x + int64_t{tile.first_eight} * chunks * kAtomBytes, (tile.rows + 7) / 8,
                static_cast<int>(chunks), runs, m);
    if (spread > 1) ptx::sync_cluster();  // as reduce() does
  } else {
    ptx::more_registers<kWideWorkerRegisters>();
    WideTile<T, kRows> product(half, cols, runs);
    product.multiply(m);
    product.reduce(m, write);
  }
  if (spread > 1) ptx::sync_cluster();  // no block leaves while others may still read its memory
}

#endif

template <class T, int kRows>
__global__ void __launch_bounds__(kWideThreads, 1) wide_linear_kernel(WideLinearParams p, int spread) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  ptx::begin_overlapped();
  const Tile tile = tile_of<kRows>(p.tiles, spread);
  if (tile.rows == 0) return;
  const QuantizedMatrix& w = tile.weights != nullptr ? tile.weights->down : p.weight;
  const int64_t first = int64_t{tile.outputs} * kWideOutputs;
  run_tile<T, kRows>(
      tile, p.weight.cols, p.x, spread, [&](int i) { return WideWeight{w, first + 8 * i, 16}; },
      [&](int i, const float4& v) {
        const auto warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const int n = 8 * i + 2 * (lane % 4) + j % 2;
          const int64_t o = first + 16 * warp + 8 * (j / 2) + lane / 4;
          if (n >= tile.rows || o >= p.weight.rows) continue;
          float& y = p.y[int64_t{tile.first_row + n} * p.y_stride + o];
          y = p.accumulate ? y + (&v.x)[j] : (&v.x)[j];
        }
      });
#else
  __trap();  // compiled for 9.0 without what only sm_90a has
#endif
}

// A warp's 16 outputs are the gates of eight values, then their ups.
template <class T, int kRows>
__global__ void __launch_bounds__(kWideThreads, 1) wide_gate_up_kernel(WideGateUpParams p, int spread) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  ptx::begin_overlapped();
  const Tile tile = tile_of<kRows>(p.tiles, spread);
  if (tile.rows == 0) return;
  const QuantizedMatrix& gate = tile.weights != nullptr ? tile.weights->gate : p.gate;
  const QuantizedMatrix& up = tile.weights != nullptr ? tile.weights->up : p.up;
  const int64_t first = int64_t{tile.outputs} * (kWideOutputs / 2);
  run_tile<T, kRows>(
      tile, p.gate.cols, p.x, spread, [&](int i) { return WideWeight{i == 0 ? gate : up, first, 8}; },
      [&](int i, const float4& v) {
        const auto warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
        const int64_t value = first + 8 * warp + lane / 4;
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const int n = 8 * i + 2 * (lane % 4) + j;
          if (n >= tile.rows || value >= p.gate.rows) continue;
          const int64_t at = arranged_at(int64_t{8} * tile.first_eight + n, value / 2 * 2, p.gate.rows) + value % 2 * 2;
          *reinterpret_cast<bf16_t*>(p.activation + at) = narrow_bf16(silu((&v.x)[j]) * (&v.x)[j + 2]);
        }
      });
#else
  __trap();
#endif
}

// Blocks of a cluster that share out K: as many as make the multiprocessors of the largest GPUs finish first, taking a
// block to cost what 8 chunks of columns do beside its part of the columns.
template <int kSlots>
int spread_of(int64_t blocks, int64_t cols) {
  constexpr int64_t kMultiprocessors = 132, kBlockCost = 8;
  const int64_t chunks = cols / kChunk, splits = tile_splits(cols);
  int64_t best = 1, best_cost = 0;
  for (int64_t spread = 1; spread <= splits; spread *= 2) {
    if (spread > 1 && splits / spread > kSlots) continue;
    const int64_t waves = (blocks * spread + kMultiprocessors - 1) / kMultiprocessors;
    const int64_t cost = waves * (chunks / spread + kBlockCost);
    if (spread > 1 && cost >= best_cost) continue;
    best = spread;
    best_cost = cost;
  }
  return static_cast<int>(best);
}

template <class T, int kRows, class Params>
void launch(void* stream, const char* name, void (*kernel)(Params, int), int64_t output_tiles, int64_t cols,
            const Params& p) {
  using Shape = WideShape<T, kRows>;
  const auto outputs = static_cast<unsigned>(output_tiles);
  if (p.tiles.experts != nullptr) {
    return launch_overlapped(stream, name, kernel, dim3(outputs, p.tiles.tiles), kWideThreads, Shape::kBytes, p, 1);
  }
  const unsigned rows = blocks_for(p.tiles.rows, kRows);
  const int spread = spread_of<Shape::kSlots>(int64_t{rows} * outputs, cols);
  launch_overlapped_clusters(stream, name, kernel, dim3(rows * static_cast<unsigned>(spread), outputs), kWideThreads,
                             Shape::kBytes, static_cast<unsigned>(spread), p, spread);
}

template <class T, int kRows>
void launch(void* stream, const WideLinearParams& p) {
  launch<T, kRows>(stream, "wide linear", &wide_linear_kernel<T, kRows>, blocks_for(p.weight.rows, kWideOutputs),
                   p.weight.cols, p);
}
template <class T, int kRows>
void launch(void* stream, const WideGateUpParams& p) {
  launch<T, kRows>(stream, "wide gate and up", &wide_gate_up_kernel<T, kRows>,
                   blocks_for(p.gate.rows, kWideOutputs / 2), p.gate.cols, p);
}
template <class Params>
void launch(void* stream, DType dtype, const Params& p) {
  const bool small = p.tiles.tile_rows == kSmallWideTileRows;
  if (dtype == DType::kBF16) {
    return small ? launch<bf16_t, kSmallWideTileRows>(stream, p) : launch<bf16_t, kWideTileRows>(stream, p);
  }
  small ? launch<e4m3_t, kSmallWideTileRows>(stream, p) : launch<e4m3_t, kWideTileRows>(stream, p);
}

}  // namespace

void wide_linear(void* stream, const WideLinearParams& p) { launch(stream, p.weight.dtype, p); }
void wide_gate_up(void* stream, const WideGateUpParams& p) { launch(stream, p.gate.dtype, p); }

}  // namespace lantern::cuda
