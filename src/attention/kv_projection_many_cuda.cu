// The absorbed projections of many tokens, with the sums of the few tokens' kernels (kv_weights.cuh), bit by bit: in
// float, and so bound by what the multiprocessors compute. A block has a tile of tokens and outputs of a head, a thread
// some of both in registers; kChunk terms of each sum lie in shared memory at a time, while the next are on their way.
#include "attention/cuda_launches.h"
#include "attention/kv_weights.cuh"
#include "device/cuda/launch.cuh"

namespace lantern::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kTokens = 64, kOutputs = kKvManyOutputs, kChunk = kKvPerLane;
constexpr int kOwnTokens = 4, kOwnOutputs = 8;  // of a thread: 4 neighbours, and 4 half a tile further on
constexpr int kOwn = kOwnTokens * kOwnOutputs;
static_assert(kThreads * kOwn == kTokens * kOutputs);

// By term, then by token or output; rows are some longer, against bank conflicts.
struct Shared {
  float x[kChunk][kTokens + 4];
  float w[kChunk][kOutputs + 4];
};

// What a thread brings of a chunk: 4 terms of a token, and 8 values of the weight.
template <class T>
struct Brought {
  static constexpr int kWords = 8 * static_cast<int>(sizeof(T)) / 4;
  float4 x;
  __align__(16) uint32_t codes[kWords];
  float scale;

  __device__ void load(const float* x_at, const KvUpProjection& w, int32_t row, int32_t col) {
    x = *reinterpret_cast<const float4*>(x_at);
    load_codes<T, 8>(w, row, col, codes);
    scale = scale_at(w, row, col);
  }
  __device__ void values(float (&out)[8]) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) *reinterpret_cast<float4*>(out + 4 * i) = scaled(four_of<T>(codes, i), scale);
  }
};

using Sums = float[kOwnTokens][kOwnOutputs];

__device__ void copy_sums(const Sums& from, Sums& to) {
#pragma unroll
  for (int i = 0; i < kOwn; ++i) (&to[0][0])[i] = (&from[0][0])[i];
}
__device__ void add_sums(const Sums& from, Sums& to) {
#pragma unroll
  for (int i = 0; i < kOwn; ++i) (&to[0][0])[i] += (&from[0][0])[i];
}

// sums[j][i] of own token j and output i: further terms, in order.
__device__ void add_terms(const Shared& s, Sums& sums) {
  const int token = static_cast<int>(threadIdx.x) / 16 * kOwnTokens, output = static_cast<int>(threadIdx.x) % 16 * 4;
#pragma unroll
  for (int k = 0; k < kChunk; ++k) {
    const float4 x = *reinterpret_cast<const float4*>(&s.x[k][token]);
    const float4 low = *reinterpret_cast<const float4*>(&s.w[k][output]);
    const float4 high = *reinterpret_cast<const float4*>(&s.w[k][kOutputs / 2 + output]);
#pragma unroll
    for (int j = 0; j < kOwnTokens; ++j) {
#pragma unroll
      for (int i = 0; i < kOwnOutputs; ++i) {
        sums[j][i] = __fmaf_rn((&x.x)[j], i < 4 ? (&low.x)[i] : (&high.x)[i - 4], sums[j][i]);
      }
    }
  }
}

// The product of a tile: token t's terms begin at x + t * x_stride. kAlong: the terms are the columns of the weight's
// rows from first_row on, and a row is an output; else they are its rows, and a column from first_col on is an output.
// fold(n, chunk's sums) after each chunk n; order(n) says which of the terms it has.
template <class T, bool kAlong, class Order, class Fold>
__device__ void multiply_tile(const KvUpProjection& w, int32_t first_row, int32_t first_col, const float* x,
                              int64_t x_stride, int tokens, int chunks, Shared& s, const Order& order,
                              const Fold& fold) {
  const auto thread = static_cast<int>(threadIdx.x);
  const int token = thread / 4, quarter = thread % 4;
  const float* const from = x + min(token, tokens - 1) * x_stride + 4 * quarter;
  // Along: a row of the weight and a half of the chunk; across: a term and 8 columns.
  const int place = kAlong ? thread % kOutputs : thread / 16, part = kAlong ? thread / kOutputs : thread % 16;
  Brought<T> next;
  const auto load = [&](int n) {
    const int term = order(n) * kChunk;
    next.load(from + term, w, first_row + (kAlong ? place : term + place), first_col + (kAlong ? term : 0) + 8 * part);
  };
  load(0);
  for (int n = 0; n < chunks; ++n) {
    float values[8];
    next.values(values);
    __syncthreads();  // the last chunk was used
#pragma unroll
    for (int i = 0; i < 4; ++i) s.x[4 * quarter + i][token] = (&next.x.x)[i];
#pragma unroll
    for (int i = 0; i < 8; ++i) (kAlong ? s.w[8 * part + i][place] : s.w[place][8 * part + i]) = values[i];
    __syncthreads();
    if (n + 1 < chunks) load(n + 1);
    fold(n);
  }
}

__device__ void store_tile(const Sums& sums, float* out, int64_t stride, int tokens) {
  const int token = static_cast<int>(threadIdx.x) / 16 * kOwnTokens, output = static_cast<int>(threadIdx.x) % 16 * 4;
#pragma unroll
  for (int j = 0; j < kOwnTokens; ++j) {
    if (token + j >= tokens) continue;
    float* const to = out + (token + j) * stride + output;
    *reinterpret_cast<float4*>(to) = make_float4(sums[j][0], sums[j][1], sums[j][2], sums[j][3]);
    *reinterpret_cast<float4*>(to + kOutputs / 2) = make_float4(sums[j][4], sums[j][5], sums[j][6], sums[j][7]);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads, 2) absorb_many_kernel(AbsorbQueryParams p) {
  ptx::begin_overlapped();
  __shared__ Shared s;
  const int64_t h = blockIdx.y, first = int64_t{blockIdx.z} * kTokens;
  const auto tokens = static_cast<int>(min(int64_t{kTokens}, p.real_tokens.of(p.tokens) - first));
  if (tokens <= 0) return;
  const int32_t nope = p.kv_b.nope_dim, first_col = static_cast<int32_t>(blockIdx.x) * kOutputs;
  const auto first_row = static_cast<int32_t>(h) * (nope + p.kv_b.v_dim);
  const int run = nope / kKvParts / kChunk;  // chunks of a run
  Sums sums = {}, total = {};
  multiply_tile<T, false>(
      p.kv_b, first_row, first_col, p.q.get() + first * p.q_token_stride + h * p.q_head_stride, p.q_token_stride,
      tokens, kKvParts * run, s, [](int n) { return n; },
      [&](int n) {
        add_terms(s, sums);
        if ((n + 1) % run != 0) return;
#pragma unroll
        for (int i = 0; i < kOwn; ++i) {
          float& own = (&sums[0][0])[i];
          float& all = (&total[0][0])[i];
          all = n + 1 == run ? own : all + own;
          own = 0;
        }
      });
  store_tile(total, p.q_latent.get() + (first * p.kv_b.heads + h) * p.kv_b.kv_lora_rank + first_col,
             int64_t{p.kv_b.heads} * p.kv_b.kv_lora_rank, tokens);
}

// A chunk is what a lane of the few tokens' kernel has. The chunks come in the order in which the sums of two
// neighbours, then those of two neighbouring pairs and so on, are what warp_sum() adds.
template <class T>
__global__ void __launch_bounds__(kThreads, 1) project_many_kernel(ProjectValueParams p) {
  constexpr int kLevels = 5;
  static_assert(1 << kLevels == kWarp);
  ptx::begin_overlapped();
  __shared__ Shared s;
  const int64_t h = blockIdx.y, first = int64_t{blockIdx.z} * kTokens;
  const auto tokens = static_cast<int>(min(int64_t{kTokens}, p.real_tokens.of(p.tokens) - first));
  if (tokens <= 0) return;
  const int32_t first_output = static_cast<int32_t>(blockIdx.x) * kOutputs;
  const auto first_row = static_cast<int32_t>(h) * (p.kv_b.nope_dim + p.kv_b.v_dim) + p.kv_b.nope_dim + first_output;
  // Those that wait for their neighbours: of a chunk, of two, of more.
  Sums sums, two, four, more[kLevels - 2];
  multiply_tile<T, true>(
      p.kv_b, first_row, 0, p.out_latent.get() + (first * p.kv_b.heads + h) * kKvColumns,
      int64_t{p.kv_b.heads} * kKvColumns, tokens, kWarp, s,
      [](int n) { return static_cast<int>(__brev(static_cast<unsigned>(n)) >> (32 - kLevels)); },
      [&](int n) {
#pragma unroll
        for (int i = 0; i < kOwn; ++i) (&sums[0][0])[i] = 0;
        add_terms(s, sums);
        if (n % 2 == 0) return copy_sums(sums, two);
        add_sums(two, sums);
        if (n % 4 == 1) return copy_sums(sums, four);
        add_sums(four, sums);
#pragma unroll 1  // `more`, seldom used, lies in memory
        for (int level = 0; level < kLevels - 2; ++level) {
          if ((n >> (level + 2)) % 2 == 0) return copy_sums(sums, more[level]);
          add_sums(more[level], sums);
        }
      });
  store_tile(sums, p.out.get() + (first * p.kv_b.heads + h) * p.kv_b.v_dim + first_output,
             int64_t{p.kv_b.heads} * p.kv_b.v_dim, tokens);
}

template <class Params>
void launch(void* stream, const char* name, void (*kernel)(Params), int32_t outputs, const Params& p) {
  launch_overlapped(stream, name, kernel,
                    dim3(static_cast<unsigned>(outputs / kOutputs), static_cast<unsigned>(p.kv_b.heads),
                         blocks_for(p.tokens, kTokens)),
                    kThreads, 0, p);
}

}  // namespace

void absorb_many(void* stream, const AbsorbQueryParams& p) {
  launch(stream, "absorb_query many",
         p.kv_b.dtype == DType::kBF16 ? &absorb_many_kernel<bf16_t> : &absorb_many_kernel<e4m3_t>, p.kv_b.kv_lora_rank,
         p);
}

void project_many(void* stream, const ProjectValueParams& p) {
  launch(stream, "project_value many",
         p.kv_b.dtype == DType::kBF16 ? &project_many_kernel<bf16_t> : &project_many_kernel<e4m3_t>, p.kv_b.v_dim, p);
}

}  // namespace lantern::cuda
