#include "device/cuda/launch.cuh"
#include "ops/arranged_rows.cuh"
#include "ops/cuda_choice.h"
#include "ops/cuda_launches.h"
#include "ops/linear_rows.cuh"
#include "ops/rounded_rows.cuh"
#include "ops/weight_tile.cuh"
#include "ops/wide_products.h"

namespace lantern::cuda {
namespace {

constexpr int kWarps = 8;
constexpr unsigned kThreads = kWarps * kWarp;

// For every format: a block for each output of each tile of rows. Its warps share out K, whose pieces follow from the
// weight alone and are added in order.
__global__ void __launch_bounds__(kThreads) linear_kernel(LinearParams p) {
  __shared__ float sums[kWarps][kRowTile];
  ptx::begin_overlapped();
  const int64_t o = blockIdx.x, first = int64_t{blockIdx.y} * kRowTile;
  const auto rows = static_cast<int>(min(int64_t{kRowTile}, p.real_rows.of(p.rows) - first));
  if (rows <= 0) return;
  const float* x[kRowTile];
  for (int r = 0; r < kRowTile; ++r) {
    const int64_t row = first + min(r, rows - 1);
    x[r] = p.x.get() + (p.x_rows ? p.x_rows[row] : row) * p.x_stride;
  }
  const int64_t unit = p.weight.block_rows > 0 ? p.weight.block_cols : 8 * kWarp;
  const int64_t units = (p.weight.cols + unit - 1) / unit;
  const auto warp = static_cast<int64_t>(threadIdx.x / kWarp);
  const int64_t begin = units * warp / kWarps * unit, end = min(p.weight.cols, units * (warp + 1) / kWarps * unit);
  float out[kRowTile];
  multiply_rows(p.weight, p.input == LinearInput::kExact, o, begin, end, x, rows, out);
  if (threadIdx.x % kWarp == 0) {
    for (int r = 0; r < rows; ++r) sums[warp][r] = out[r];
  }
  __syncthreads();
  if (static_cast<int>(threadIdx.x) >= rows) return;
  float sum = sums[0][threadIdx.x];
  for (int w = 1; w < kWarps; ++w) sum += sums[w][threadIdx.x];
  float& y = p.y[(first + threadIdx.x) * p.y_stride + o];
  y = p.accumulate ? y + sum : sum;
}

// `rounded`: the launch's rows of x as bf16, of which X = bf16_t reads.
template <class T, class X, int kGroups, int kSplits, int kTiles>
__global__ void __launch_bounds__(kTileThreads, kGroups == 1 ? 2 : 1)
    linear_tile_kernel(LinearParams p, const bf16_t* rounded) {
  using Tile = WeightTile<T, kGroups, kSplits, kTiles>;
  using Shared = typename Tile::Shared;
  __shared__ Shared s;
  const int64_t first_output = int64_t{blockIdx.x} * Shared::kOutputs, first = int64_t{blockIdx.y} * 8 * kGroups;
  WeightRows<T> weights[kTiles];
#pragma unroll
  for (int i = 0; i < kTiles; ++i) {
    weights[i] = WeightRows<T>(p.weight, first_output + 16 * (tile_span<kSplits>() * kTiles + i));
  }
  Tile tile(weights, p.weight.cols);
  ptx::begin_overlapped();
  const auto rows = static_cast<int>(min(int64_t{8 * kGroups}, p.real_rows.of(p.rows) - first));
  if (rows <= 0) return;
  const auto g = static_cast<int>(threadIdx.x % kWarp / 4), c = static_cast<int>(threadIdx.x % 4);
  InputRows<X, kGroups> x;
#pragma unroll
  for (int group = 0; group < kGroups; ++group) {
    const int n = 8 * group + g;
    x.row[group] = nullptr;
    if (n >= rows) continue;
    if constexpr (sizeof(X) == 4) {
      x.row[group] = p.x.get() + (p.x_rows ? p.x_rows[first + n] : first + n) * p.x_stride + 16 * c;
    } else {
      x.row[group] = rounded + (first + n) * p.weight.cols + 16 * c;
    }
  }
  tile.multiply(x, s);
  for (auto at = static_cast<int>(threadIdx.x); at < rows * Shared::kOutputs; at += static_cast<int>(kTileThreads)) {
    const int n = at / Shared::kOutputs, o = at % Shared::kOutputs;
    if (first_output + o >= p.weight.rows) continue;
    float& y = p.y[(first + n) * p.y_stride + first_output + o];
    y = p.accumulate ? y + s.out[n][o] : s.out[n][o];
  }
}

template <class T, class X, int kGroups, int kSplits, int kTiles>
void launch_tile(void* stream, const LinearParams& p, const bf16_t* rounded) {
  launch_overlapped(
      stream, "linear tile", &linear_tile_kernel<T, X, kGroups, kSplits, kTiles>,
      dim3(blocks_for(p.weight.rows, TileShared<kGroups, kSplits, kTiles>::kOutputs), blocks_for(p.rows, 8 * kGroups)),
      kTileThreads, 0, p, rounded);
}
template <class T, class X, int kGroups, int kSplits>
void launch_tile(void* stream, const LinearParams& p, const bf16_t* rounded) {
  // Where large tiles would leave multiprocessors of the largest GPUs without a block.
  constexpr int64_t kFewOutputs = int64_t{132} * 32 * kSpans<kSplits>;
  constexpr int kSmall = kGroups == 1 ? 1 : 2;
  p.weight.rows < kFewOutputs ? launch_tile<T, X, kGroups, kSplits, kSmall>(stream, p, rounded)
                              : launch_tile<T, X, kGroups, kSplits, 2>(stream, p, rounded);
}
// The splits follow from the weight, for equal sums whatever the rows.
template <class T, class X, int kGroups>
void launch_tile(void* stream, const LinearParams& p, const bf16_t* rounded) {
  tile_splits(p.weight.cols) == kTileWarps ? launch_tile<T, X, kGroups, kTileWarps>(stream, p, rounded)
                                           : launch_tile<T, X, kGroups, kTileWarps / 2>(stream, p, rounded);
}

ProductKernel kernel_for(const LinearParams& p, int64_t rows) {
  return choose<ProductKernel>(
      kLinearKernels,
      LinearDesc{.weight = p.weight, .input = p.input, .rows = rows, .x_aligned = aligned_rows(p.x.get(), p.x_stride)},
      device_traits());
}

template <class T>
void linear_tile(void* stream, const LinearParams& p) {
  if (p.rows <= kCudaRowsRoundedInPlace) return launch_tile<T, float, 1>(stream, p, nullptr);
  const int64_t needed = cuda_linear_scratch_bytes(p.rows, p.weight.cols);
  CHECK(p.scratch_bytes >= needed, "a product of {} rows of {} values has {} bytes of scratch and needs {}", p.rows,
        p.weight.cols, p.scratch_bytes, needed);
  bf16_t* const rounded = rounded_rows_at(p.scratch.get());
  for (int64_t first = 0; first < p.rows; first += kCudaRowsPerPass) {
    LinearParams pass = p;
    pass.rows = std::min(kCudaRowsPerPass, p.rows - first);
    pass.real_rows = p.real_rows.from(first);
    pass.y = borrow_fixed(p.y.get() + first * p.y_stride, (pass.rows - 1) * p.y_stride + p.weight.rows);
    const int64_t x_first = p.x_rows ? 0 : first * p.x_stride;
    const int32_t* const x_rows = p.x_rows ? p.x_rows.get() + first : nullptr;
    if (kernel_for(p, pass.rows) == ProductKernel::kWgmma) {
      auto* const arranged = reinterpret_cast<std::byte*>(rounded);
      arrange_rows(stream, {.x = p.x.get() + x_first,
                            .x_stride = p.x_stride,
                            .x_rows = x_rows,
                            .out = arranged,
                            .rows = pass.rows,
                            .cols = p.weight.cols,
                            .real_rows = pass.real_rows});
      wide_linear(stream,
                  {.tiles = {.rows = pass.rows, .real_rows = pass.real_rows, .tile_rows = wide_tile_rows(pass.rows)},
                   .weight = p.weight,
                   .x = arranged,
                   .y = pass.y.get(),
                   .y_stride = p.y_stride,
                   .accumulate = p.accumulate});
      continue;
    }
    round_rows(stream, {.x = p.x.get() + x_first,
                        .x_stride = p.x_stride,
                        .x_rows = x_rows,
                        .out = rounded,
                        .rows = pass.rows,
                        .cols = p.weight.cols,
                        .real_rows = pass.real_rows});
    if (pass.rows <= 8) {
      launch_tile<T, bf16_t, 1>(stream, pass, rounded);
    } else if (pass.rows <= 16) {
      launch_tile<T, bf16_t, 2>(stream, pass, rounded);
    } else {
      launch_tile<T, bf16_t, 4>(stream, pass, rounded);
    }
  }
}

}  // namespace

void linear(void* stream, const LinearParams& p) {
  if (kernel_for(p, p.rows) != ProductKernel::kPortable) {
    return p.weight.dtype == DType::kBF16 ? linear_tile<bf16_t>(stream, p) : linear_tile<e4m3_t>(stream, p);
  }
  launch_overlapped(stream, "linear", &linear_kernel,
                    dim3(static_cast<unsigned>(p.weight.rows), blocks_for(p.rows, kRowTile)), kThreads, 0, p);
}

}  // namespace lantern::cuda
