// e4m3 codes to bf16, exactly, 64 at a time, into two A tiles: of every 16 columns the first eight go to one, the
// others to the other (x is packed in the same order). Included by files built for AMX only; the instructions beyond
// their flags (GFNI, AVX512_VBMI) are in assembly, and missing_amx_bf16() asks for them.
//
// Code s eeee mmm is bf16 s E mmm0000 with E = e + 120, whose upper bits are e3 and four times its complement: each bit
// of the result is one of the code or its complement, and an affine map over GF(2) makes each byte of it. That holds
// for all codes but zero, subnormals and NaN. A third affine map numbers the codes so that those come first; they are
// looked up. No branch asks for them: they are rare enough to be mispredicted, and it would wait for memory.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "ops/gemm_amx_tiles.h"

namespace lantern::amx {

// Linear maps of a byte as GF2P8AFFINEQB takes them, and their constants.
struct E4m3Maps {
  __m512i high, low;            // to the bytes of the bf16 value
  __m512i number;               // to the number of the code
  __m512i rare_high, rare_low;  // the bytes of bf16 by number, for the first kRareCodes
  __m512i rare_codes;           // kRareCodes in every byte
};

constexpr int kRareCodes = 18;  // e = 0: 8 values of each sign; NaN of each sign
constexpr int kHighConstant = 0x3c, kNumberConstant = 0x0e;

// s e3 e3 e3 e3 e3 e2 e1, to be added to kHighConstant.
constexpr unsigned high_bits(unsigned code) { return (code & 0x80u) | (code >> 6 & 1u) * 0x7cu | (code >> 4 & 3u); }
constexpr unsigned low_bits(unsigned code) { return code << 4 & 0xf0u; }
// e3+e2 e2+e1 e1+e0 e0 m2 m1 m0 s, to be added to kNumberConstant: the first three are 0 for e = 0 and e = 15, and NaN
// is the first of those with e = 15.
constexpr unsigned number_bits(unsigned code) {
  const unsigned e = code >> 3 & 15u;
  return ((e ^ e >> 1) & 7u) << 5 | (e & 1u) << 4 | (code & 7u) << 1 | code >> 7;
}

// The matrix of a linear map, in every 64-bit lane: byte 7 - i holds the bits of the source that add up to bit i.
inline __m512i linear_map(unsigned (*map)(unsigned)) {
  uint64_t matrix = 0;
  for (unsigned bit = 0; bit < 8; ++bit) {
    for (unsigned from = 0; from < 8; ++from) {
      if ((map(1u << from) >> bit & 1u) != 0) matrix |= uint64_t{1} << (8 * (7 - bit) + from);
    }
  }
  return _mm512_set1_epi64(static_cast<int64_t>(matrix));
}

inline E4m3Maps make_e4m3_maps() {
  alignas(64) uint8_t high[64] = {}, low[64] = {};
  for (unsigned code = 0; code < 256; ++code) {
    const unsigned number = number_bits(code) ^ kNumberConstant;
    if (number >= kRareCodes) continue;
    const uint16_t bits = to_bf16(to_float(e4m3_t{static_cast<uint8_t>(code)})).bits;  // exact
    high[number] = static_cast<uint8_t>(bits >> 8);
    low[number] = static_cast<uint8_t>(bits & 0xffu);
  }
  return {.high = linear_map(high_bits),
          .low = linear_map(low_bits),
          .number = linear_map(number_bits),
          .rare_high = _mm512_load_si512(high),
          .rare_low = _mm512_load_si512(low),
          .rare_codes = _mm512_set1_epi8(kRareCodes)};
}

inline const E4m3Maps& e4m3_maps() {
  static const E4m3Maps kMaps = make_e4m3_maps();
  return kMaps;
}

template <int kConstant>
[[gnu::always_inline]] inline __m512i affine(__m512i x, __m512i map) {
  __m512i y;
  asm("vgf2p8affineqb %3, %2, %1, %0" : "=v"(y) : "v"(x), "v"(map), "i"(kConstant));
  return y;
}

// table[index] where `mask` is set, `other` elsewhere; index < 64.
[[gnu::always_inline]] inline __m512i look_up(__m512i other, __mmask64 mask, __m512i index, __m512i table) {
  asm("vpermb %2, %1, %0%{%3%}" : "+v"(other) : "v"(index), "v"(table), "Yk"(mask));
  return other;
}

[[gnu::always_inline]] inline void widen_e4m3(__m512i x, const E4m3Maps& maps, std::byte* first, std::byte* second) {
  const __m512i number = affine<kNumberConstant>(x, maps.number);
  const __mmask64 rare = _mm512_cmplt_epu8_mask(number, maps.rare_codes);
  const __m512i high = look_up(affine<kHighConstant>(x, maps.high), rare, number, maps.rare_high);
  const __m512i low = look_up(affine<0>(x, maps.low), rare, number, maps.rare_low);
  _mm512_store_si512(first, _mm512_unpacklo_epi8(low, high));
  _mm512_store_si512(second, _mm512_unpackhi_epi8(low, high));
}

// kRows rows of 128 codes into four A tiles that follow each other, `target` being the first row of the first.
template <int kRows>
[[gnu::always_inline]] inline void widen_rows(const std::byte* source, int64_t stride, const E4m3Maps& maps,
                                              std::byte* target) {
#pragma GCC unroll 16
  for (int row = 0; row < kRows; ++row) {
    const std::byte* codes = source + row * stride;
    std::byte* tiles = target + row * 64;
    widen_e4m3(_mm512_loadu_si512(codes), maps, tiles, tiles + kTileBytes);
    widen_e4m3(_mm512_loadu_si512(codes + 64), maps, tiles + 2 * kTileBytes, tiles + 3 * kTileBytes);
  }
}

}  // namespace lantern::amx
