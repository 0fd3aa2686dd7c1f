// What the tensor cores' kernels of the absorbed attention share (mla_decode_tile_cuda.cu, mla_decode_sm90_cuda.cu):
// the shape, where keys lie, and how queries and FP8 rows become bf16.
#pragma once

#include "attention/mla.h"
#include "attention/mla_splits.h"
#include "device/cuda/convert.cuh"

namespace lantern::cuda {

constexpr int kMlaRank = 512;
constexpr int kMlaRope = 64;
constexpr int kMlaPieces = (kMlaRank + kMlaRope) * 2 / 16;  // pieces of 16 bytes of a row of bf16
constexpr int kMlaFp8RowBytes = kMlaRank + 4 * (kMlaRank / kFp8ScaleGroup) + 2 * kMlaRope;
static_assert(kMlaFp8RowBytes % 16 == 0);

struct MlaParts {
  float* out;      // [tokens of the pass, splits, heads, kMlaRank], where a token has several splits
  float* lse;      // [tokens of the pass, splits, heads]
  int32_t splits;  // room for each token
};

__device__ inline int32_t mla_key_count(const MlaDecodeParams& p, int64_t t) {
  if (p.step.token_request[t] < 0) return 0;
  return p.selection.counts ? p.selection.counts[t] : p.step.token_context_len[t];
}
// The row of the token's key `key`, one of those that it has.
__device__ inline const std::byte* mla_key_row(const MlaDecodeParams& p, int64_t t, int32_t key) {
  if (p.selection.counts)
    return p.cache.data.get() + p.selection.slots[t * p.selection.top_k + key] * p.cache.row_bytes;
  const int32_t* table = p.step.block_table.get() + int64_t{p.step.token_request[t]} * p.step.block_table_stride;
  return p.cache.data.get() + p.step.slot_of(table, key) * p.cache.row_bytes;
}

// Values 8 piece .. 8 piece + 7 of the query of head h as bf16; zeros behind the last head.
__device__ inline uint4 mla_query_piece(const MlaDecodeParams& p, int64_t t, int32_t h, int piece) {
  float values[8] = {};
  if (h < p.heads) {
    const float* from = piece < kMlaRank / 8 ? p.q_latent.get() + (t * p.heads + h) * kMlaRank + piece * 8
                                             : p.q_rope.get() + t * p.q_rope_token_stride + h * p.q_rope_head_stride +
                                                   (piece - kMlaRank / 8) * 8;
#pragma unroll
    for (int i = 0; i < 8; ++i) values[i] = from[i];
  }
  return make_uint4(ptx::pack_bf16(values[0], values[1]), ptx::pack_bf16(values[2], values[3]),
                    ptx::pack_bf16(values[4], values[5]), ptx::pack_bf16(values[6], values[7]));
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
  return {origin, exp2f(before * to_log2 - origin)};
}

// The 64-head kernel of compute capability 9.0, for `tokens` tokens from `first` on.
void mla_decode_sm90(void* stream, const MlaDecodeParams& p, const MlaParts& parts, int32_t first, int32_t tokens);

}  // namespace lantern::cuda
