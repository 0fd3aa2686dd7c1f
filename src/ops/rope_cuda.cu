#include "device/cuda/launch.cuh"
#include "ops/cuda_launches.h"

namespace lantern::cuda {
namespace {

constexpr unsigned kThreads = 128;

// A thread for each pair.
__global__ void rope_table_kernel(RopeTableParams p) {
  ptx::begin_overlapped();
  const int32_t half = p.dim / 2;
  const int64_t index = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (index >= p.tokens * half) return;
  const int64_t t = index / half, i = index % half;
  const auto position = static_cast<float>(max(p.context_len[t] - 1, 0));
  // Rounded to float first, as published; the functions in double keep the library's error out of it.
  const double angle = static_cast<double>(__fmul_rn(position, p.inverse_frequencies[i]));
  double sine = 0, cosine = 0;
  sincos(angle, &sine, &cosine);
  p.cos_sin[t * p.dim + i] = static_cast<float>(cosine) * p.attention_factor;
  p.cos_sin[t * p.dim + half + i] = static_cast<float>(sine) * p.attention_factor;
}

__global__ void rope_kernel(RopeParams p) {
  ptx::begin_overlapped();
  const int32_t half = p.dim / 2;
  const int64_t index = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (index >= p.tokens * p.heads * half) return;
  const int64_t t = index / (int64_t{p.heads} * half);
  const int64_t h = index / half % p.heads, i = index % half;
  float* x = p.x.get() + t * p.token_stride + h * p.head_stride + p.offset;
  const bool interleaved = p.pairing == RopePairing::kInterleaved;
  float& first = x[interleaved ? 2 * i : i];
  float& second = x[interleaved ? 2 * i + 1 : half + i];
  const float cosine = p.cos_sin[t * p.dim + i], sine = p.cos_sin[t * p.dim + half + i];
  const float a = first, b = second;
  first = __fsub_rn(__fmul_rn(a, cosine), __fmul_rn(b, sine));
  second = __fadd_rn(__fmul_rn(b, cosine), __fmul_rn(a, sine));
}

}  // namespace

void rope_table(void* stream, const RopeTableParams& p) {
  // First behind the plan, which lets later kernels start before it has waited itself: in full order.
  launch_kernel(stream, "rope_table", &rope_table_kernel, blocks_for(p.tokens * (p.dim / 2), kThreads), kThreads, 0, p);
}
void rope(void* stream, const RopeParams& p) {
  launch_overlapped(stream, "rope", &rope_kernel, blocks_for(p.tokens * p.heads * (p.dim / 2), kThreads), kThreads, 0,
                    p);
}

}  // namespace lantern::cuda
