// The product of a tile of weight rows with a few rows of x on tensor cores: the inside of the fast matrix kernels. It
// reads each weight once, from global memory straight into the registers that the tensor cores want.
//
// A block of kTileWarps warps computes tiles of 16 outputs for up to 8 kGroups rows of x. K is cut into pieces of
// kChunk columns; kSplits warps share out their runs, and their sums are added in order: an order that follows from the
// weight alone (tile_splits()). The kTileWarps / kSplits spans of warps have kTiles tiles each. Within a chunk lane l %
// 4 takes 16 neighbouring columns, in A and B alike, so that it loads them whole. FP8: the sum of a block of 128
// columns is multiplied by the block's scale.
#pragma once

#include "device/cuda/block_reduce.cuh"
#include "device/cuda/convert.cuh"
#include "device/cuda/ptx.cuh"
#include "ops/cuda_choice.h"
#include "ops/linear.h"

namespace lantern::cuda {

constexpr int kTileWarps = 8;
constexpr unsigned kTileThreads = kTileWarps * kWarp;

// Warps that share out the K of a weight of so many columns: all, or half where each would have little to do.
constexpr int tile_splits(int64_t cols) { return cols >= 4096 ? kTileWarps : kTileWarps / 2; }
template <int kSplits>
constexpr int kSpans = kTileWarps / kSplits;

// 16 neighbouring values of one row, as they lie in memory.
template <class T>
struct Strip {
  static constexpr int kVectors = static_cast<int>(sizeof(T));  // of 16 bytes
  uint4 vector[kVectors];

  __device__ void load(const std::byte* at) {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) vector[i] = __ldg(reinterpret_cast<const uint4*>(at) + i);
  }
  // Values 4 step .. 4 step + 3 as bf16.
  __device__ void get(int step, uint32_t& low, uint32_t& high) const {
    if constexpr (sizeof(T) == 1) {
      const uint32_t codes = (&vector[0].x)[step];
      low = e4m3_to_bf16(codes & 0xffffu);
      high = e4m3_to_bf16(codes >> 16);
    } else {
      const uint4& v = vector[step / 2];
      low = step % 2 == 0 ? v.x : v.z;
      high = step % 2 == 0 ? v.y : v.w;
    }
  }
};

// The lane's part of 16 rows of a weight, from row `first` on; rows behind the end are the last once more.
template <class T>
struct WeightRows {
  const std::byte* row[2];  // g and g + 8, at the lane's columns of chunk 0
  const std::byte* scales;
  DType scale_dtype;
  int64_t first_scale;
  float global_scale;

  WeightRows() = default;
  __device__ WeightRows(const QuantizedMatrix& w, int64_t first) {
    const int64_t g = threadIdx.x % kWarp / 4, c = threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      row[i] =
          w.data.get() + min(first + g + 8 * i, w.rows - 1) * w.row_bytes + c * 16 * static_cast<int64_t>(sizeof(T));
    }
    scales = w.scales.get();
    scale_dtype = w.scale_dtype;
    first_scale = w.block_rows > 0 ? min(first, w.rows - 1) / w.block_rows * w.scale_row_stride : 0;
    global_scale = w.global_scale;
  }
  // Of the columns [128 block, 128 block + 128).
  __device__ float scale(int64_t block) const {
    return scale_element(scales, scale_dtype, first_scale + block) * global_scale;
  }
};

// The lane's row of x for each group of 8 rows: f32, rounded here, or bf16. Null: no such row, zeros.
template <class X, int kGroups>
struct InputRows {
  const X* row[kGroups];  // at the lane's columns of chunk 0

  // Values of the lane's strip of a chunk as pairs of bf16: strip[group][i] = values 2 i, 2 i + 1.
  __device__ void load(int64_t chunk, uint32_t (&strip)[kGroups][8]) const {
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      if constexpr (sizeof(X) == 4) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          float4 v{};
          if (row[group] != nullptr) v = *(reinterpret_cast<const float4*>(row[group] + chunk * kChunk) + i);
          strip[group][2 * i] = ptx::pack_bf16(v.x, v.y);
          strip[group][2 * i + 1] = ptx::pack_bf16(v.z, v.w);
        }
      } else {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          uint4 v{};
          if (row[group] != nullptr) v = *(reinterpret_cast<const uint4*>(row[group] + chunk * kChunk) + i);
          strip[group][4 * i] = v.x;
          strip[group][4 * i + 1] = v.y;
          strip[group][4 * i + 2] = v.z;
          strip[group][4 * i + 3] = v.w;
        }
      }
    }
  }
};

// The span of this thread's warp.
template <int kSplits>
__device__ int tile_span() {
  return static_cast<int>(threadIdx.x) / (kSplits * kWarp);
}

template <int kGroups, int kSplits, int kTiles>
struct TileShared {
  static constexpr int kOutputs = 16 * kTiles * kSpans<kSplits>;
  static constexpr int kGroupsAtOnce = kGroups < 2 ? kGroups : 2;
  float sums[kSplits][8 * kGroupsAtOnce][kOutputs];
  float out[8 * kGroups][kOutputs];
};

// The product of a block's tiles, `weights` being those of this thread's span. Made, its first loads are on their way,
// which need nothing of what earlier kernels do.
template <class T, int kGroups, int kSplits, int kTiles>
class WeightTile {
 public:
  using Shared = TileShared<kGroups, kSplits, kTiles>;

  __device__ WeightTile(const WeightRows<T> (&weights)[kTiles], int64_t cols) {
    const auto split = static_cast<int64_t>(threadIdx.x / kWarp) % kSplits;
    const int64_t units = cols / (kUnit * kChunk);
    begin_ = units * split / kSplits;
    end_ = units * (split + 1) / kSplits;
#pragma unroll
    for (int i = 0; i < kTiles; ++i) weights_[i] = weights[i];
    if (begin_ >= end_) return;
#pragma unroll
    for (int depth = 0; depth < kDepth; ++depth) load(depth, min(begin_ + depth, end_ - 1));
  }

  // s.out[n][16 (kTiles span + i) + o] = output o of the span's tile i for row n. By a block of kTileThreads, once.
  template <class X>
  __device__ void multiply(const InputRows<X, kGroups>& x, Shared& s) {
    for (int64_t unit = begin_; unit < end_; unit += kDepth) {
#pragma unroll
      for (int depth = 0; depth < kDepth; ++depth) {
        if (unit + depth < end_) add(depth, unit + depth, x);
      }
    }
    const auto split = static_cast<int>(threadIdx.x / kWarp) % kSplits;
    const auto g = static_cast<int>(threadIdx.x % kWarp / 4), c = static_cast<int>(threadIdx.x % 4);
    const int first_output = tile_span<kSplits>() * 16 * kTiles;
#pragma unroll
    for (int first = 0; first < kGroups; first += Shared::kGroupsAtOnce) {
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
        const float factor = kScaled ? 1.0f : weights_[i].global_scale;
#pragma unroll
        for (int group = 0; group < Shared::kGroupsAtOnce; ++group) {
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            s.sums[split][8 * group + 2 * c + j % 2][first_output + 16 * i + g + 8 * (j / 2)] =
                total_[i][first + group][j] * factor;
          }
        }
      }
      __syncthreads();
      constexpr int kSums = 8 * Shared::kGroupsAtOnce * Shared::kOutputs;
      for (auto at = static_cast<int>(threadIdx.x); at < kSums; at += static_cast<int>(kTileThreads)) {
        const int n = at / Shared::kOutputs, o = at % Shared::kOutputs;
        float sum = s.sums[0][n][o];
#pragma unroll
        for (int w = 1; w < kSplits; ++w) sum += s.sums[w][n][o];
        s.out[8 * first + n][o] = sum;
      }
      __syncthreads();
    }
  }

 private:
  static constexpr bool kScaled = sizeof(T) == 1;
  static constexpr int kUnit = kScaled ? 2 : 1;       // chunks between two looks at the sums
  static constexpr int kDepth = kTiles == 1 ? 2 : 1;  // units on their way

  __device__ void load(int depth, int64_t unit) {
#pragma unroll
    for (int u = 0; u < kUnit; ++u) {
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          next_[depth][u][i][r].load(weights_[i].row[r] +
                                     (unit * kUnit + u) * kChunk * static_cast<int64_t>(sizeof(T)));
        }
      }
    }
    if constexpr (kScaled) {
#pragma unroll
      for (int i = 0; i < kTiles; ++i) next_scale_[depth][i] = weights_[i].scale(unit);
    }
  }

  template <class X>
  __device__ void add(int depth, int64_t unit, const InputRows<X, kGroups>& x) {
    Strip<T> strips[kUnit][kTiles][2];
    float scale[kTiles] = {};
#pragma unroll
    for (int u = 0; u < kUnit; ++u) {
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
        strips[u][i][0] = next_[depth][u][i][0];
        strips[u][i][1] = next_[depth][u][i][1];
        if constexpr (kScaled) scale[i] = next_scale_[depth][i];
      }
    }
    uint32_t inputs[kUnit][kGroups][8];
#pragma unroll
    for (int u = 0; u < kUnit; ++u) x.load(unit * kUnit + u, inputs[u]);
    load(depth, min(unit + kDepth, end_ - 1));
    float part[kTiles][kGroups][4] = {};
#pragma unroll
    for (int u = 0; u < kUnit; ++u) {
#pragma unroll
      for (int step = 0; step < 4; ++step) {
#pragma unroll
        for (int i = 0; i < kTiles; ++i) {
          uint32_t w[4];
          strips[u][i][0].get(step, w[0], w[2]);
          strips[u][i][1].get(step, w[1], w[3]);
#pragma unroll
          for (int group = 0; group < kGroups; ++group) {
            ptx::mma_bf16(kScaled ? part[i][group] : total_[i][group], w,
                          {inputs[u][group][2 * step], inputs[u][group][2 * step + 1]});
          }
        }
      }
    }
    if constexpr (kScaled) {
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
#pragma unroll
        for (int group = 0; group < kGroups; ++group) {
#pragma unroll
          for (int j = 0; j < 4; ++j) total_[i][group][j] = __fmaf_rn(part[i][group][j], scale[i], total_[i][group][j]);
        }
      }
    }
  }

  WeightRows<T> weights_[kTiles];
  int64_t begin_, end_;
  Strip<T> next_[kDepth][kUnit][kTiles][2];
  float next_scale_[kDepth][kTiles];
  float total_[kTiles][kGroups][4] = {};
};

}  // namespace lantern::cuda
