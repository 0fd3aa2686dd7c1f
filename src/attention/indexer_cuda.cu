// Tokens are scored in groups of kGroup, each into a row of scores over all its keys; then a block for each token
// selects from its row. Which tokens must be scored is known on the device only: blocks of others have little to do.
#include "attention/cuda_launches.h"
#include "attention/fp8_rows.cuh"
#include "device/cuda/launch.cuh"

namespace lantern::cuda {
namespace {

constexpr int32_t kGroup = 16;
constexpr unsigned kThreads = 128;
constexpr unsigned kScoreBlocks = 64;  // for each token of a group
constexpr unsigned kSelectThreads = 512;
constexpr int32_t kDigits = 256;

struct IndexScratch {
  float* query;    // [kGroup, heads, dim], as its layout stores it, without the scale
  float* weights;  // [kGroup, heads], times the query's scale
  float* scores;   // [kGroup, row_stride]
  int64_t row_stride;
};

__device__ int32_t context_len(const IndexSelectParams& p, int32_t t) {
  return p.step.token_request[t] < 0 ? 0 : p.step.token_context_len[t];
}
__device__ bool must_score(const IndexSelectParams& p, int32_t t) {
  return p.mode == IndexSelectParams::Mode::kScore && context_len(p, t) > p.top_k;
}
__device__ const int32_t* table_of(const IndexSelectParams& p, int32_t t) {
  return p.step.block_table.get() + int64_t{p.step.token_request[t]} * p.step.block_table_stride;
}

// A block for each head of each token.
__global__ void prepare_query_kernel(IndexSelectParams p, IndexScratch s, int32_t first_token) {
  __shared__ float query[kMaxIndexDim];
  __shared__ float shared[kThreads / kWarp];
  const auto h = static_cast<int32_t>(blockIdx.x), g = static_cast<int32_t>(blockIdx.y);
  const int32_t t = first_token + g;
  if (!must_score(p, t)) return;
  const int64_t row = int64_t{t} * p.heads + h, place = int64_t{g} * p.heads + h;
  const auto thread = static_cast<int32_t>(threadIdx.x);
  for (int32_t i = thread; i < p.dim; i += kThreads) query[i] = p.query[row * p.dim + i];
  __syncthreads();
  if (p.hadamard) hadamard(query, p.dim);
  const bool fp8 = p.layout == IndexKeyLayout::kFp8;
  const float scale = fp8 ? index_query_scale(largest_magnitude(query, p.dim, shared)) : 1.0f;
  for (int32_t i = thread; i < p.dim; i += kThreads) {
    s.query[place * p.dim + i] = fp8 ? widen(narrow_e4m3(query[i] / scale)) : query[i];
  }
  if (thread == 0) s.weights[place] = fp8 ? p.weights[row] * scale : p.weights[row];
}

// A warp for each key, whose values its lanes share out.
template <int kPerLane>
__global__ void score_kernel(IndexSelectParams p, IndexScratch s, int32_t first_token) {
  const auto g = static_cast<int32_t>(blockIdx.y);
  const int32_t t = first_token + g;
  if (!must_score(p, t)) return;
  const auto keys = static_cast<int32_t>(min(int64_t{context_len(p, t)}, s.row_stride));
  const int32_t* blocks = table_of(p, t);
  const auto lane = static_cast<int32_t>(threadIdx.x % kWarp);
  const auto warps = static_cast<int32_t>(gridDim.x * kThreads / kWarp);
  const float* query = s.query + int64_t{g} * p.heads * p.dim;
  for (auto j = static_cast<int32_t>((blockIdx.x * kThreads + threadIdx.x) / kWarp); j < keys; j += warps) {
    const int32_t place = j + p.step.key_offset;
    const int64_t offset = place % p.step.block_size;
    const std::byte* block = p.cache.get() + blocks[place / p.step.block_size] * p.block_bytes;
    const DType dtype = p.layout == IndexKeyLayout::kFp8    ? DType::kF8E4M3
                        : p.layout == IndexKeyLayout::kBf16 ? DType::kBF16
                                                            : DType::kF32;
    float key[kPerLane];
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const int32_t at = lane + kWarp * i;
      key[i] = at < p.dim ? element(block, dtype, offset * p.dim + at) : 0.0f;
    }
    float score = 0;
    for (int32_t h = 0; h < p.heads; ++h) {
      float product = 0;
#pragma unroll
      for (int i = 0; i < kPerLane; ++i) {
        const int32_t at = lane + kWarp * i;
        if (at < p.dim) product = __fmaf_rn(query[int64_t{h} * p.dim + at], key[i], product);
      }
      product = warp_sum(product);
      score = __fmaf_rn(s.weights[int64_t{g} * p.heads + h], fmaxf(product, 0.0f), score);
    }
    if (p.layout == IndexKeyLayout::kFp8) {
      score *= reinterpret_cast<const float*>(block + int64_t{p.step.block_size} * p.dim)[offset];
    }
    if (lane == 0) s.scores[g * s.row_stride + j] = score;
  }
}

// Larger for larger scores; +0 and -0 are equal, NaN is beyond both ends by its sign.
__device__ uint32_t order_of(float score) {
  const uint32_t bits = score == 0.0f ? 0 : __float_as_uint(score);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

struct SelectShared {
  uint32_t counts[kDigits];
  uint64_t sums[kSelectThreads / kWarp];
  uint32_t prefix;
  int32_t left;  // of the wanted ones, those with a smaller digit
};

// The k-th largest score's order, and how many of its equals are among the k; by one block.
__device__ void find_threshold(const float* scores, int32_t count, int32_t k, SelectShared& s) {
  if (threadIdx.x == 0) {
    s.prefix = 0;
    s.left = k;
  }
  for (int shift = 24; shift >= 0; shift -= 8) {
    __syncthreads();
    for (auto d = static_cast<int32_t>(threadIdx.x); d < kDigits; d += kSelectThreads) s.counts[d] = 0;
    __syncthreads();
    const uint32_t known = s.prefix;
    for (auto i = static_cast<int32_t>(threadIdx.x); i < count; i += kSelectThreads) {
      const uint32_t order = order_of(scores[i]);
      if (shift < 24 && order >> (shift + 8) != known) continue;
      atomicAdd(s.counts + ((order >> shift) & (kDigits - 1)), 1u);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      uint32_t digit = kDigits - 1;
      while (digit > 0 && s.counts[digit] < static_cast<uint32_t>(s.left)) {
        s.left -= static_cast<int32_t>(s.counts[digit--]);
      }
      s.prefix = s.prefix << 8 | digit;
    }
  }
  __syncthreads();
}

// A block for each token: positions ascending, slots, and the count.
__global__ void select_kernel(IndexSelectParams p, IndexScratch s, int32_t first_token) {
  __shared__ SelectShared shared;
  const auto g = static_cast<int32_t>(blockIdx.x);
  const int32_t t = first_token + g;
  int32_t* positions = p.positions.get() + int64_t{t} * p.top_k;
  int32_t* slots = p.slots.get() + int64_t{t} * p.top_k;
  const auto thread = static_cast<int32_t>(threadIdx.x);
  const int32_t context = context_len(p, t);
  const int32_t taken = min(context, p.top_k);
  if (must_score(p, t)) {
    const auto keys = static_cast<int32_t>(min(int64_t{context}, s.row_stride));
    const float* scores = s.scores + g * s.row_stride;
    find_threshold(scores, keys, p.top_k, shared);
    const uint32_t threshold = shared.prefix;
    const int32_t equals = shared.left;
    int32_t above_before = 0, equal_before = 0;
    for (int32_t begin = 0; begin < keys; begin += kSelectThreads) {
      const int32_t i = begin + thread;
      const uint32_t order = i < keys ? order_of(scores[i]) : 0;
      const bool above = i < keys && order > threshold, equal = i < keys && order == threshold;
      uint64_t total = 0;
      const uint64_t before =
          block_exclusive_sum(static_cast<uint64_t>(above) | static_cast<uint64_t>(equal) << 32, shared.sums, &total);
      const int32_t own_above = above_before + static_cast<int32_t>(before);
      const int32_t own_equal = equal_before + static_cast<int32_t>(before >> 32);
      if (above || (equal && own_equal < equals)) positions[own_above + min(own_equal, equals)] = i;
      above_before += static_cast<int32_t>(total);
      equal_before += static_cast<int32_t>(total >> 32);
    }
  } else {
    for (int32_t i = thread; i < taken; i += kSelectThreads) positions[i] = context - taken + i;
  }
  __syncthreads();
  for (int32_t i = thread; i < p.top_k; i += kSelectThreads) {
    if (i >= taken) positions[i] = -1;
    slots[i] = i < taken ? static_cast<int32_t>(p.step.slot_of(table_of(p, t), positions[i])) : -1;
  }
  if (thread == 0) p.counts[t] = taken;
}

// One block, a row at a time: a row's source is never before it.
__global__ void keep_selection_kernel(KeepSelectionParams p) {
  for (int32_t i = 0; i < p.count; ++i) {
    const int64_t from = p.rows[i];
    const int32_t count = from < 0 ? 0 : p.counts[from];
    for (auto j = static_cast<int32_t>(threadIdx.x); j < count && from > i; j += kSelectThreads) {
      p.positions[int64_t{i} * p.top_k + j] = p.positions[from * p.top_k + j];
      p.slots[int64_t{i} * p.top_k + j] = p.slots[from * p.top_k + j];
    }
    __syncthreads();
    if (threadIdx.x == 0) p.counts[i] = count;
    __syncthreads();
  }
}

}  // namespace

void index_select(void* stream, const IndexSelectParams& p) {
  CHECK(p.dim > 0 && p.dim <= kMaxIndexDim, "index keys of {} values; at most {} are supported", p.dim, kMaxIndexDim);
  IndexScratch s{};
  const int64_t queries = int64_t{kGroup} * p.heads * p.dim, weights = int64_t{kGroup} * p.heads;
  s.query = reinterpret_cast<float*>(p.scratch.get());
  s.weights = s.query + queries;
  s.scores = s.weights + weights;
  s.row_stride = (p.scratch_bytes / 4 - queries - weights) / kGroup;
  CHECK(s.row_stride >= p.top_k, "index_select of {} heads got {} bytes of scratch", p.heads, p.scratch_bytes);
  for (int32_t first = 0; first < p.step.tokens; first += kGroup) {
    const auto tokens = static_cast<unsigned>(std::min(kGroup, p.step.tokens - first));
    if (p.mode == IndexSelectParams::Mode::kScore) {
      launch_kernel(stream, "index query", &prepare_query_kernel, dim3(static_cast<unsigned>(p.heads), tokens),
                    kThreads, 0, p, s, first);
      launch_kernel(stream, "index scores", p.dim <= 4 * kWarp ? &score_kernel<4> : &score_kernel<kMaxIndexDim / kWarp>,
                    dim3(kScoreBlocks, tokens), kThreads, 0, p, s, first);
    }
    launch_kernel(stream, "index top-k", &select_kernel, tokens, kSelectThreads, 0, p, s, first);
  }
}

void keep_selection(void* stream, const KeepSelectionParams& p) {
  launch_kernel(stream, "keep_selection", &keep_selection_kernel, 1, kSelectThreads, 0, p);
}

}  // namespace lantern::cuda
