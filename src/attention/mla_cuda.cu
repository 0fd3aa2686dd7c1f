// For every cache, in float: a block for each head of each token. Its warps take every eighth key each, with a running
// maximum and sum, and are joined in order at the end. The expanded form is computed like the absorbed one, to which it
// is equal but for rounding: the query goes into the latent space and the result out of it within the block. Caches
// that the tensor cores' kernels take go there, prefills some tokens at a time.
#include "attention/cuda_choice.h"
#include "attention/cuda_launches.h"
#include "attention/kv_weights.cuh"
#include "attention/mla_decode_tile.cuh"
#include "attention/mla_splits.h"
#include "device/cuda/block_reduce.cuh"
#include "device/cuda/launch.cuh"

namespace lantern::cuda {
namespace {

constexpr unsigned kThreads = 256;
constexpr int kWarps = kThreads / kWarp;
constexpr int32_t kMaxRank = 1024;
constexpr int32_t kMaxRope = 128;
constexpr int kRopePerLane = kMaxRope / kWarp;

// Value i of a row's latent part.
__device__ float latent_at(const LatentCacheView& cache, const std::byte* row, int32_t i) {
  if (cache.layout == LatentLayout::kF32) return reinterpret_cast<const float*>(row)[i];
  if (cache.layout == LatentLayout::kBf16) return widen(reinterpret_cast<const bf16_t*>(row)[i]);
  const auto* scales = reinterpret_cast<const float*>(row + cache.kv_lora_rank);
  return widen(reinterpret_cast<const e4m3_t*>(row)[i]) * scales[i / kFp8ScaleGroup];
}
// Value i of its rotated part.
__device__ float rope_at(const LatentCacheView& cache, const std::byte* row, int32_t i) {
  if (cache.layout == LatentLayout::kF32) return reinterpret_cast<const float*>(row)[cache.kv_lora_rank + i];
  if (cache.layout == LatentLayout::kBf16) return widen(reinterpret_cast<const bf16_t*>(row)[cache.kv_lora_rank + i]);
  const std::byte* rope = row + cache.kv_lora_rank + 4 * (cache.kv_lora_rank / kFp8ScaleGroup);
  return widen(reinterpret_cast<const bf16_t*>(rope)[i]);
}

struct AttendShared {
  float q_latent[kMaxRank];
  float q_rope[kMaxRope];
  float maximum[kWarps];
  float sum[kWarps];
  float out[kMaxRank];
};

__device__ int32_t key_count(const StepView& step, const SelectionView& selection, int64_t t) {
  if (step.token_request[t] < 0) return 0;
  return selection.counts ? selection.counts[t] : step.token_context_len[t];
}

// s.out = attention of (s.q_latent, s.q_rope) over the token's keys; returns its log-sum-exp. By one block.
template <int kPerLane>
__device__ float attend(const StepView& step, const SelectionView& selection, const LatentCacheView& cache, float scale,
                        int64_t t, AttendShared& s) {
  const int32_t keys = key_count(step, selection, t);
  const int32_t* table =
      keys > 0 ? step.block_table.get() + int64_t{step.token_request[t]} * step.block_table_stride : nullptr;
  const auto lane = static_cast<int32_t>(threadIdx.x % kWarp);
  const auto warp = static_cast<int32_t>(threadIdx.x / kWarp);
  __syncthreads();  // the query is there
  float maximum = -INFINITY, sum = 0;
  float out[kPerLane] = {};
  for (int32_t j = warp; j < keys; j += kWarps) {
    const int64_t slot = selection.counts ? selection.slots[t * selection.top_k + j] : step.slot_of(table, j);
    const std::byte* row = cache.data.get() + slot * cache.row_bytes;
    float key[kPerLane];
    float product = 0;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const int32_t at = lane + kWarp * i;
      key[i] = at < cache.kv_lora_rank ? latent_at(cache, row, at) : 0.0f;
      if (at < cache.kv_lora_rank) product = __fmaf_rn(s.q_latent[at], key[i], product);
    }
#pragma unroll
    for (int i = 0; i < kRopePerLane; ++i) {
      const int32_t at = lane + kWarp * i;
      if (at < cache.rope_dim) product = __fmaf_rn(s.q_rope[at], rope_at(cache, row, at), product);
    }
    const float score = warp_sum(product) * scale;
    const float larger = fmaxf(maximum, score);
    const float factor = expf(maximum - larger), weight = expf(score - larger);
    sum = __fmaf_rn(sum, factor, weight);
    maximum = larger;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) out[i] = __fmaf_rn(weight, key[i], out[i] * factor);
  }
  if (lane == 0) {
    s.maximum[warp] = maximum;
    s.sum[warp] = sum;
  }
  for (auto i = static_cast<int32_t>(threadIdx.x); i < cache.kv_lora_rank; i += kThreads) s.out[i] = 0;
  __syncthreads();
  float largest = -INFINITY, total = 0;
  for (int w = 0; w < kWarps; ++w) largest = fmaxf(largest, s.maximum[w]);
  for (int w = 0; w < kWarps && keys > 0; ++w) {
    if (s.sum[w] != 0.0f) total += s.sum[w] * expf(s.maximum[w] - largest);
  }
  for (int w = 0; w < kWarps; ++w) {
    if (w == warp && sum != 0.0f) {
      const float factor = expf(maximum - largest) / total;
#pragma unroll
      for (int i = 0; i < kPerLane; ++i) {
        const int32_t at = lane + kWarp * i;
        if (at < cache.kv_lora_rank) s.out[at] += out[i] * factor;
      }
    }
    __syncthreads();
  }
  return keys > 0 ? largest + logf(total) : -INFINITY;
}

template <int kPerLane>
__global__ void mla_decode_kernel(MlaDecodeParams p) {
  ptx::begin_overlapped();
  __shared__ AttendShared s;
  const int64_t h = blockIdx.x, t = blockIdx.y, row = t * p.heads + h;
  const int32_t rank = p.cache.kv_lora_rank;
  for (auto i = static_cast<int32_t>(threadIdx.x); i < rank; i += kThreads) s.q_latent[i] = p.q_latent[row * rank + i];
  for (auto i = static_cast<int32_t>(threadIdx.x); i < p.cache.rope_dim; i += kThreads) {
    s.q_rope[i] = p.q_rope[t * p.q_rope_token_stride + h * p.q_rope_head_stride + i];
  }
  const float lse = attend<kPerLane>(p.step, p.selection, p.cache, p.scale, t, s);
  for (auto i = static_cast<int32_t>(threadIdx.x); i < rank; i += kThreads) p.out[row * rank + i] = s.out[i];
  if (p.lse && threadIdx.x == 0) p.lse[row] = lse;
}

template <int kPerLane>
__global__ void mla_prefill_kernel(MlaPrefillParams p) {
  ptx::begin_overlapped();
  __shared__ AttendShared s;
  const int64_t h = blockIdx.x, t = blockIdx.y;
  const int64_t first_row = h * (p.kv_b.nope_dim + p.kv_b.v_dim);
  const float* q = p.q.get() + t * p.q_token_stride + h * p.q_head_stride;
  const int32_t rank = p.cache.kv_lora_rank;
  const bool any = key_count(p.step, p.selection, t) > 0;
  for (auto c = static_cast<int32_t>(threadIdx.x); c < rank && any; c += kThreads) {
    float sum = 0;
    for (int32_t i = 0; i < p.kv_b.nope_dim; ++i) sum = __fmaf_rn(q[i], weight_at(p.kv_b, first_row + i, c), sum);
    s.q_latent[c] = sum;
  }
  for (auto i = static_cast<int32_t>(threadIdx.x); i < p.cache.rope_dim; i += kThreads) {
    s.q_rope[i] = q[p.kv_b.nope_dim + i];
  }
  const float lse = attend<kPerLane>(p.step, p.selection, p.cache, p.scale, t, s);
  const auto lane = static_cast<int32_t>(threadIdx.x % kWarp);
  float* out = p.out.get() + (t * p.heads + h) * p.kv_b.v_dim;
  for (auto v = static_cast<int32_t>(threadIdx.x / kWarp); v < p.kv_b.v_dim; v += kWarps) {
    float sum = 0;
    for (int32_t c = lane; c < rank && any; c += kWarp) {
      sum = __fmaf_rn(weight_at(p.kv_b, first_row + p.kv_b.nope_dim + v, c), s.out[c], sum);
    }
    sum = warp_sum(sum);
    if (lane == 0) out[v] = sum;
  }
  if (p.lse && threadIdx.x == 0) p.lse[t * p.heads + h] = lse;
}

void check_widths(const LatentCacheView& cache) {
  CHECK(cache.kv_lora_rank <= kMaxRank && cache.rope_dim <= kMaxRope,
        "latents of {} values and {} rotated ones; at most {} and {} are supported on CUDA", cache.kv_lora_rank,
        cache.rope_dim, kMaxRank, kMaxRope);
}

// The expanded form by way of the absorbed one's kernels.
void prefill_tiles(void* stream, const MlaPrefillParams& p) {
  const int64_t rank = p.cache.kv_lora_rank, row = p.heads * rank;
  const int64_t needed = cuda_mla_prefill_scratch_bytes(p.step.tokens, p.heads, rank);
  CHECK(p.scratch_bytes >= needed, "mla_prefill of {} tokens has {} bytes of scratch and needs {}", p.step.tokens,
        p.scratch_bytes, needed);
  auto* const q_latent = reinterpret_cast<float*>(p.scratch.get());
  const auto pass = static_cast<int32_t>(std::min<int64_t>(p.step.tokens, kMlaPrefillTokens));
  float* const out_latent = q_latent + pass * row;
  const int64_t used = 2 * pass * row * 4;
  for (int32_t first = 0; first < p.step.tokens; first += pass) {
    const int32_t tokens = std::min(pass, p.step.tokens - first);
    const auto q = borrow_fixed(p.q.get() + first * p.q_token_stride, tokens * p.q_token_stride);
    const auto rope = borrow_fixed(q.data() + p.kv_b.nope_dim, tokens * p.q_token_stride - p.kv_b.nope_dim);
    const RowCount real = p.step.real_tokens.from(first);
    absorb_query(stream, {.q = q,
                          .q_token_stride = p.q_token_stride,
                          .q_head_stride = p.q_head_stride,
                          .kv_b = p.kv_b,
                          .q_latent = borrow_fixed(q_latent, tokens * row),
                          .tokens = tokens,
                          .real_tokens = real});
    MlaDecodeParams decode;
    decode.step = p.step.slice(first, first + tokens);
    decode.q_latent = borrow_fixed<const float>(q_latent, tokens * row);
    decode.q_rope = rope;
    decode.q_rope_token_stride = p.q_token_stride;
    decode.q_rope_head_stride = p.q_head_stride;
    decode.cache = p.cache;
    if (p.selection.counts) {
      const int64_t at = int64_t{first} * p.selection.top_k, count = int64_t{tokens} * p.selection.top_k;
      decode.selection = {.positions = borrow_fixed(p.selection.positions.get() + at, count),
                          .slots = borrow_fixed(p.selection.slots.get() + at, count),
                          .counts = borrow_fixed(p.selection.counts.get() + first, tokens),
                          .top_k = p.selection.top_k};
    }
    decode.heads = p.heads;
    decode.scale = p.scale;
    decode.out = borrow_fixed(out_latent, tokens * row);
    if (p.lse) decode.lse = borrow_fixed(p.lse.get() + int64_t{first} * p.heads, int64_t{tokens} * p.heads);
    decode.scratch = borrow_fixed(p.scratch.get() + used, p.scratch_bytes - used);
    decode.scratch_bytes = p.scratch_bytes - used;
    mla_decode(stream, decode);
    const int64_t out = int64_t{p.heads} * p.kv_b.v_dim;
    project_value(stream, {.out_latent = borrow_fixed<const float>(out_latent, tokens * row),
                           .kv_b = p.kv_b,
                           .out = borrow_fixed(p.out.get() + first * out, tokens * out),
                           .tokens = tokens,
                           .real_tokens = real});
  }
}

}  // namespace

void mla_decode(void* stream, const MlaDecodeParams& p) {
  const auto kernel = choose<MlaDecodeKernel>(
      kMlaDecodeKernels, MlaDecodeDesc{.cache = p.cache, .heads = p.heads, .tokens = p.step.tokens}, device_traits());
  if (kernel != MlaDecodeKernel::kPortable) return mla_decode_tiles(stream, p, kernel == MlaDecodeKernel::kWgmma);
  check_widths(p.cache);
  launch_overlapped(
      stream, "mla_decode",
      p.cache.kv_lora_rank <= 512 ? &mla_decode_kernel<512 / kWarp> : &mla_decode_kernel<kMaxRank / kWarp>,
      dim3(static_cast<unsigned>(p.heads), static_cast<unsigned>(p.step.tokens)), kThreads, 0, p);
}
void mla_prefill(void* stream, const MlaPrefillParams& p) {
  const auto kernel = choose<MlaPrefillKernel>(kMlaPrefillKernels, MlaPrefillDesc{.cache = p.cache}, device_traits());
  if (kernel == MlaPrefillKernel::kAbsorbed) return prefill_tiles(stream, p);
  check_widths(p.cache);
  launch_overlapped(
      stream, "mla_prefill",
      p.cache.kv_lora_rank <= 512 ? &mla_prefill_kernel<512 / kWarp> : &mla_prefill_kernel<kMaxRank / kWarp>,
      dim3(static_cast<unsigned>(p.heads), static_cast<unsigned>(p.step.tokens)), kThreads, 0, p);
}

}  // namespace lantern::cuda
