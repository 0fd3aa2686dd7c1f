#include "device/cuda/launch.cuh"
#include "ops/arranged_rows.cuh"
#include "ops/cuda_choice.h"
#include "ops/cuda_launches.h"
#include "ops/linear_rows.cuh"
#include "ops/moe_rows.cuh"
#include "ops/pass_sizes.h"
#include "ops/rounded_rows.cuh"
#include "ops/silu.cuh"
#include "ops/weight_tile.cuh"
#include "ops/wide_products.h"

namespace lantern::cuda {
namespace {

constexpr unsigned kThreads = 128;
constexpr int64_t kOutputsPerBlock = kThreads / kWarp;

// activation[r, i] = silu(gate x_r) * (up x_r) of up to kRowTile rows, by one warp.
__device__ void gate_up(const ExpertWeights& w, int64_t i, const float* const* x, int rows, float* activation,
                        int64_t stride) {
  float gate[kRowTile], up[kRowTile];
  multiply_rows(w.gate, false, i, 0, w.gate.cols, x, rows, gate);
  multiply_rows(w.up, false, i, 0, w.up.cols, x, rows, up);
  if (threadIdx.x % kWarp != 0) return;
  for (int r = 0; r < rows; ++r) activation[r * stride + i] = silu(gate[r]) * up[r];
}

// Of the tile at row `first` of a pass over `tokens` tokens: the rows that are no padding.
__device__ int real_rows(const MlpParams& p, int64_t first_token, int64_t tokens, int64_t first, int tile_rows) {
  const int64_t real = min(tokens, p.real_tokens.of(p.tokens) - first_token);
  return static_cast<int>(min(int64_t{tile_rows}, real - first));
}

__global__ void mlp_gate_up_kernel(MlpParams p, float* activation, int64_t first_token, int64_t tokens) {
  ptx::begin_overlapped();
  const int64_t i = blockIdx.x * kOutputsPerBlock + threadIdx.x / kWarp;
  const int64_t hidden = p.weights.gate.cols, intermediate = p.weights.gate.rows;
  if (i >= intermediate) return;
  const int64_t first = int64_t{blockIdx.y} * kRowTile;
  const int rows = real_rows(p, first_token, tokens, first, kRowTile);
  if (rows <= 0) return;
  const float* x[kRowTile];
  for (int r = 0; r < kRowTile; ++r) x[r] = p.x.get() + (first_token + first + min(r, rows - 1)) * hidden;
  gate_up(p.weights, i, x, rows, activation + first * intermediate, intermediate);
}

__global__ void mlp_down_kernel(MlpParams p, const float* activation, int64_t first_token, int64_t tokens) {
  ptx::begin_overlapped();
  const int64_t o = blockIdx.x * kOutputsPerBlock + threadIdx.x / kWarp;
  const int64_t hidden = p.weights.gate.cols, intermediate = p.weights.gate.rows;
  if (o >= hidden) return;
  const int64_t first = int64_t{blockIdx.y} * kRowTile;
  const int rows = real_rows(p, first_token, tokens, first, kRowTile);
  if (rows <= 0) return;
  const float* x[kRowTile];
  for (int r = 0; r < kRowTile; ++r) x[r] = activation + (first + min(r, rows - 1)) * intermediate;
  float out[kRowTile];
  multiply_rows(p.weights.down, false, o, 0, intermediate, x, rows, out);
  if (threadIdx.x % kWarp != 0) return;
  for (int r = 0; r < rows; ++r) {
    float& y = p.y[(first_token + first + r) * hidden + o];
    y = p.accumulate ? y + out[r] : out[r];
  }
}

// The rows of this block's tile: 0 where there is none.
__device__ int tile_rows(const MoeScratch& s, int32_t* expert, int32_t* first) {
  *expert = s.tile_expert[blockIdx.y];
  if (*expert < 0) return 0;
  *first = s.tile_row[blockIdx.y];
  return min(s.tile_rows, s.expert_begin[*expert + 1] - *first);
}

__global__ void moe_gate_up_kernel(MoeParams p, MoeScratch s, int64_t first_token) {
  ptx::begin_overlapped();
  const int64_t i = blockIdx.x * kOutputsPerBlock + threadIdx.x / kWarp;
  int32_t expert = 0, first = 0;
  const int rows = tile_rows(s, &expert, &first);
  if (rows == 0 || i >= p.intermediate) return;
  const float* x[kRowTile];
  for (int r = 0; r < kRowTile; ++r) {
    x[r] = p.x.get() + (first_token + s.row_token[first + min(r, rows - 1)]) * p.hidden;
  }
  gate_up(p.experts[expert], i, x, rows, s.activation + first * p.intermediate, p.intermediate);
}

__global__ void moe_down_kernel(MoeParams p, MoeScratch s) {
  ptx::begin_overlapped();
  const int64_t o = blockIdx.x * kOutputsPerBlock + threadIdx.x / kWarp;
  int32_t expert = 0, first = 0;
  const int rows = tile_rows(s, &expert, &first);
  if (rows == 0 || o >= p.hidden) return;
  const float* x[kRowTile];
  for (int r = 0; r < kRowTile; ++r) x[r] = s.activation + int64_t{first + min(r, rows - 1)} * p.intermediate;
  float out[kRowTile];
  multiply_rows(p.experts[expert].down, false, o, 0, p.intermediate, x, rows, out);
  if (threadIdx.x % kWarp != 0) return;
  for (int r = 0; r < rows; ++r) s.down[int64_t{first + r} * p.hidden + o] = out[r];
}

// The lane's rows of x of a tile of `rows` rows; `row(n)` is where row n begins.
template <class X, int kGroups, class Row>
__device__ InputRows<X, kGroups> tile_inputs(int rows, const Row& row) {
  const auto g = static_cast<int>(threadIdx.x % kWarp / 4), c = static_cast<int>(threadIdx.x % 4);
  InputRows<X, kGroups> x;
#pragma unroll
  for (int group = 0; group < kGroups; ++group) {
    const int n = 8 * group + g;
    x.row[group] = n < rows ? row(n) + 16 * c : nullptr;
  }
  return x;
}

// activation[n, i] of the tile's rows, as bf16, for the 16 intermediate values of each span.
template <class T, int kGroups, int kSplits>
class GateUpTile {
 public:
  using Shared = TileShared<kGroups, kSplits, 2>;
  static constexpr int kValues = 16 * kSpans<kSplits>;

  __device__ explicit GateUpTile(const ExpertWeights& w)
      : intermediate_(w.gate.rows),
        tile_({WeightRows<T>(w.gate, first() + 16 * tile_span<kSplits>()),
               WeightRows<T>(w.up, first() + 16 * tile_span<kSplits>())},
              w.gate.cols) {}
  template <class X>
  __device__ void multiply(const InputRows<X, kGroups>& x, int rows, bf16_t* activation, Shared& s) {
    tile_.multiply(x, s);
    for (auto at = static_cast<int>(threadIdx.x); at < rows * kValues; at += static_cast<int>(kTileThreads)) {
      const int n = at / kValues, i = at % kValues, gate = i / 16 * 32 + i % 16;
      if (first() + i >= intermediate_) continue;
      activation[n * intermediate_ + first() + i] = narrow_bf16(silu(s.out[n][gate]) * s.out[n][gate + 16]);
    }
  }

 private:
  __device__ static int64_t first() { return int64_t{blockIdx.x} * kValues; }

  int64_t intermediate_;
  WeightTile<T, kGroups, kSplits, 2> tile_;
};

// The down projection: write(n, o, value) for its outputs o and the rows n of the tile.
template <class T, int kGroups, int kSplits>
class DownTile {
 public:
  using Shared = TileShared<kGroups, kSplits, 2>;

  __device__ explicit DownTile(const QuantizedMatrix& w)
      : rows_(w.rows),
        tile_({WeightRows<T>(w, first() + 32 * tile_span<kSplits>()),
               WeightRows<T>(w, first() + 32 * tile_span<kSplits>() + 16)},
              w.cols) {}
  template <class Write>
  __device__ void multiply(const InputRows<bf16_t, kGroups>& x, int rows, Shared& s, const Write& write) {
    tile_.multiply(x, s);
    for (auto at = static_cast<int>(threadIdx.x); at < rows * Shared::kOutputs; at += static_cast<int>(kTileThreads)) {
      const int n = at / Shared::kOutputs, o = at % Shared::kOutputs;
      if (first() + o < rows_) write(n, first() + o, s.out[n][o]);
    }
  }

 private:
  __device__ static int64_t first() { return int64_t{blockIdx.x} * Shared::kOutputs; }

  int64_t rows_;
  WeightTile<T, kGroups, kSplits, 2> tile_;
};

template <class T, class X, int kGroups, int kSplits>
__global__ void __launch_bounds__(kTileThreads, kGroups == 1 ? 2 : 1)
    mlp_gate_up_tile_kernel(MlpParams p, const bf16_t* rounded, bf16_t* activation, int64_t first_token,
                            int64_t tokens) {
  __shared__ TileShared<kGroups, kSplits, 2> s;
  GateUpTile<T, kGroups, kSplits> tile(p.weights);
  ptx::begin_overlapped();
  const int64_t hidden = p.weights.gate.cols, first = int64_t{blockIdx.y} * 8 * kGroups;
  const int rows = real_rows(p, first_token, tokens, first, 8 * kGroups);
  if (rows <= 0) return;
  const auto x = tile_inputs<X, kGroups>(rows, [&](int n) {
    if constexpr (sizeof(X) == 4)
      return p.x.get() + (first_token + first + n) * hidden;
    else
      return rounded + (first + n) * hidden;
  });
  tile.multiply(x, rows, activation + first * p.weights.gate.rows, s);
}

template <class T, int kGroups, int kSplits>
__global__ void __launch_bounds__(kTileThreads, kGroups == 1 ? 2 : 1)
    mlp_down_tile_kernel(MlpParams p, const bf16_t* activation, int64_t first_token, int64_t tokens) {
  __shared__ TileShared<kGroups, kSplits, 2> s;
  const QuantizedMatrix& w = p.weights.down;
  DownTile<T, kGroups, kSplits> tile(w);
  ptx::begin_overlapped();
  const int64_t first = int64_t{blockIdx.y} * 8 * kGroups;
  const int rows = real_rows(p, first_token, tokens, first, 8 * kGroups);
  if (rows <= 0) return;
  const auto x = tile_inputs<bf16_t, kGroups>(rows, [&](int n) { return activation + (first + n) * w.cols; });
  tile.multiply(x, rows, s, [&](int n, int64_t o, float value) {
    float& y = p.y[(first_token + first + n) * w.rows + o];
    y = p.accumulate ? y + value : value;
  });
}

template <class T, class X, int kGroups, int kSplits>
__global__ void __launch_bounds__(kTileThreads, kGroups == 1 ? 2 : 1)
    moe_gate_up_tile_kernel(MoeParams p, MoeScratch s, int64_t first_token) {
  __shared__ TileShared<kGroups, kSplits, 2> shared;
  ptx::begin_overlapped();
  int32_t expert = 0, first = 0;
  const int rows = tile_rows(s, &expert, &first);
  if (rows == 0) return;
  GateUpTile<T, kGroups, kSplits> tile(p.experts[expert]);
  const auto x = tile_inputs<X, kGroups>(rows, [&](int n) {
    const int64_t token = s.row_token[first + n];
    if constexpr (sizeof(X) == 4)
      return p.x.get() + (first_token + token) * p.hidden;
    else
      return static_cast<const bf16_t*>(s.rounded) + token * p.hidden;
  });
  tile.multiply(x, rows, reinterpret_cast<bf16_t*>(s.activation) + first * p.intermediate, shared);
}

template <class T, int kGroups, int kSplits>
__global__ void __launch_bounds__(kTileThreads, kGroups == 1 ? 2 : 1) moe_down_tile_kernel(MoeParams p, MoeScratch s) {
  __shared__ TileShared<kGroups, kSplits, 2> shared;
  ptx::begin_overlapped();
  int32_t expert = 0, first = 0;
  const int rows = tile_rows(s, &expert, &first);
  if (rows == 0) return;
  DownTile<T, kGroups, kSplits> tile(p.experts[expert].down);
  const auto* activation = reinterpret_cast<const bf16_t*>(s.activation) + first * p.intermediate;
  const auto x = tile_inputs<bf16_t, kGroups>(rows, [&](int n) { return activation + n * p.intermediate; });
  tile.multiply(x, rows, shared,
                [&](int n, int64_t o, float value) { s.down[int64_t{first + n} * p.hidden + o] = value; });
}

// y[t, :] += sum over j of weight * row, in order of j. A thread for each value; rows are loaded some at a time.
__global__ void moe_combine_kernel(MoeParams p, MoeScratch s, int64_t first_token) {
  constexpr int kBatch = 8;
  ptx::begin_overlapped();
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x, t = first_token + blockIdx.y;
  if (i >= p.hidden) return;
  const int32_t* rows = s.pair_row + int64_t{blockIdx.y} * p.experts_per_token;
  const float* weights = p.expert_weights.get() + t * p.experts_per_token;
  float sum = 0;
  for (int32_t first = 0; first < p.experts_per_token; first += kBatch) {
    float values[kBatch];
    int32_t own[kBatch];
#pragma unroll
    for (int j = 0; j < kBatch; ++j) own[j] = first + j < p.experts_per_token ? rows[first + j] : -1;
#pragma unroll
    for (int j = 0; j < kBatch; ++j) values[j] = s.down[int64_t{max(own[j], 0)} * p.hidden + i];
#pragma unroll
    for (int j = 0; j < kBatch; ++j) {
      if (own[j] >= 0) sum = __fadd_rn(sum, __fmul_rn(weights[first + j], values[j]));
    }
  }
  p.y[t * p.hidden + i] += sum;
}

// The tile kernels of a pass, for the splits that the weights' columns call for.
template <class T, int kGroups, int kSplits>
void mlp_gate_up_tiles(void* stream, const MlpParams& p, bf16_t* activation, const bf16_t* rounded, int64_t first,
                       int64_t tokens) {
  auto* kernel = &mlp_gate_up_tile_kernel<T, bf16_t, kGroups, kSplits>;
  if constexpr (kGroups == 1) {
    if (rounded == nullptr) kernel = &mlp_gate_up_tile_kernel<T, float, 1, kSplits>;
  }
  launch_overlapped(stream, "mlp gate and up tiles", kernel,
                    dim3(blocks_for(p.weights.gate.rows, 16 * kSpans<kSplits>), blocks_for(tokens, 8 * kGroups)),
                    kTileThreads, 0, p, rounded, activation, first, tokens);
}
template <class T, int kGroups, int kSplits>
void mlp_down_tiles(void* stream, const MlpParams& p, const bf16_t* activation, int64_t first, int64_t tokens) {
  launch_overlapped(stream, "mlp down tiles", &mlp_down_tile_kernel<T, kGroups, kSplits>,
                    dim3(blocks_for(p.weights.down.rows, 32 * kSpans<kSplits>), blocks_for(tokens, 8 * kGroups)),
                    kTileThreads, 0, p, activation, first, tokens);
}
template <class T, int kGroups>
void mlp_tiles(void* stream, const MlpParams& p, bf16_t* activation, const bf16_t* rounded, int64_t first,
               int64_t tokens) {
  constexpr int kAll = kTileWarps, kHalf = kTileWarps / 2;
  tile_splits(p.weights.gate.cols) == kAll
      ? mlp_gate_up_tiles<T, kGroups, kAll>(stream, p, activation, rounded, first, tokens)
      : mlp_gate_up_tiles<T, kGroups, kHalf>(stream, p, activation, rounded, first, tokens);
  tile_splits(p.weights.down.cols) == kAll ? mlp_down_tiles<T, kGroups, kAll>(stream, p, activation, first, tokens)
                                           : mlp_down_tiles<T, kGroups, kHalf>(stream, p, activation, first, tokens);
}

void mlp_wide(void* stream, const MlpParams& p, int64_t first, int64_t tokens) {
  const int64_t hidden = p.weights.gate.cols, intermediate = p.weights.gate.rows;
  auto* const activation = reinterpret_cast<std::byte*>(rounded_rows_at(p.scratch.get()));
  std::byte* const x = activation + rounded_rows_bytes(tokens, intermediate);
  const WideTiles tiles{.rows = tokens, .real_rows = p.real_tokens.from(first), .tile_rows = wide_tile_rows(tokens)};
  arrange_rows(stream, {.x = p.x.get() + first * hidden,
                        .x_stride = hidden,
                        .x_rows = nullptr,
                        .out = x,
                        .rows = tokens,
                        .cols = hidden,
                        .real_rows = tiles.real_rows});
  wide_gate_up(stream, {.tiles = tiles, .gate = p.weights.gate, .up = p.weights.up, .x = x, .activation = activation});
  wide_linear(stream, {.tiles = tiles,
                       .weight = p.weights.down,
                       .x = activation,
                       .y = p.y.get() + first * hidden,
                       .y_stride = hidden,
                       .accumulate = p.accumulate});
}

template <class T>
void mlp_mma(void* stream, const MlpParams& p, int64_t first, int64_t tokens) {
  const int64_t hidden = p.weights.gate.cols, intermediate = p.weights.gate.rows;
  bf16_t* const activation = rounded_rows_at(p.scratch.get());
  bf16_t* rounded = nullptr;
  if (tokens > kCudaRowsRoundedInPlace) {
    rounded = activation + rounded_rows_bytes(tokens, intermediate) / 2;
    round_rows(stream, {.x = p.x.get() + first * hidden,
                        .x_stride = hidden,
                        .x_rows = nullptr,
                        .out = rounded,
                        .rows = tokens,
                        .cols = hidden,
                        .real_rows = p.real_tokens.from(first)});
  }
  if (tokens <= 8) {
    mlp_tiles<T, 1>(stream, p, activation, rounded, first, tokens);
  } else if (tokens <= 16) {
    mlp_tiles<T, 2>(stream, p, activation, rounded, first, tokens);
  } else {
    mlp_tiles<T, 4>(stream, p, activation, rounded, first, tokens);
  }
}

void mlp_portable(void* stream, const MlpParams& p, int64_t first, int64_t tokens) {
  const int64_t hidden = p.weights.gate.cols, intermediate = p.weights.gate.rows;
  auto* activation = reinterpret_cast<float*>(p.scratch.get());
  const unsigned tiles = blocks_for(tokens, kRowTile);
  launch_overlapped(stream, "mlp gate and up", &mlp_gate_up_kernel,
                    dim3(blocks_for(intermediate, kOutputsPerBlock), tiles), kThreads, 0, p, activation, first, tokens);
  launch_overlapped(stream, "mlp down", &mlp_down_kernel, dim3(blocks_for(hidden, kOutputsPerBlock), tiles), kThreads,
                    0, p, static_cast<const float*>(activation), first, tokens);
}

template <class T, int kGroups, int kSplits>
void moe_gate_up_tiles(void* stream, const MoeParams& p, const MoeScratch& s, int64_t first, int64_t tokens,
                       unsigned tiles) {
  auto* kernel = &moe_gate_up_tile_kernel<T, bf16_t, kGroups, kSplits>;
  bool in_place = false;
  if constexpr (kGroups == 1) {
    in_place = tokens <= kCudaRowsRoundedInPlace;
    if (in_place) kernel = &moe_gate_up_tile_kernel<T, float, 1, kSplits>;
  }
  if (!in_place) {
    round_rows(stream, {.x = p.x.get() + first * p.hidden,
                        .x_stride = p.hidden,
                        .x_rows = nullptr,
                        .out = s.rounded,
                        .rows = tokens,
                        .cols = p.hidden,
                        .real_rows = {}});
  }
  launch_overlapped(stream, "moe gate and up tiles", kernel,
                    dim3(blocks_for(p.intermediate, 16 * kSpans<kSplits>), tiles), kTileThreads, 0, p, s, first);
}
template <class T, int kGroups, int kSplits>
void moe_down_tiles(void* stream, const MoeParams& p, const MoeScratch& s, unsigned tiles) {
  launch_overlapped(stream, "moe down tiles", &moe_down_tile_kernel<T, kGroups, kSplits>,
                    dim3(blocks_for(p.hidden, 32 * kSpans<kSplits>), tiles), kTileThreads, 0, p, s);
}
template <class T, int kGroups>
void moe_tiles(void* stream, const MoeParams& p, const MoeScratch& s, int64_t first, int64_t tokens, unsigned tiles) {
  constexpr int kAll = kTileWarps, kHalf = kTileWarps / 2;
  tile_splits(p.hidden) == kAll ? moe_gate_up_tiles<T, kGroups, kAll>(stream, p, s, first, tokens, tiles)
                                : moe_gate_up_tiles<T, kGroups, kHalf>(stream, p, s, first, tokens, tiles);
  tile_splits(p.intermediate) == kAll ? moe_down_tiles<T, kGroups, kAll>(stream, p, s, tiles)
                                      : moe_down_tiles<T, kGroups, kHalf>(stream, p, s, tiles);
}

void moe_wide(void* stream, const MoeParams& p, const MoeScratch& s, int64_t first, unsigned tiles) {
  const WideTiles of_experts{.tile_rows = s.tile_rows,
                             .experts = p.experts.get(),
                             .tile_expert = s.tile_expert,
                             .tile_row = s.tile_row,
                             .tile_eight = s.tile_eight,
                             .expert_begin = s.expert_begin,
                             .tiles = tiles};
  auto* const x = reinterpret_cast<std::byte*>(s.down);
  auto* const activation = reinterpret_cast<std::byte*>(s.activation);
  arrange_rows(stream, {.x = p.x.get() + first * p.hidden,
                        .x_stride = p.hidden,
                        .x_rows = s.row_token,
                        .out = x,
                        .rows = s.arranged_rows,
                        .cols = p.hidden,
                        .real_rows = {}});
  const ExpertWeights& w = p.first_expert;
  wide_gate_up(stream, {.tiles = of_experts, .gate = w.gate, .up = w.up, .x = x, .activation = activation});
  wide_linear(
      stream,
      {.tiles = of_experts, .weight = w.down, .x = activation, .y = s.down, .y_stride = p.hidden, .accumulate = false});
}

void moe_mma(void* stream, const MoeParams& p, const MoeScratch& s, int64_t first, int64_t tokens, unsigned tiles) {
  const bool bf16 = p.first_expert.gate.dtype == DType::kBF16;
  if (s.tile_rows == kRowTile) {
    bf16 ? moe_tiles<bf16_t, 1>(stream, p, s, first, tokens, tiles)
         : moe_tiles<e4m3_t, 1>(stream, p, s, first, tokens, tiles);
  } else {
    bf16 ? moe_tiles<bf16_t, 4>(stream, p, s, first, tokens, tiles)
         : moe_tiles<e4m3_t, 4>(stream, p, s, first, tokens, tiles);
  }
}

void moe_portable(void* stream, const MoeParams& p, const MoeScratch& s, int64_t first, unsigned tiles) {
  launch_overlapped(stream, "moe gate and up", &moe_gate_up_kernel,
                    dim3(blocks_for(p.intermediate, kOutputsPerBlock), tiles), kThreads, 0, p, s, first);
  launch_overlapped(stream, "moe down", &moe_down_kernel, dim3(blocks_for(p.hidden, kOutputsPerBlock), tiles), kThreads,
                    0, p, s);
}

// Where experts have many rows the larger tiles read weights less often.
int32_t moe_tile_rows(ProductKernel kernel, int64_t pairs, int64_t num_experts) {
  if (kernel == ProductKernel::kWgmma) return wide_tile_rows(pairs / num_experts);
  return kernel == ProductKernel::kMma && pairs > 4 * num_experts ? 4 * kRowTile : kRowTile;
}

}  // namespace

void mlp(void* stream, const MlpParams& p) {
  const bool x_aligned = aligned_rows(p.x.get(), p.weights.gate.cols), bf16 = p.weights.gate.dtype == DType::kBF16;
  for (int64_t first = 0; first < p.tokens; first += kTokensPerPass) {
    const int64_t tokens = std::min(kTokensPerPass, p.tokens - first);
    const MlpDesc desc{.weights = p.weights, .tokens = tokens, .x_aligned = x_aligned};
    switch (choose<ProductKernel>(kMlpKernels, desc, device_traits())) {
      case ProductKernel::kWgmma: mlp_wide(stream, p, first, tokens); break;
      case ProductKernel::kMma:
        bf16 ? mlp_mma<bf16_t>(stream, p, first, tokens) : mlp_mma<e4m3_t>(stream, p, first, tokens);
        break;
      default: mlp_portable(stream, p, first, tokens);
    }
  }
}

void moe(void* stream, const MoeParams& p) {
  const bool x_aligned = aligned_rows(p.x.get(), p.first_expert.gate.cols);
  for (int64_t first = 0; first < p.tokens; first += kTokensPerPass) {
    const int64_t tokens = std::min(kTokensPerPass, p.tokens - first);
    const int64_t pairs = tokens * p.experts_per_token;
    const auto kernel = choose<ProductKernel>(kMoeKernels,
                                              MoeDesc{.first_expert = p.first_expert,
                                                      .num_experts = p.num_experts,
                                                      .experts_per_token = p.experts_per_token,
                                                      .tokens = tokens,
                                                      .x_aligned = x_aligned},
                                              device_traits());
    // Arranged rows, of kWgmma, fit where rows of outputs and activations do in float.
    const int32_t tile_rows = moe_tile_rows(kernel, pairs, p.num_experts);
    // Each expert that has rows may have one tile that is not full.
    const int64_t tiles = std::min(pairs, pairs / tile_rows + p.num_experts);
    const MoeScratch s = moe_scratch(p.scratch.get(), p, tokens, tiles, tile_rows, kernel == ProductKernel::kWgmma);
    CHECK(s.bytes <= p.scratch_bytes, "{} experts and {} tokens have {} bytes of scratch and need {}", p.num_experts,
          tokens, p.scratch_bytes, s.bytes);
    sort_pairs(stream, p, s, first, tokens, tiles);
    const unsigned grid_tiles = blocks_for(tiles, 1);
    switch (kernel) {
      case ProductKernel::kWgmma: moe_wide(stream, p, s, first, grid_tiles); break;
      case ProductKernel::kMma: moe_mma(stream, p, s, first, tokens, grid_tiles); break;
      default: moe_portable(stream, p, s, first, grid_tiles);
    }
    launch_overlapped(stream, "moe combine", &moe_combine_kernel,
                      dim3(blocks_for(p.hidden, kThreads), blocks_for(tokens, 1)), kThreads, 0, p, s, first);
  }
}

}  // namespace lantern::cuda
