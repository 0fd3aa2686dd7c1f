// Element types on the device: the same values and codes as base/dtype.h.
#pragma once

#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "device/cuda/ptx.cuh"

namespace lantern::cuda {

__device__ inline float widen(float x) { return x; }
__device__ inline float widen(bf16_t x) { return __uint_as_float(static_cast<uint32_t>(x.bits) << 16); }
__device__ inline float widen(f16_t x) { return __half2float(__ushort_as_half(x.bits)); }
__device__ inline float widen(e4m3_t x) { return __half2float(__half(__nv_cvt_fp8_to_halfraw(x.bits, __NV_E4M3))); }
// Two e4m3 values, the lower 16 bits of `codes`, as pairs of f16 and of bf16: both exact.
__device__ inline uint32_t e4m3_to_f16(uint32_t codes) {
  const __half2_raw pair = __nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(codes), __NV_E4M3);
  return static_cast<uint32_t>(pair.y) << 16 | pair.x;
}
__device__ inline float2 widen_e4m3_pair(uint32_t codes) {
  return __half22float2(__half2(__nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(codes), __NV_E4M3)));
}
__device__ inline uint32_t e4m3_to_bf16(uint32_t codes) {
  const float2 pair = widen_e4m3_pair(codes);
  return ptx::pack_bf16(pair.x, pair.y);
}
// 2^(bits - 127); 255 is NaN.
__device__ inline float widen(e8m0_t x) {
  if (x.bits == 0xff) return __uint_as_float(0x7fc00000u);
  return x.bits == 0 ? __uint_as_float(0x00400000u) : __uint_as_float(static_cast<uint32_t>(x.bits) << 23);
}

__device__ inline bf16_t narrow_bf16(float x) {
  const uint32_t bits = __float_as_uint(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>((bits >> 16) | 0x40u)};
  return {static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}
__device__ inline float rounded_bf16(float x) { return widen(narrow_bf16(x)); }

// As encode_e4m3(): nearest even, saturating, NaN is 0x7f.
__device__ inline e4m3_t narrow_e4m3(float x) {
  if (x != x) return {0x7f};
  return {__nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3)};
}

// As round_up_to_power_of_two() for what scales are made of: normal, finite and above 0.
__device__ inline float power_of_two_at_least(float x) {
  const uint32_t bits = __float_as_uint(x);
  return __uint_as_float((bits + 0x7fffffu) & 0xff800000u);
}

// Element i of an array of `dtype`: f32, f16, bf16 or e4m3.
__device__ inline float element(const std::byte* data, DType dtype, int64_t i) {
  switch (dtype) {
    case DType::kBF16: return widen(reinterpret_cast<const bf16_t*>(data)[i]);
    case DType::kF8E4M3: return widen(reinterpret_cast<const e4m3_t*>(data)[i]);
    case DType::kF16: return widen(reinterpret_cast<const f16_t*>(data)[i]);
    default: return reinterpret_cast<const float*>(data)[i];
  }
}
// Scale i of an array of f32 or e8m0 scales.
__device__ inline float scale_element(const std::byte* scales, DType dtype, int64_t i) {
  return dtype == DType::kF8E8M0 ? widen(reinterpret_cast<const e8m0_t*>(scales)[i])
                                 : reinterpret_cast<const float*>(scales)[i];
}

}  // namespace lantern::cuda
