// Masses of tokens are added as integers, so that sums depend on no order: a row draws the same token wherever and
// whenever it runs.
#include "device/cuda/block_reduce.cuh"
#include "device/cuda/launch.cuh"
#include "ops/cuda_launches.h"
#include "ops/pass_sizes.h"
#include "ops/philox.h"

namespace lantern::cuda {
namespace {

constexpr unsigned kThreads = 512;
constexpr int kDigitBits = 8;
constexpr int kDigits = 1 << kDigitBits;
constexpr int32_t kNoToken = INT32_MAX;

// 2^43 for the most likely token: 2^20 of them still fit.
__device__ uint64_t mass_of(float weight) { return static_cast<uint64_t>(static_cast<double>(weight) * 0x1p43); }

// The last kept token of the order "descending weight, ascending id".
struct Cut {
  float weight = 0;
  int32_t id = kNoToken;

  __device__ bool keeps(float token_weight, int32_t token_id) const {
    return token_weight > weight || (token_weight == weight && token_id <= id);
  }
};
__device__ Cut shorter(const Cut& a, const Cut& b) { return a.keeps(b.weight, b.id) ? b : a; }

struct SampleShared {
  uint64_t masses[kDigits];
  uint32_t counts[kDigits];
  uint64_t sums[kThreads / kWarp];
  float floats[kThreads / kWarp];
  int32_t ints[kThreads / kWarp];
  // Of a search.
  uint32_t prefix;
  int found;
  uint64_t count_before, mass_before;
  int32_t token;
};

// One row of weights in [0, 1], by one block. Everything returned is the same in all threads.
class WeightedRow {
 public:
  __device__ WeightedRow(const float* weights, int32_t vocab, SampleShared& shared)
      : weights_(weights), vocab_(vocab), s_(shared), thread_(static_cast<int32_t>(threadIdx.x)) {
    const int32_t share = (vocab + static_cast<int32_t>(kThreads) - 1) / static_cast<int32_t>(kThreads);
    begin_ = min(vocab, thread_ * share);
    end_ = min(vocab, begin_ + share);
  }

  __device__ uint64_t mass(const Cut& cut) const {
    uint64_t sum = 0;
    for (int32_t i = thread_; i < vocab_; i += kThreads) sum += cut.keeps(weights_[i], i) ? mass_of(weights_[i]) : 0;
    return block_sum(sum, s_.sums);
  }

  // The shortest prefix of at least `count` tokens, or of at least `mass`: digit by digit of the weights' bits.
  __device__ Cut prefix(uint64_t count, uint64_t mass) const {
    if (thread_ == 0) {
      s_.prefix = 0;
      s_.count_before = s_.mass_before = 0;
    }
    for (int shift = 32 - kDigitBits; shift >= 0; shift -= kDigitBits) {
      __syncthreads();
      for (int d = thread_; d < kDigits; d += kThreads) {
        s_.counts[d] = 0;
        s_.masses[d] = 0;
      }
      __syncthreads();
      const uint32_t known = s_.prefix;
      for (int32_t i = thread_; i < vocab_; i += kThreads) {
        const uint32_t bits = __float_as_uint(weights_[i]);
        if (shift + kDigitBits < 32 && bits >> (shift + kDigitBits) != known) continue;
        const uint32_t digit = (bits >> shift) & (kDigits - 1);
        atomicAdd(s_.counts + digit, 1u);
        atomicAdd(reinterpret_cast<unsigned long long*>(s_.masses + digit), mass_of(weights_[i]));
      }
      __syncthreads();
      if (thread_ == 0) s_.found = find_digit(count, mass);
      __syncthreads();
      if (s_.found == 0) return Cut{};
    }
    // Of the tokens of this very weight, those of the lowest ids.
    const float weight = __uint_as_float(s_.prefix);
    const uint64_t one = mass_of(weight);
    const uint64_t by_count = count - min(count, s_.count_before);
    uint64_t ties = count == UINT64_MAX ? UINT64_MAX : by_count;
    if (mass != UINT64_MAX) ties = one == 0 ? UINT64_MAX : (mass - min(mass, s_.mass_before) + one - 1) / one;
    if (ties == 0) ties = 1;
    uint64_t own = 0, total = 0;
    for (int32_t i = begin_; i < end_; ++i) own += weights_[i] == weight ? 1 : 0;
    uint64_t before = block_exclusive_sum(own, s_.sums, &total);
    if (thread_ == 0) s_.token = kNoToken;
    __syncthreads();
    for (int32_t i = begin_; i < end_; ++i) {
      if (weights_[i] == weight && ++before == ties) s_.token = i;
    }
    __syncthreads();
    return Cut{weight, s_.token};
  }

  // First kept token by ascending id whose cumulated mass exceeds `target`; the last kept one where none does.
  __device__ int32_t token_at(const Cut& cut, uint64_t target) const {
    const auto mass_at = [&](int32_t i) { return cut.keeps(weights_[i], i) ? mass_of(weights_[i]) : 0; };
    uint64_t own = 0, total = 0;
    for (int32_t i = begin_; i < end_; ++i) own += mass_at(i);
    const uint64_t before = block_exclusive_sum(own, s_.sums, &total);
    if (total > 0) target = min(target, total - 1);
    if (thread_ == 0) s_.token = 0;
    __syncthreads();
    if (before <= target && target < before + own) {
      uint64_t sum = before;
      for (int32_t i = begin_; i < end_; ++i) {
        sum += mass_at(i);
        if (sum > target) {
          s_.token = i;
          break;
        }
      }
    }
    __syncthreads();
    return s_.token;
  }

 private:
  // Whether some digit of the histogram holds the end of the prefix; it then joins s_.prefix. By one thread.
  __device__ int find_digit(uint64_t count, uint64_t mass) const {
    for (int d = kDigits - 1; d >= 0; --d) {
      if (s_.count_before + s_.counts[d] >= count || s_.mass_before + s_.masses[d] >= mass) {
        s_.prefix = s_.prefix << kDigitBits | static_cast<uint32_t>(d);
        return 1;
      }
      s_.count_before += s_.counts[d];
      s_.mass_before += s_.masses[d];
    }
    return 0;
  }

  const float* weights_;
  int32_t vocab_;
  SampleShared& s_;
  int32_t thread_;
  int32_t begin_, end_;  // this thread's share of the ids
};

__device__ float larger(float a, float b) { return b > a ? b : a; }

__device__ float row_maximum(const float* x, int32_t count, float* shared) {
  float best = -INFINITY;
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < count; i += kThreads) best = larger(best, x[i]);
  return block_reduce(best, -INFINITY, shared, [](float a, float b) { return larger(a, b); });
}

// The normaliser of log softmax; see row_math_host.h.
struct LogSoftmax {
  float maximum = 0;
  double log_sum = 0;

  __device__ float of(float logit) const {
    if (!(logit > -INFINITY)) return -INFINITY;
    if (maximum == INFINITY) return logit == INFINITY ? static_cast<float>(-log_sum) : -INFINITY;
    return static_cast<float>(static_cast<double>(logit) - static_cast<double>(maximum) - log_sum);
  }
};
__device__ LogSoftmax log_softmax_of(const float* logits, int32_t count, float maximum) {
  __shared__ double shared[kThreads / kWarp];
  if (maximum == -INFINITY) return {maximum, 0};
  double sum = 0;
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < count; i += kThreads) {
    if (maximum == INFINITY) {
      sum += logits[i] == INFINITY ? 1.0 : 0.0;
    } else if (logits[i] > -INFINITY) {
      sum += static_cast<double>(expf(logits[i] - maximum));
    }
  }
  return {maximum, log(block_sum(sum, shared))};
}

__device__ int32_t draw(const float* logits, float maximum, int32_t vocab, const SamplingSettings& settings,
                        int64_t position, float* weights, SampleShared& shared) {
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < vocab; i += kThreads) {
    float weight = 0;
    if (maximum == INFINITY) {
      weight = logits[i] == INFINITY ? 1.0f : 0.0f;
    } else if (logits[i] > -INFINITY) {
      weight = fminf(expf((logits[i] - maximum) / settings.temperature), 1.0f);
    }
    weights[i] = weight;
  }
  __syncthreads();
  const WeightedRow row(weights, vocab, shared);
  Cut cut;
  if (settings.top_k > 0 && settings.top_k < vocab) {
    cut = row.prefix(static_cast<uint64_t>(settings.top_k), UINT64_MAX);
  }
  if (settings.top_p < 1) {
    const double wanted = ceil(static_cast<double>(settings.top_p) * static_cast<double>(row.mass(cut)));
    cut = shorter(cut, row.prefix(UINT64_MAX, max(uint64_t{1}, static_cast<uint64_t>(wanted))));
  }
  if (settings.min_p > 0) {
    const float largest = row_maximum(weights, vocab, shared.floats);
    cut = shorter(cut, Cut{fminf(settings.min_p, 1.0f) * largest, kNoToken});
  }
  const double u = philox_uniform_53(settings.seed, static_cast<uint64_t>(position));
  return row.token_at(cut, static_cast<uint64_t>(u * static_cast<double>(row.mass(cut))));
}

// A block for each row.
__global__ void sample_kernel(SampleParams p, int64_t first_row) {
  __shared__ SampleShared shared;
  const int64_t r = first_row + blockIdx.x;
  const float* logits = p.logits.get() + r * p.vocab;
  if (p.row_slots && p.row_slots[r] < 0) {
    if (threadIdx.x == 0) {
      p.tokens[r] = -1;
      if (p.logprobs) p.logprobs[r] = 0;
    }
    return;
  }
  const SamplingSettings settings = p.settings[r];
  const float maximum = row_maximum(logits, p.vocab, shared.floats);
  int32_t token = 0;
  if (maximum > -INFINITY && !(settings.temperature > 0)) {
    int32_t first = kNoToken;
    for (int32_t i = static_cast<int32_t>(threadIdx.x); i < p.vocab; i += kThreads) {
      if (logits[i] == maximum) first = min(first, i);
    }
    token = block_reduce(first, kNoToken, shared.ints, [](int32_t a, int32_t b) { return min(a, b); });
  } else if (maximum > -INFINITY) {
    float* weights = reinterpret_cast<float*>(p.scratch.get()) + int64_t{blockIdx.x} * p.vocab;
    token = draw(logits, maximum, p.vocab, settings, p.output_positions[r], weights, shared);
  }
  LogSoftmax softmax;
  if (p.logprobs) softmax = log_softmax_of(logits, p.vocab, maximum);
  if (threadIdx.x == 0) {
    p.tokens[r] = token;
    if (p.logprobs) p.logprobs[r] = softmax.of(logits[token]);
  }
}

// A token of the order "descending logit, ascending id", NaN being -infinity.
struct Ranked {
  float logit;
  int32_t id;
};
__device__ bool is_before(const Ranked& a, const Ranked& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

__device__ Ranked block_first(Ranked best, SampleShared& shared) {
  const auto first = [](Ranked a, Ranked b) { return is_before(b, a) ? b : a; };
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    best = first(best, {__shfl_xor_sync(~0u, best.logit, offset), __shfl_xor_sync(~0u, best.id, offset)});
  }
  __syncthreads();
  if (threadIdx.x % kWarp == 0) {
    shared.floats[threadIdx.x / kWarp] = best.logit;
    shared.ints[threadIdx.x / kWarp] = best.id;
  }
  __syncthreads();
  for (unsigned w = 0; w < kThreads / kWarp; ++w) best = first(best, {shared.floats[w], shared.ints[w]});
  return best;
}

__global__ void logprobs_kernel(LogprobParams p) {
  __shared__ SampleShared shared;
  const int64_t r = blockIdx.x;
  const auto thread = static_cast<int32_t>(threadIdx.x);
  const float* logits = p.logits.get() + r * p.vocab;
  const int32_t count = p.counts ? min(p.counts[r], p.k) : p.k;
  const int32_t token = count < 0 ? -1 : p.tokens[r];
  LogSoftmax softmax;
  if (count >= 0) softmax = log_softmax_of(logits, p.vocab, row_maximum(logits, p.vocab, shared.floats));
  int32_t above = 0;
  if (token >= 0 && p.ranks) {
    const float logit = logits[token] > -INFINITY ? logits[token] : -INFINITY;
    for (int32_t i = thread; i < p.vocab; i += kThreads) above += static_cast<int32_t>(logits[i] > logit);
    above = block_sum(above, shared.ints);
  }
  if (thread == 0) {
    p.logprobs[r] = token < 0 ? 0.0f : softmax.of(logits[token]);
    if (p.ranks) p.ranks[r] = token < 0 ? 0 : above + 1;
  }
  Ranked last{INFINITY, -1};
  for (int32_t j = 0; j < p.k; ++j) {
    Ranked next{-INFINITY, kNoToken};
    if (j < count && last.id != kNoToken) {
      for (int32_t i = thread; i < p.vocab; i += kThreads) {
        const Ranked candidate{logits[i] > -INFINITY ? logits[i] : -INFINITY, i};
        if (is_before(last, candidate) && is_before(candidate, next)) next = candidate;
      }
      next = block_first(next, shared);
    }
    last = next;
    if (thread == 0) {
      const bool exists = next.id != kNoToken;
      p.top_tokens[r * p.k + j] = exists ? next.id : -1;
      p.top_logprobs[r * p.k + j] = exists ? softmax.of(next.logit) : -INFINITY;
    }
  }
}

}  // namespace

void sample(void* stream, const SampleParams& p) {
  for (int64_t first = 0; first < p.rows; first += kRowsAtOnce) {
    launch_kernel(stream, "sample", &sample_kernel, blocks_for(std::min(kRowsAtOnce, p.rows - first), 1), kThreads, 0,
                  p, first);
  }
}
void logprobs(void* stream, const LogprobParams& p) {
  launch_kernel(stream, "logprobs", &logprobs_kernel, blocks_for(p.rows, 1), kThreads, 0, p);
}

}  // namespace lantern::cuda
