// e4m3 codes to bf16, exactly, 64 at a time: even columns of a chunk of 64 to one A tile, odd columns to the other (x
// is packed in the same order). Included by files built for AMX only; the instructions beyond their flags (AVX512_VBMI,
// AVX512_VBMI2) are in assembly, and missing_amx_bf16() asks for them.
//
// The look-ups keep port 5 busy (two of three operations of each), and so would interleaving bytes by unpacking. So one
// look-up is made on swapped bytes, and one shift and one bit selection put the words together on either port.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "ops/gemm_amx_tiles.h"

namespace lantern::amx {

// The bytes of the bf16 values of the codes 0..127, in two registers each, and constants.
struct E4m3Tables {
  __m512i high0, high1, low0, low1;
  __m512i sign;       // of every byte
  __m512i high_byte;  // of every word
};

inline E4m3Tables make_e4m3_tables() {
  alignas(64) uint8_t high[128], low[128];
  for (unsigned code = 0; code < 128; ++code) {
    const uint16_t bits = to_bf16(to_float(e4m3_t{static_cast<uint8_t>(code)})).bits;  // exact
    high[code] = static_cast<uint8_t>(bits >> 8);
    low[code] = static_cast<uint8_t>(bits & 0xffu);
  }
  return {_mm512_load_si512(high),     _mm512_load_si512(high + 64), _mm512_load_si512(low),
          _mm512_load_si512(low + 64), _mm512_set1_epi8(-128),       _mm512_set1_epi16(-256)};
}

inline const E4m3Tables& e4m3_tables() {
  static const E4m3Tables kTables = make_e4m3_tables();
  return kTables;
}

// table[index & 127] for every byte.
[[gnu::always_inline]] inline __m512i look_up(__m512i index, __m512i table0, __m512i table1) {
  asm("vpermi2b %2, %1, %0" : "+v"(index) : "v"(table0), "v"(table1));
  return index;
}

// The lower byte of every word of `upper` above the upper byte of `lower`.
[[gnu::always_inline]] inline __m512i join_bytes(__m512i upper, __m512i lower) {
  __m512i joined;
  asm("vpshldw $8, %2, %1, %0" : "=v"(joined) : "v"(upper), "v"(lower));
  return joined;
}

// Subnormals and NaN take no branch: a test of weights that are still on their way from memory costs more.
[[gnu::always_inline]] inline void widen_e4m3(__m512i x, const E4m3Tables& t, std::byte* even, std::byte* odd) {
  constexpr int kOrAnd = 0xf8;   // a | (b & c)
  constexpr int kSelect = 0xca;  // a ? b : c
  const __m512i high = _mm512_ternarylogic_epi64(look_up(x, t.high0, t.high1), x, t.sign, kOrAnd);
  const __m512i low_swapped = look_up(join_bytes(x, x), t.low0, t.low1);
  _mm512_store_si512(even, join_bytes(high, low_swapped));
  _mm512_store_si512(odd, _mm512_ternarylogic_epi64(t.high_byte, high, low_swapped, kSelect));
}

// kRows rows of 64 codes into two A tiles, `target` being the first row of the first.
template <int kRows>
[[gnu::always_inline]] inline void widen_rows(const std::byte* source, int64_t stride, const E4m3Tables& tables,
                                              std::byte* target) {
#pragma GCC unroll 16
  for (int row = 0; row < kRows; ++row) {
    widen_e4m3(_mm512_loadu_si512(source + row * stride), tables, target + row * 64, target + kTileBytes + row * 64);
  }
}

}  // namespace lantern::amx
