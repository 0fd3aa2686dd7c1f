// What the tensor cores' kernels of the absorbed attention share (mla_decode_tile_cuda.cu, mla_decode_sm90_cuda.cu):
// the shape, where keys lie, and how queries and FP8 rows become bf16.
#pragma once

#include "attention/mla.h"
#include "attention/mla_splits.h"
#include "attention/mla_tile_shape.h"
#include "device/cuda/convert.cuh"

namespace lantern::cuda {

struct MlaParts {
  float* out;      // [tokens of the pass, splits, heads, kMlaRank], where a token has several splits
  float* lse;      // [tokens of the pass, splits, heads]
  int32_t splits;  // room for each token
};

__device__ inline int32_t mla_key_count(const MlaDecodeParams& p, int64_t t) {
  if (p.step.token_request[t] < 0) return 0;
  return p.selection.counts ? p.selection.counts[t] : p.step.token_context_len[t];
}
// Where the keys of a token are found: their slots or, of the block table, their blocks. Asked for ahead of the row,
// whose address needs it.
struct MlaKeyEntries {
  const int32_t* entries;
  int32_t offset, per_entry;

  __device__ MlaKeyEntries(const MlaDecodeParams& p, int64_t t) {
    const bool chosen = static_cast<bool>(p.selection.counts);
    entries = chosen ? p.selection.slots.get() + t * p.selection.top_k
                     : p.step.block_table.get() + int64_t{p.step.token_request[t]} * p.step.block_table_stride;
    offset = chosen ? 0 : p.step.key_offset;
    per_entry = chosen ? 1 : p.step.block_size;
  }
  __device__ int32_t at(int32_t key) const { return entries[(key + offset) / per_entry]; }
};
__device__ inline const std::byte* mla_key_row(const MlaDecodeParams& p, int32_t key, int32_t entry) {
  const int64_t slot = p.selection.counts
                           ? int64_t{entry}
                           : int64_t{entry} * p.step.block_size + (key + p.step.key_offset) % p.step.block_size;
  return p.cache.data.get() + slot * p.cache.row_bytes;
}

// Four neighbouring values of a row; kWhole: it is aligned to 16 bytes.
template <bool kWhole>
__device__ inline float4 four_at(const float* from) {
  if constexpr (kWhole) return *reinterpret_cast<const float4*>(from);
  return make_float4(from[0], from[1], from[2], from[3]);
}
// By `kThreads` threads: the queries of heads [first, first + kHeads) as bf16, zeros behind the last head; place(row,
// piece) is where 16 bytes of them go.
template <int kHeads, int kThreads, bool kWhole, class Place>
__device__ inline void load_queries(const MlaDecodeParams& p, int64_t t, int32_t first, const Place& place) {
  constexpr int kFours = 2 * kMlaPieces, kCount = kHeads * kFours / kThreads, kAtOnce = kCount % 12 == 0 ? 12 : 9;
  static_assert(kHeads * kFours % kThreads == 0 && kCount % kAtOnce == 0);
#pragma unroll 1
  for (int begin = static_cast<int>(threadIdx.x); begin < kHeads * kFours; begin += kAtOnce * kThreads) {
    float4 values[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int at = begin + i * kThreads, four = at % kFours;
      const int32_t h = first + at / kFours;
      values[i] = {};
      if (h >= p.heads) continue;
      values[i] = four_at<kWhole>(four < kMlaRank / 4 ? p.q_latent.get() + (t * p.heads + h) * kMlaRank + four * 4
                                                      : p.q_rope.get() + t * p.q_rope_token_stride +
                                                            h * p.q_rope_head_stride + (four - kMlaRank / 4) * 4);
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int at = begin + i * kThreads, four = at % kFours;
      *reinterpret_cast<uint2*>(place(at / kFours, four / 2) + four % 2 * 8) =
          make_uint2(ptx::pack_bf16(values[i].x, values[i].y), ptx::pack_bf16(values[i].z, values[i].w));
    }
  }
}
template <int kHeads, int kThreads, class Place>
__device__ inline void load_queries(const MlaDecodeParams& p, int64_t t, int32_t first, const Place& place) {
  const auto places = reinterpret_cast<uintptr_t>(p.q_latent.get()) | reinterpret_cast<uintptr_t>(p.q_rope.get());
  (places % 16 | p.q_rope_token_stride % 4 | p.q_rope_head_stride % 4) == 0
      ? load_queries<kHeads, kThreads, true>(p, t, first, place)
      : load_queries<kHeads, kThreads, false>(p, t, first, place);
}

// Four e4m3 codes, none of them NaN, times 2^56 `factor` as bf16: exact where the result is normal. A code's exponent
// and mantissa are put where bf16 has the lowest of its own, which is 2^-120 of the value.
__device__ inline uint2 widen_codes(uint32_t codes, uint32_t factor) {
  constexpr uint32_t kTwoTo64 = 0x5f805f80u;
  const uint32_t low = __byte_perm(codes, 0, 0x1404), high = __byte_perm(codes, 0, 0x3424);
  const uint32_t a = (low & 0x80008000u) | ((low >> 4) & 0x07f007f0u);
  const uint32_t b = (high & 0x80008000u) | ((high >> 4) & 0x07f007f0u);
  return make_uint2(ptx::multiply_bf16(ptx::multiply_bf16(a, kTwoTo64), factor),
                    ptx::multiply_bf16(ptx::multiply_bf16(b, kTwoTo64), factor));
}
// 16 codes of one scale, a power of two of 2^-13 and more, as two pieces of bf16.
__device__ inline void widen_piece(const uint4& codes, float scale, uint4 (&pieces)[2]) {
  const float factor = scale * 0x1p56f;
  const uint32_t factors = ptx::pack_bf16(factor, factor);
  uint2 pairs[4];
  uint32_t nan = 0;  // a sign bit for each NaN
#pragma unroll
  for (int word = 0; word < 4; ++word) {
    const uint32_t four = (&codes.x)[word];
    pairs[word] = widen_codes(four, factors);
    nan |= (four & 0x7f7f7f7fu) + 0x01010101u;
  }
  if ((nan & 0x80808080u) != 0) {
#pragma unroll
    for (int word = 0; word < 4; ++word) {
      const uint32_t four = (&codes.x)[word];
      const float2 low = widen_e4m3_pair(four & 0xffffu), high = widen_e4m3_pair(four >> 16);
      pairs[word] =
          make_uint2(ptx::pack_bf16(low.x * scale, low.y * scale), ptx::pack_bf16(high.x * scale, high.y * scale));
    }
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    pieces[half] = make_uint4(pairs[2 * half].x, pairs[2 * half].y, pairs[2 * half + 1].x, pairs[2 * half + 1].y);
  }
}

// By how much a new tile of scores moves a head's softmax: its largest score so far, where the exponents begin, and the
// factor for what was added before. Without a number among the scores nothing was added, and NaN comes through the
// weights.
struct SoftmaxStep {
  float origin, factor;
};
__device__ inline SoftmaxStep softmax_step(float before, float largest, float to_log2) {
  const float origin = largest == -INFINITY ? 0.0f : largest * to_log2;
  return {origin, ptx::exp2_flushed(before * to_log2 - origin)};
}

// The 64-head kernel of compute capability 9.0, for `tokens` tokens from `first` on.
void mla_decode_sm90(void* stream, const MlaDecodeParams& p, const MlaParts& parts, int32_t first, int32_t tokens);

}  // namespace lantern::cuda
