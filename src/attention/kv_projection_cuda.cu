// The absorbed projections: queries into the latent space, results out of it. Weights are read once for up to
// kTokenTile tokens (more: kv_projection_many_cuda.cu), 16 bytes at a time where rows allow it; sums are in float, in
// an order that follows from the weight alone.
#include "attention/cuda_launches.h"
#include "attention/kv_weights.cuh"
#include "device/cuda/block_reduce.cuh"
#include "device/cuda/launch.cuh"

namespace lantern::cuda {
namespace {

constexpr int kPerThread = kKvPerThread;
constexpr int kColumnThreads = kKvColumns / kPerThread;
constexpr int kBatch = 8;  // rows on their way at once
constexpr int kValueWarps = 8;
constexpr int64_t kTokenTile = 8;
constexpr unsigned kThreads = 256;

// The end of the rows from `row` on that have its scales, `end` at most.
__device__ int32_t end_of_scale(const KvUpProjection& w, int32_t row, int32_t end) {
  return w.block_rows == 0 ? end : min(end, (row / w.block_rows + 1) * w.block_rows);
}

// A block for each head: a thread has four columns of a quarter of the head's rows.
template <class T, int kTokens>
__global__ void __launch_bounds__(kColumnThreads* kKvParts) absorb_query_tile_kernel(AbsorbQueryParams p) {
  ptx::begin_overlapped();
  extern __shared__ float query[];  // [kTokens][nope_dim], then sums [kKvParts][kKvColumns]
  const int64_t h = blockIdx.x, first = int64_t{blockIdx.y} * kTokens;
  const auto tokens = static_cast<int>(min(int64_t{kTokens}, p.real_tokens.of(p.tokens) - first));
  if (tokens <= 0) return;
  const int32_t nope = p.kv_b.nope_dim, rank = p.kv_b.kv_lora_rank;
  const auto thread = static_cast<int32_t>(threadIdx.x);
#pragma unroll
  for (int r = 0; r < kTokens; ++r) {
    const float* from = p.q.get() + (first + min(r, tokens - 1)) * p.q_token_stride + h * p.q_head_stride;
    for (int32_t i = thread; i < nope; i += kColumnThreads * kKvParts) query[r * nope + i] = from[i];
  }
  float* const sums = query + kTokens * nope;
  const int32_t col = thread % kColumnThreads * kPerThread, part = thread / kColumnThreads;
  const auto first_row = static_cast<int32_t>(h) * (nope + p.kv_b.v_dim);
  const int32_t end = first_row + nope * (part + 1) / kKvParts;
  int32_t row = first_row + nope * part / kKvParts;
  float4 sum[kTokens] = {};
  __syncthreads();
  while (col < rank && row < end) {
    const float scale = scale_at(p.kv_b, row, col);
    const int32_t run = end_of_scale(p.kv_b, row, end);
    const auto add = [&](int32_t at, const uint32_t* words) {
      const float4 w = scaled(four_of<T>(words, 0), scale);
#pragma unroll
      for (int r = 0; r < kTokens; ++r) {
        const float q = query[r * nope + at - first_row];
        sum[r].x = __fmaf_rn(q, w.x, sum[r].x);
        sum[r].y = __fmaf_rn(q, w.y, sum[r].y);
        sum[r].z = __fmaf_rn(q, w.z, sum[r].z);
        sum[r].w = __fmaf_rn(q, w.w, sum[r].w);
      }
    };
    for (; row + kBatch <= run; row += kBatch) {
      __align__(8) uint32_t batch[kBatch][2];
#pragma unroll
      for (int b = 0; b < kBatch; ++b) load_codes<T, kPerThread>(p.kv_b, row + b, col, batch[b]);
#pragma unroll
      for (int b = 0; b < kBatch; ++b) add(row + b, batch[b]);
    }
    for (; row < run; ++row) {
      __align__(8) uint32_t words[2];
      load_codes<T, kPerThread>(p.kv_b, row, col, words);
      add(row, words);
    }
  }
#pragma unroll
  for (int r = 0; r < kTokens; ++r) {
    if (r >= tokens) break;
    __syncthreads();
    *reinterpret_cast<float4*>(sums + part * kKvColumns + col) = sum[r];
    __syncthreads();
    for (int32_t i = thread; i < rank; i += kColumnThreads * kKvParts) {
      float total = sums[i];
#pragma unroll
      for (int q = 1; q < kKvParts; ++q) total += sums[q * kKvColumns + i];
      p.q_latent[((first + r) * p.kv_b.heads + h) * rank + i] = total;
    }
  }
}

// A block for each head, a warp for each output; a lane has 16 neighbouring columns of all of its warp's rows.
template <class T, int kTokens>
__global__ void __launch_bounds__(kValueWarps* kWarp) project_value_tile_kernel(ProjectValueParams p) {
  ptx::begin_overlapped();
  constexpr int kWords = kKvPerLane * static_cast<int>(sizeof(T)) / 4, kRows = sizeof(T) == 1 ? 8 : 4;
  const int64_t h = blockIdx.x, first = int64_t{blockIdx.y} * kTokens;
  const auto tokens = static_cast<int>(min(int64_t{kTokens}, p.real_tokens.of(p.tokens) - first));
  if (tokens <= 0) return;
  const auto lane = static_cast<int32_t>(threadIdx.x % kWarp), warp = static_cast<int32_t>(threadIdx.x / kWarp);
  const int32_t col = lane * kKvPerLane, last = p.kv_b.v_dim - 1;
  const auto first_row = static_cast<int32_t>(h) * (p.kv_b.nope_dim + p.kv_b.v_dim) + p.kv_b.nope_dim;
  float4 x[kTokens][kKvPerLane / 4];
#pragma unroll
  for (int r = 0; r < kTokens; ++r) {
    const float* from = p.out_latent.get() + ((first + min(r, tokens - 1)) * p.kv_b.heads + h) * kKvColumns + col;
#pragma unroll
    for (int i = 0; i < kKvPerLane / 4; ++i) x[r][i] = reinterpret_cast<const float4*>(from)[i];
  }
  for (int32_t v = warp; v <= last; v += kRows * kValueWarps) {
    __align__(16) uint32_t words[kRows][kWords];
#pragma unroll
    for (int b = 0; b < kRows; ++b) {
      load_codes<T, kKvPerLane>(p.kv_b, first_row + min(v + b * kValueWarps, last), col, words[b]);
    }
#pragma unroll
    for (int b = 0; b < kRows; ++b) {
      const int32_t own = min(v + b * kValueWarps, last);
      const float scale = scale_at(p.kv_b, first_row + own, col);
#pragma unroll
      for (int r = 0; r < kTokens; ++r) {
        float sum = 0;
#pragma unroll
        for (int i = 0; i < kKvPerLane / 4; ++i) {
          const float4 w = scaled(four_of<T>(words[b], i), scale);
          sum = __fmaf_rn(w.x, x[r][i].x, sum);
          sum = __fmaf_rn(w.y, x[r][i].y, sum);
          sum = __fmaf_rn(w.z, x[r][i].z, sum);
          sum = __fmaf_rn(w.w, x[r][i].w, sum);
        }
        sum = warp_sum(sum);
        if (lane == 0 && r < tokens && v + b * kValueWarps <= last) {
          p.out[((first + r) * p.kv_b.heads + h) * p.kv_b.v_dim + own] = sum;
        }
      }
    }
  }
}

// For every format and width: a thread for each latent column of a head; a tile of tokens shares the weights.
__global__ void absorb_query_kernel(AbsorbQueryParams p) {
  ptx::begin_overlapped();
  const auto c = static_cast<int32_t>(blockIdx.x * kThreads + threadIdx.x);
  const int64_t h = blockIdx.y, first = blockIdx.z * kTokenTile;
  if (c >= p.kv_b.kv_lora_rank) return;
  const auto tokens = static_cast<int>(min(kTokenTile, p.real_tokens.of(p.tokens) - first));
  if (tokens <= 0) return;
  const int64_t row = h * (p.kv_b.nope_dim + p.kv_b.v_dim);
  const float* q = p.q.get() + first * p.q_token_stride + h * p.q_head_stride;
  float sums[kTokenTile] = {};
  for (int32_t i = 0; i < p.kv_b.nope_dim; ++i) {
    const float weight = weight_at(p.kv_b, row + i, c);
#pragma unroll
    for (int r = 0; r < kTokenTile; ++r) {
      if (r < tokens) sums[r] = __fmaf_rn(q[r * p.q_token_stride + i], weight, sums[r]);
    }
  }
#pragma unroll
  for (int r = 0; r < kTokenTile; ++r) {
    if (r < tokens) p.q_latent[((first + r) * p.kv_b.heads + h) * p.kv_b.kv_lora_rank + c] = sums[r];
  }
}

// The same: a warp for each output of a head.
__global__ void project_value_kernel(ProjectValueParams p) {
  ptx::begin_overlapped();
  constexpr int kWarps = kThreads / kWarp;
  const auto v = static_cast<int32_t>(blockIdx.x * kWarps + threadIdx.x / kWarp);
  const int64_t h = blockIdx.y, first = blockIdx.z * kTokenTile;
  if (v >= p.kv_b.v_dim) return;
  const auto lane = static_cast<int32_t>(threadIdx.x % kWarp);
  const auto tokens = static_cast<int>(min(kTokenTile, p.real_tokens.of(p.tokens) - first));
  if (tokens <= 0) return;
  const int32_t rank = p.kv_b.kv_lora_rank;
  const int64_t row = h * (p.kv_b.nope_dim + p.kv_b.v_dim) + p.kv_b.nope_dim + v;
  float sums[kTokenTile] = {};
  for (int32_t c = lane; c < rank; c += kWarp) {
    const float weight = weight_at(p.kv_b, row, c);
#pragma unroll
    for (int r = 0; r < kTokenTile; ++r) {
      if (r < tokens) sums[r] = __fmaf_rn(weight, p.out_latent[((first + r) * p.kv_b.heads + h) * rank + c], sums[r]);
    }
  }
#pragma unroll
  for (int r = 0; r < kTokenTile; ++r) {
    if (r >= tokens) continue;
    const float sum = warp_sum(sums[r]);
    if (lane == 0) p.out[((first + r) * p.kv_b.heads + h) * p.kv_b.v_dim + v] = sum;
  }
}

template <class T, int kTokens>
void absorb_tiles(void* stream, const AbsorbQueryParams& p) {
  const size_t shared =
      (static_cast<size_t>(kTokens) * static_cast<size_t>(p.kv_b.nope_dim) + kKvParts * kKvColumns) * 4;
  launch_overlapped(stream, "absorb_query tiles", &absorb_query_tile_kernel<T, kTokens>,
                    dim3(static_cast<unsigned>(p.kv_b.heads), blocks_for(p.tokens, kTokens)), kColumnThreads * kKvParts,
                    shared, p);
}
template <class T, int kTokens>
void project_tiles(void* stream, const ProjectValueParams& p) {
  launch_overlapped(stream, "project_value tiles", &project_value_tile_kernel<T, kTokens>,
                    dim3(static_cast<unsigned>(p.kv_b.heads), blocks_for(p.tokens, kTokens)), kValueWarps * kWarp, 0,
                    p);
}

template <class T>
void absorb_few(void* stream, const AbsorbQueryParams& p) {
  p.tokens <= 2 ? absorb_tiles<T, 1>(stream, p) : absorb_tiles<T, kTokenTile>(stream, p);
}
template <class T>
void project_few(void* stream, const ProjectValueParams& p) {
  p.tokens <= 2 ? project_tiles<T, 1>(stream, p) : project_tiles<T, 4>(stream, p);
}

bool aligned(const float* values, int64_t stride = 0) {
  return reinterpret_cast<uintptr_t>(values) % 16 == 0 && stride % 4 == 0;
}

}  // namespace

void absorb_query(void* stream, const AbsorbQueryParams& p) {
  const AbsorbQueryDesc desc{
      .kv_b = p.kv_b,
      .tokens = p.tokens,
      .aligned = aligned(p.q.get(), p.q_token_stride) && p.q_head_stride % 4 == 0 && aligned(p.q_latent.get())};
  switch (choose<KvProjectionKernel>(kAbsorbQueryKernels, desc, device_traits())) {
    case KvProjectionKernel::kMany: return absorb_many(stream, p);
    case KvProjectionKernel::kFew:
      return p.kv_b.dtype == DType::kBF16 ? absorb_few<bf16_t>(stream, p) : absorb_few<e4m3_t>(stream, p);
    default:
      launch_overlapped(stream, "absorb_query", &absorb_query_kernel,
                        dim3(blocks_for(p.kv_b.kv_lora_rank, kThreads), static_cast<unsigned>(p.kv_b.heads),
                             blocks_for(p.tokens, kTokenTile)),
                        kThreads, 0, p);
  }
}
void project_value(void* stream, const ProjectValueParams& p) {
  const ProjectValueDesc desc{.kv_b = p.kv_b,
                              .tokens = p.tokens,
                              .latents_aligned = aligned(p.out_latent.get()),
                              .out_aligned = aligned(p.out.get())};
  switch (choose<KvProjectionKernel>(kProjectValueKernels, desc, device_traits())) {
    case KvProjectionKernel::kMany: return project_many(stream, p);
    case KvProjectionKernel::kFew:
      return p.kv_b.dtype == DType::kBF16 ? project_few<bf16_t>(stream, p) : project_few<e4m3_t>(stream, p);
    default:
      launch_overlapped(stream, "project_value", &project_value_kernel,
                        dim3(blocks_for(p.kv_b.v_dim, kThreads / kWarp), static_cast<unsigned>(p.kv_b.heads),
                             blocks_for(p.tokens, kTokenTile)),
                        kThreads, 0, p);
  }
}

}  // namespace lantern::cuda
