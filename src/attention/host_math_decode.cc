// Stored types to floats, and the scaling that belongs to some.
#include "attention/host_math.h"

#include <cmath>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attention/host_math_decode.cc"
#include "hwy/foreach_target.h"

#include "attention/host_math_vectors.h"

HWY_BEFORE_NAMESPACE();
namespace lantern::host_math::HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_SSSE3 || HWY_TARGET == HWY_SSE4

void decode_e4m3(const std::byte* src, int64_t count, float factor, float* dst) {
  decode_e4m3_plain(src, count, factor, dst);
}

#else

void decode_e4m3(const std::byte* src, int64_t count, float factor, float* dst) {
  const DF df;
  const float widening = factor * 0x1p8f;  // exact, or infinite
  const auto widening_vector = hn::Set(df, widening);
  int64_t i = 0;
  for (; i + 2 * kLanes <= count && std::isfinite(widening); i += 2 * kLanes) {
    VF first, second;
    widen_e4m3(src + i, widening_vector, first, second);
    hn::StoreU(first, df, dst + i);
    hn::StoreU(second, df, dst + i + kLanes);
  }
  decode_e4m3_plain(src + i, count - i, factor, dst + i);
}

#endif

void decode_bf16(const std::byte* src, int64_t count, float* dst) {
  const DF df;
  const DU du;
  const hn::Rebind<uint16_t, DF> d16;
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const auto half = hn::LoadU(d16, reinterpret_cast<const uint16_t*>(src) + i);
    hn::StoreU(hn::BitCast(df, hn::ShiftLeft<16>(hn::PromoteTo(du, half))), df, dst + i);
  }
  for (; i < count; ++i) {
    bf16_t x;
    std::memcpy(&x, src + 2 * i, sizeof(x));
    dst[i] = to_float(x);
  }
}

void decode_f16(const std::byte* src, int64_t count, float* dst) {
  const DF df;
  const hn::Rebind<hwy::float16_t, DF> d16;
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const auto half = hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(src) + i);
    hn::StoreU(hn::PromoteTo(df, half), df, dst + i);
  }
  for (; i < count; ++i) {
    f16_t x;
    std::memcpy(&x, src + 2 * i, sizeof(x));
    dst[i] = to_float(x);
  }
}

void scale_impl(int64_t count, float* x, float factor) {
  const DF df;
  const auto f = hn::Set(df, factor);
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) hn::StoreU(hn::Mul(hn::LoadU(df, x + i), f), df, x + i);
  for (; i < count; ++i) x[i] *= factor;
}

void decode_values_impl(DType dtype, const std::byte* src, int64_t count, float factor, float* dst) {
  switch (dtype) {
    case DType::kF8E4M3: decode_e4m3(src, count, factor, dst); return;
    case DType::kBF16: decode_bf16(src, count, dst); break;
    case DType::kF16: decode_f16(src, count, dst); break;
    default: std::memcpy(dst, src, static_cast<size_t>(count) * sizeof(float)); break;
  }
  if (factor != 1.0f) scale_impl(count, dst, factor);
}

// Rows lie anywhere in the cache: those that come next are fetched meanwhile.
constexpr int32_t kRowsAhead = 4;

void decode_latent_rows_impl(LatentLayout layout, const std::byte* const* rows, int32_t count, int32_t kv_lora_rank,
                             int32_t rope_dim, float* latent, int64_t latent_stride, float* rope, int64_t rope_stride) {
  const int64_t values = int64_t{kv_lora_rank} + rope_dim;
  const int64_t row_bytes = layout == LatentLayout::kFp8
                                ? values + rope_dim + kv_lora_rank / kFp8ScaleGroup * int64_t{sizeof(float)}
                                : values * (layout == LatentLayout::kBf16 ? 2 : 4);
  for (int32_t r = 0; r < count; ++r) {
    const std::byte* row = rows[r];
    if (r + kRowsAhead < count) {
      for (int64_t byte = 0; byte < row_bytes; byte += 64) __builtin_prefetch(rows[r + kRowsAhead] + byte);
    }
    float* c = latent + r * latent_stride;
    float* k_pe = rope + r * rope_stride;
    switch (layout) {
      case LatentLayout::kF32:
        std::memcpy(c, row, static_cast<size_t>(kv_lora_rank) * sizeof(float));
        std::memcpy(k_pe, row + 4 * int64_t{kv_lora_rank}, static_cast<size_t>(rope_dim) * sizeof(float));
        break;
      case LatentLayout::kBf16:
        decode_bf16(row, kv_lora_rank, c);
        decode_bf16(row + 2 * int64_t{kv_lora_rank}, rope_dim, k_pe);
        break;
      case LatentLayout::kFp8: {
        const std::byte* scales = row + kv_lora_rank;
        for (int32_t begin = 0; begin < kv_lora_rank; begin += kFp8ScaleGroup) {
          float factor;
          std::memcpy(&factor, scales, sizeof(factor));
          scales += sizeof(factor);
          decode_e4m3(row + begin, kFp8ScaleGroup, factor, c + begin);
        }
        decode_bf16(scales, rope_dim, k_pe);
        break;
      }
    }
  }
}

}  // namespace lantern::host_math::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE  // Highway compiles the file once per instruction set; this part belongs to the last pass alone.
namespace lantern::host_math {

HWY_EXPORT(decode_values_impl);
HWY_EXPORT(decode_latent_rows_impl);
HWY_EXPORT(scale_impl);

void decode_values(DType dtype, const std::byte* src, int64_t count, float scale, float* dst) {
  HWY_DYNAMIC_DISPATCH(decode_values_impl)(dtype, src, count, scale, dst);
}

void decode_latent_rows(LatentLayout layout, const std::byte* const* rows, int32_t count, int32_t kv_lora_rank,
                        int32_t rope_dim, float* latent, int64_t latent_stride, float* rope, int64_t rope_stride) {
  HWY_DYNAMIC_DISPATCH(decode_latent_rows_impl)
  (layout, rows, count, kv_lora_rank, rope_dim, latent, latent_stride, rope, rope_stride);
}

void scale(int64_t count, float* x, float factor) { HWY_DYNAMIC_DISPATCH(scale_impl)(count, x, factor); }

}  // namespace lantern::host_math
#endif
